"""The errors to expect of a selection on another GPU, from what is known where it was made.

How much longer a launch takes there, its ratio, is modelled as a common factor times

    a factor of its kernel                                  relative standard deviation ``kernel``
    a walk along the logarithm of its size                  ``filling`` for each doubling of blocks that do
                                                            not fill a GPU yet, ``size`` beyond
    a factor of its operator's input shapes, by operation   ``shape``
    a factor of its own                                     ``own``

By operation the kernel is the operator: libraries run other kernels for other shapes on another GPU, so a
shape has a factor that its neighbours lack, however close in size. The spreads are :data:`OF_LAUNCHES` and
:data:`OF_OPERATIONS`.

A launch's own factor is the noise of both recordings. Launches of one kernel and size show it here: where
the logarithms of their light times, means over R runs, have the variance v, ratios to one run there have
(R + 1) v. So ``own`` is what is assumed before any of them is seen, and at most. Times that are equal to the
digit, as of composed recordings, say nothing of noise.

The error of the total is then a contrast between the shares of the time that representatives stand for and
those that kernels, sizes and launches have; its variance has a closed form. So has that of each kernel and
size (operator and shapes), whose projection is as much of its group's as it has of the group's light time.

The walk begins at the kernel's smallest size: the covariance of two sizes is the smaller of both variances up
to there. Blocks that fill one GPU leave another idle in part, so ratios drift more where there are few.

Source: docs/methods/README.md, "The verdict".
Memory: 100 bytes a launch while cells are counted, and 350 a distinct cell.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from assay_sampling.engines.blockwise import total
from assay_sampling.engines.columns import engine_of, in_place_of
from assay_sampling.engines.seam import ArrayRows
from assay_sampling.launches.in_memory import Launches

_MEAN_OF_NORMAL = 2 / math.pi
_AXES = ("grid_x", "grid_y", "grid_z")
_MOST_BLOCKS = float(1 << 62)


@dataclass(frozen=True)
class Spreads:
    """Relative standard deviations of the factors of a ratio; ``own`` is between ``least_own`` and ``own``
    where launches of one kernel and size show their noise."""

    kernel: float
    filling: float
    size: float
    shape: float
    own: float
    least_own: float


# A GPU of 80 multiprocessors holds 16 blocks of 128 threads on each at once.
_FULL_BLOCKS = 1 << 10
OF_LAUNCHES = Spreads(kernel=0.35, filling=0.12, size=0.08, shape=0.0, own=0.05, least_own=0.03)
# Estimated on one model's operators on H100 and MI300X: docs/methods/README.md, "The verdict". Under another
# library calls differ that take equally long here.
OF_OPERATIONS = Spreads(kernel=0.35, filling=0.08, size=0.08, shape=0.20, own=0.10, least_own=0.10)


@dataclass(frozen=True)
class ExpectedErrors:
    """Mean absolute errors to expect on another GPU, in percent: of the total, and over kernels and sizes.

    ``not_vouched_percent``: the share of the time in groups of several launches for which a single one
    stands, so that nothing tells how far they differ. ``extrapolated_percent``: of it the time of kernels and
    sizes of which their group's launch is none, so that not even equal light times speak for it.
    """

    error_percent: float
    group_error_percent: float
    not_vouched_percent: float
    extrapolated_percent: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def expected_errors(
    sizes: Sizes,
    labels: np.ndarray,
    time: np.ndarray,
    rows: np.ndarray,
    weights: np.ndarray,
    *,
    light_runs: int = 0,
) -> ExpectedErrors | None:
    """What to expect of representatives with weights on another GPU.

    Args:
        sizes: kernel and number of blocks of every launch.
        labels: group of every launch, shape (n,), 0-based.
        time: light time of every launch, or its cost where there is none, shape (n,).
        rows, weights: of the representatives, shape (r,).
        light_runs: of how many ``time`` is the mean; 0 where it is a cost under a profiler, which keeps it
            from varying as it will elsewhere.

    None where all launches together take no time.
    """
    whole = total(time)
    if not whole > 0:
        return None
    spreads = OF_LAUNCHES if sizes.shape is None else OF_OPERATIONS
    cells = _Cells.of(sizes, spreads, labels, time, rows)
    own = np.asarray(time[rows], np.float64) / whole
    chosen = _Chosen(weights * own, own, _own_squares(cells, spreads, light_runs)[cells.of_representative])
    return ExpectedErrors(
        100 * math.sqrt(_total_square(cells, spreads, chosen)),
        100 * float(np.sqrt(_class_squares(cells, spreads, chosen)).sum()),
        100 * cells.alone(),
        100 * cells.extrapolated(),
    )


@dataclass(frozen=True)
class Sizes:
    """Kernel, an id, and number of blocks of every launch, shape (n,) each; they may lie on disk.

    Of operations ``kernel`` is the operator, ``shape`` a number for what is called (operator and input
    shapes), and ``blocks`` their threads, the same for every call of a shape.
    """

    kernel: np.ndarray
    blocks: np.ndarray
    shape: np.ndarray | None = None

    @classmethod
    def of(cls, launches: Launches) -> Sizes:
        """A recording without grids has launches of one block."""
        return cls(launches.array("kernel_id"), launches.computed(_AXES, np.int64, _blocks))


def _blocks(axes: list[np.ndarray]) -> np.ndarray:
    whole = np.prod([np.maximum(axis.astype(np.float64), 1.0) for axis in axes], axis=0)
    blocks: np.ndarray = np.minimum(whole, _MOST_BLOCKS)
    return blocks


@dataclass(frozen=True)
class _Cells:
    """Launches of one group, kernel and number of blocks (and shape) together, m cells.

    ``group``, ``kernel``, ``of_class`` (kernel and blocks, or operator and shapes), ``size`` (variance of the
    walk from the kernel's smallest), ``time`` (share of the whole), ``launches``, ``logs`` and
    ``log_squares`` (sums of the logarithm of their times, in parts, and of its square) have shape (m,);
    ``of_representative``, shape (r,), is the cell of each representative.
    """

    group: np.ndarray
    kernel: np.ndarray
    of_class: np.ndarray
    size: np.ndarray
    time: np.ndarray
    launches: np.ndarray
    logs: np.ndarray
    log_squares: np.ndarray
    of_representative: np.ndarray

    def alone(self) -> float:
        """Share of the time in groups of several launches that have one representative, or none."""
        chosen = self._representatives()
        groups = len(chosen)
        launches = np.bincount(self.group, self.launches, groups)
        time = np.bincount(self.group, self.time, groups)
        return float(time[(chosen < 2) & (launches > chosen)].sum())

    def extrapolated(self) -> float:
        """Share of the time in cells without a representative, in groups that have one, or none."""
        met = np.zeros(len(self.time), bool)
        met[self.of_representative] = True
        return float(self.time[~met & (self._representatives() < 2)[self.group]].sum())

    def _representatives(self) -> np.ndarray:
        """Of each group, shape (g,)."""
        groups = int(self.group.max()) + 1
        return np.bincount(self.group[self.of_representative], minlength=groups)

    @classmethod
    def of(
        cls, sizes: Sizes, spreads: Spreads, labels: np.ndarray, time: np.ndarray, rows: np.ndarray
    ) -> _Cells:
        whole = total(time)
        # Engines add up integers, so the time is counted in parts of the whole, far finer than a launch.
        scale = _PARTS / whole
        parts = in_place_of(time, np.int64, lambda block: np.rint(np.asarray(time[block]) * scale))
        keyed = {"group": labels, "kernel": sizes.kernel, "blocks": sizes.blocks}
        if sizes.shape is not None:
            keyed["shape"] = sizes.shape
        mean = whole / len(time)
        logs = in_place_of(time, np.int64, lambda block: _log_parts(np.asarray(time[block]), mean))
        log_squares = in_place_of(logs, np.int64, lambda block: np.square(logs[block]))
        summed = {"time": parts, "logs": logs, "log_squares": log_squares}
        groups = engine_of(*keyed.values(), time).groups(ArrayRows(keyed | summed), list(keyed), list(summed))
        keys = [np.asarray(groups.keys[name].to_numpy()) for name in keyed]
        chosen = [np.asarray(values[rows]) for values in keyed.values()]
        cell = _places([np.concatenate(pair) for pair in zip(keys, chosen, strict=True)], len(groups))
        group, kernel_id, blocks = keys[:3]
        kernel = np.unique(kernel_id, return_inverse=True)[1]
        size = _walked(blocks, spreads)
        smallest = np.full(int(kernel.max()) + 1, np.inf)
        np.minimum.at(smallest, kernel, size)
        return cls(
            group=group.astype(np.int64),
            kernel=kernel,
            of_class=_numbered([kernel, keys[-1]]),
            size=size - smallest[kernel],
            time=groups.sums["time"] / _PARTS,
            launches=groups.count,
            logs=groups.sums["logs"],
            log_squares=groups.sums["log_squares"],
            of_representative=cell,
        )


_PARTS = float(1 << 53)
_LOG_PARTS = 10_000
_MOST_LOG = 20.0


def _log_parts(time: np.ndarray, mean: float) -> np.ndarray:
    """Logarithms of times relative to the mean launch, in whole parts so small that they tell 0.01 %, and so
    few that an engine adds up the squares of 200 million."""
    parts: np.ndarray = time / mean
    np.clip(parts, math.exp(-_MOST_LOG), math.exp(_MOST_LOG), out=parts)
    np.log(parts, out=parts)
    parts *= _LOG_PARTS
    np.rint(parts, out=parts)
    return parts


@dataclass(frozen=True)
class _Chosen:
    """Representatives: the share of the whole that each stands for, its own, and the variance of its own
    factor, shape (r,)."""

    share: np.ndarray
    own: np.ndarray
    own_square: np.ndarray


def _own_squares(cells: _Cells, spreads: Spreads, light_runs: int) -> np.ndarray:
    """The variance of a launch's own factor by cell, shape (m,); what is assumed counts as one launch."""
    assumed, least = spreads.own**2, spreads.least_own**2
    if not light_runs:
        return np.full(len(cells.time), assumed)
    launches, logs, squares = (
        np.bincount(cells.of_class, each) for each in (cells.launches, cells.logs, cells.log_squares)
    )
    # The square of the parts' sum is beyond what int64 holds.
    varied = np.maximum(squares - np.square(logs) / launches, 0.0) / _LOG_PARTS**2
    square = np.clip((assumed + (light_runs + 1) * varied) / launches, least, assumed)
    shown = varied > launches / _LOG_PARTS**2
    return np.asarray(np.where(shown, square, assumed)[cells.of_class])


def _walked(blocks: np.ndarray, spreads: Spreads) -> np.ndarray:
    """The variance of the walk from one block to so many."""
    doublings = np.log2(np.maximum(blocks, 1))
    filling = np.minimum(doublings, math.log2(_FULL_BLOCKS))
    variance: np.ndarray = spreads.filling**2 * filling + spreads.size**2 * (doublings - filling)
    return variance


def _places(keys: list[np.ndarray], cells: int) -> np.ndarray:
    """The cell of each key behind the first ``cells`` ones, which are the cells' own."""
    number = _numbered(keys)
    cell_of = np.empty(int(number.max()) + 1, np.int64)
    cell_of[number[:cells]] = np.arange(cells)
    places: np.ndarray = cell_of[number[cells:]]
    return places


def _numbered(keys: list[np.ndarray]) -> np.ndarray:
    """A number for each distinct combination of keys, shape (n,)."""
    number = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        values = np.unique(key, return_inverse=True)[1]
        number = np.unique(number * (int(values.max(initial=0)) + 1) + values, return_inverse=True)[1]
    return number


def _total_square(cells: _Cells, spreads: Spreads, chosen: _Chosen) -> float:
    """Expected square of the relative error of the total."""
    of, share = cells.of_representative, chosen.share
    net = np.bincount(of, share, len(cells.time)) - cells.time
    walked = float((net * _covered(cells.kernel, cells.size, net)).sum())
    variance = (
        spreads.kernel**2 * float(np.square(np.bincount(cells.kernel, net)).sum())
        + max(walked, 0.0)
        + spreads.shape**2 * float(np.square(np.bincount(cells.of_class, net)).sum())
        + float((chosen.own_square * np.square(share - chosen.own)).sum())
    )
    return _MEAN_OF_NORMAL * variance + (float(share.sum()) - 1.0) ** 2


def _class_squares(cells: _Cells, spreads: Spreads, chosen: _Chosen) -> np.ndarray:
    """Expected square of the error of each kernel and size, relative to the whole, shape (c,).

    Groups of a class are taken as independent: their representatives are others.
    """
    of, count, share = cells.of_representative, len(cells.time), chosen.share
    groups = int(cells.group.max()) + 1
    of_group = np.bincount(cells.group, cells.time, groups)
    part = cells.time / np.where(of_group > 0, of_group, 1.0)[cells.group]
    group = cells.group[of]
    stands_for = np.bincount(group, share, groups)[cells.group]
    kernels = _factor_squares(cells, cells.kernel, part, share)
    shapes = _factor_squares(cells, cells.of_class, part, share) if spreads.shape else np.zeros(count)
    # The same along the walk of sizes.
    pairs = _numbered([cells.group, cells.kernel])
    size = np.concatenate([cells.size, cells.size[of]])
    walk = np.concatenate([pairs, pairs[of]])
    covered = _covered(walk, size, np.concatenate([np.zeros(count), share]))
    of_walks = np.bincount(group, share * covered[count:], groups)[cells.group]
    own_walk = np.square(cells.time) * cells.size
    sizes = np.square(part) * of_walks - 2 * part * covered[:count] * cells.time + own_walk
    square = chosen.own_square
    launches = (
        np.square(part) * np.bincount(group, square * np.square(share), groups)[cells.group]
        - 2 * part * np.bincount(of, square * share * chosen.own, count)
        + np.bincount(of, square * np.square(chosen.own), count)
    )
    variance = (
        spreads.kernel**2 * kernels
        + np.maximum(sizes, 0.0)
        + spreads.shape**2 * shapes
        + np.maximum(launches, 0.0)
    )
    bias = np.bincount(cells.of_class, part * stands_for - cells.time)
    squares: np.ndarray = _MEAN_OF_NORMAL * np.bincount(cells.of_class, variance) + np.square(bias)
    return squares


def _factor_squares(cells: _Cells, key: np.ndarray, part: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Expected square of each cell's error by a factor of its ``key``, shape (m,), whose variance is 1."""
    of = cells.of_representative
    groups = int(cells.group.max()) + 1
    # Of each group and key: what its representatives stand for.
    pairs = _numbered([cells.group, key])
    by_pair = np.bincount(pairs[of], share, int(pairs.max()) + 1)
    group_of_pair = np.empty(len(by_pair), np.int64)
    group_of_pair[pairs] = cells.group
    of_keys = np.bincount(group_of_pair, np.square(by_pair), groups)[cells.group]
    squares = np.square(part) * of_keys - 2 * part * by_pair[pairs] * cells.time + np.square(cells.time)
    nonnegative: np.ndarray = np.maximum(squares, 0.0)
    return nonnegative


def _covered(walk: np.ndarray, size: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """Sum over the items of the same walk of amount x min(size, own size), shape (n,)."""
    order = np.lexsort((size, walk))
    walks, at, added = walk[order], size[order], amount[order]
    begins = np.r_[True, walks[1:] != walks[:-1]] if len(walks) else np.zeros(0, bool)
    first = np.flatnonzero(begins)
    of = np.cumsum(begins) - 1
    below, up_to = np.cumsum(added * at), np.cumsum(added)
    before = below[first] - (added * at)[first]
    last = np.r_[first[1:], len(walks)] - 1 if len(first) else first
    smaller = below - before[of]
    larger = up_to[last][of] - up_to
    sums = np.empty(len(walks))
    sums[order] = smaller + at * larger
    return sums
