"""Groups that never mix kernels, divided by size and time as far as their group error asks for.

A *cell* is the launches of one kernel and size (threads of the grid). A size that a kernel runs at least
eight times is a group, together with those nearly equal in size and in time: on another GPU sizes scale
unlike even where they take equal time here, which no error at home can tell. Rarer sizes share groups by
size and time, and launches of one size whose times differ widely are divided by time, in steps

    size x 4 and time x 2,   size x 2 and time x 1.41,   1.41 and 1.19,   1.19 and 1.09   (at most)

of which the coarsest is taken whose held-out group error is below the target
(:mod:`assay_sampling.methods.groups.held_out_groups`), else the one of least error. Kernels that together
have less than 1 % of the time share one group. Where a launch of each group would take more than half of the
time, groups are put together (:mod:`assay_sampling.methods.groups.saving`).

Source: ours; docs/methods/pks.md, "Groups".
Memory: at most 60 bytes a launch and 200 bytes a cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from assay_sampling.engines.blockwise import counts_by, places_in, relabelled, sums_by
from assay_sampling.engines.columns import blocks, in_place_of
from assay_sampling.launches.in_memory import Launches
from assay_sampling.methods.groups.held_out_groups import HeldOut
from assay_sampling.methods.groups.saving import (
    SMALL_KERNEL_PERCENT,
    GroupTimes,
    kernels_to_share,
    within_kernels,
)
from assay_sampling.methods.kernel_values import KernelValues, kernel_values
from assay_sampling.methods.thread_counts import threads
from assay_sampling.notes.registry import Note, make_note

Mixing = Literal["never", "allowed"]

LEAST_REPEATS = 8
SHARED_TIME_PERCENT = 1.0
# Most of the size and of the time within a group, each a power of two.
_STEPS = ((math.inf, math.inf), (2.0, 1.0), (1.0, 0.5), (0.5, 0.25), (0.25, 0.125))
_NEARLY_EQUAL = _STEPS[-1]
# Sizes that are a power of two belong to the step that they begin.
_ROUNDING = 1e-9
# Times in powers of two that are told apart, in any unit, and the most steps of _STEPS among them.
_TIME_POWERS = (-30, 90)
_TIME_BINS = int((_TIME_POWERS[1] - _TIME_POWERS[0]) / _NEARLY_EQUAL[1]) + 1


@dataclass(frozen=True)
class SharedGroup:
    """The group of kernels that together have less than 1 % of the time, or each of them where nothing
    repeats."""

    group: int
    kernels: int
    launches: int
    time_percent: float

    def note(self) -> Note:
        return make_note("kernels_share_group", kernels=self.kernels, time_percent=self.time_percent)


@dataclass(frozen=True)
class TriedSplit:
    """A division that was judged: how far sizes and times of one group lie apart at most (as ratios, None:
    any), groups of the counters within cells, and the held-out group error."""

    size_ratio: float | None
    time_ratio: float | None
    counter_groups: int
    groups: int
    held_out_group_error_percent: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "size_ratio": self.size_ratio,
            "time_ratio": self.time_ratio,
            "counter_groups": self.counter_groups,
            "groups": self.groups,
            "held_out_group_error_percent": self.held_out_group_error_percent,
        }


@dataclass(frozen=True)
class KernelGroups:
    """Groups of n launches, none of them of two kernels but ``shared``.

    ``put_together`` groups of least time joined others of their kernel, so that simulating saves something.
    ``labels``, shape (n,), are numbered in the order of their first launch; ``cell``, shape (n,), is the
    kernel and size of every launch; ``tried`` are the divisions that were judged, the chosen one last.
    """

    labels: np.ndarray
    cell: np.ndarray
    tried: tuple[TriedSplit, ...]
    shared: SharedGroup | None
    put_together: int = 0

    @property
    def chosen(self) -> TriedSplit:
        return self.tried[-1]

    def facts(self) -> dict[str, Any]:
        """The part ``grouping`` of a selection's document."""
        shared = self.shared
        return {
            "mixing": "never",
            **self.chosen.to_dict(),
            "put_together": self.put_together,
            "shared": None if shared is None else {
                "group": shared.group,
                "kernels": shared.kernels,
                "launches": shared.launches,
                "time_percent": shared.time_percent,
            },
            "tried": [split.to_dict() for split in self.tried[:-1]],
        }  # fmt: skip

    def notes(self) -> tuple[Note, ...]:
        joined = self.put_together
        notes = (make_note("groups_put_together", groups=joined, left=self.chosen.groups),) if joined else ()
        return notes if self.shared is None else (*notes, self.shared.note())


def kernel_groups(
    launches: Launches,
    cost: np.ndarray,
    *,
    target_error_percent: float,
    seed: int,
    window_rows: np.ndarray | None = None,
) -> KernelGroups:
    """Divide launches into groups of one kernel each.

    Args:
        launches: n launches; their kernels and sizes divide them.
        cost: their time, shape (n,), finite and at least 0.
        target_error_percent: held-out group error below which the fewest groups are taken.
        seed: of the halves that are held out.
        window_rows: of the launches that have counters, where only some have: kernels among them do not
            share a group, and sizes that are not among them are not put together with sizes that are.
    """
    cells = _Cells.of(launches, cost, window_rows)
    judged = HeldOut.of(cost, cells.atoms.atom, seed)
    cell, of_cost = cells.atoms.atom[judged.rows], judged.cost
    tried: list[TriedSplit] = []
    for index, widths in enumerate(_STEPS):
        code = cells.codes(index)(cell, of_cost)
        tried.append(_tried(widths, len(np.unique(code)), judged.group_error_percent(code)))
        if tried[-1].held_out_group_error_percent < target_error_percent:
            break
    best = min(range(len(tried)), key=lambda index: tried[index].held_out_group_error_percent)
    if tried[-1].held_out_group_error_percent < target_error_percent:
        best = len(tried) - 1
    labels = numbered(cells.atoms.atom, cost, cells.codes(best))
    joined = _joined(cells, labels, cost)
    labels = joined.labels
    chosen = tried.pop(best)
    final = replace(chosen, groups=int(counts_by(labels).size))
    if joined.put_together:
        error = judged.group_error_percent(labels[judged.rows])
        final = replace(final, held_out_group_error_percent=error)
    return KernelGroups(labels, cells.atoms.atom, (*tried, final), joined.shared, joined.put_together)


def numbered(
    one: np.ndarray, other: np.ndarray, code: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Groups of n launches by ``code`` (whole numbers, shape (b,)) of two columns of shape (n,), numbered in
    the order of their first launch: shape (n,)."""
    used = np.empty(0, np.int64)
    for block in blocks(len(one), one, other):
        used = np.union1d(used, code(one[block], other[block]))
    places = in_place_of(one, np.int64, lambda block: places_in(used, code(one[block], other[block])))
    first = np.empty(len(used), np.int64)
    for block in reversed(list(blocks(len(places), places))):
        part = places[block]
        first[part[::-1]] = np.arange(block.start + len(part) - 1, block.start - 1, -1)
    rank = np.empty(len(used), np.int64)
    rank[np.argsort(first)] = np.arange(len(used))
    return relabelled(places, rank)


def _tried(widths: tuple[float, float], groups: int, error: float) -> TriedSplit:
    size, time = (None if math.isinf(width) else 2.0**width for width in widths)
    return TriedSplit(size, time, 1, groups, error)


@dataclass(frozen=True)
class _Cells:
    """Kernels and sizes, c of them: ``kernel``, ``mean`` time, coefficient of variation ``cov``, and whether
    the window has ``met`` them, shape (c,); the window has met the kernels ``kernel_met``, shape (k,)."""

    atoms: KernelValues
    kernel: np.ndarray
    mean: np.ndarray
    cov: np.ndarray
    met: np.ndarray
    kernel_met: np.ndarray

    @classmethod
    def of(cls, launches: Launches, cost: np.ndarray, window_rows: np.ndarray | None) -> _Cells:
        atoms = kernel_values(launches.array("kernel_id"), threads(launches))
        count = len(atoms.value)
        kernel = np.repeat(np.arange(atoms.kernels), np.diff(atoms.kernel_start))
        mean = sums_by(atoms.atom, cost, count) / atoms.count
        squares = sums_by(atoms.atom, cost, count, lambda value, cell: np.square(value - mean[cell]))
        deviation = np.sqrt(squares / atoms.count)
        cov = np.divide(deviation, mean, out=np.zeros(count), where=mean > 0)
        met = np.zeros(count, bool)
        if window_rows is not None:
            met[atoms.atom[window_rows]] = True
        kernel_met = np.zeros(atoms.kernels, bool)
        kernel_met[kernel[met]] = True
        return cls(atoms, kernel, mean, cov, met, kernel_met)

    def codes(self, step: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """A function of the cells and costs of some launches, shape (b,): a number for each group."""
        size_width, time_width = _STEPS[step]
        often = self.atoms.count >= LEAST_REPEATS
        if step == 0:
            size_width, time_width = math.inf, math.inf
        wide = self.cov > time_width * math.log(2) / 2
        size = np.where(often, _bins(self.atoms.value, _NEARLY_EQUAL[0]), _bins(self.atoms.value, size_width))
        narrow_time = np.where(
            often, _time_bins(self.mean, _NEARLY_EQUAL[1]), _time_bins(self.mean, time_width)
        )
        keys = np.stack([self.kernel, self.met, often, wide, size])
        base = np.unique(keys, axis=1, return_inverse=True)[1].ravel().astype(np.int64) * _TIME_BINS

        def code(cell: np.ndarray, cost: np.ndarray) -> np.ndarray:
            own = _time_bins(np.asarray(cost, np.float64), time_width)
            codes: np.ndarray = base[cell] + np.where(wide[cell], own, narrow_time[cell])
            return codes

        return code


def _bins(values: np.ndarray, width: float) -> np.ndarray:
    if math.isinf(width):
        return np.zeros(len(values), np.int64)
    bins: np.ndarray = np.floor(np.log2(np.maximum(values, 1)) / width + _ROUNDING).astype(np.int64)
    return bins


def _time_bins(time: np.ndarray, width: float) -> np.ndarray:
    if math.isinf(width):
        return np.zeros(len(time), np.int64)
    low, high = _TIME_POWERS
    power = np.log2(np.clip(time, 2.0**low, 2.0**high)) - low
    bins: np.ndarray = np.floor(power / width + _ROUNDING).astype(np.int64)
    return bins


@dataclass(frozen=True)
class _Joined:
    """Groups, shape (n,), after some were put together."""

    labels: np.ndarray
    shared: SharedGroup | None
    put_together: int


def _joined(cells: _Cells, labels: np.ndarray, cost: np.ndarray) -> _Joined:
    """Groups in which kernels of little time share one, of which a launch each saves time, and every group
    has some time if any launch has."""
    times = GroupTimes.of(labels, cost)
    time, groups = times.time, len(times.time)
    if not (time > 0).any():
        return _Joined(labels, None, 0)
    kernel, met = np.empty(groups, np.int64), np.empty(groups, bool)
    for block in blocks(len(labels), labels, cells.atoms.atom):
        kernel[labels[block]] = cells.kernel[cells.atoms.atom[block]]
        met[labels[block]] = cells.met[cells.atoms.atom[block]]
    target = within_kernels(times, kernel * 2 + met)
    put_together = int((target != np.arange(groups)).sum())
    # A group without time has no weight by light time: it joins the longest of its kernel.
    joint = np.bincount(target, time, groups)[target]
    order = np.lexsort((joint, kernel))
    longest = np.empty(cells.atoms.kernels, np.int64)
    longest[kernel[order]] = target[order]
    target = np.where(joint > 0, target, longest[kernel])
    sharing = _sharing(times, target, kernel, cells.kernel_met)
    members = np.flatnonzero(sharing[kernel])
    if len(members):
        target[members] = members[0]
    if (target == np.arange(groups)).all():
        return _Joined(labels, None, 0)
    merged = numbered(labels, labels, lambda some, _: target[some])
    if not len(members):
        return _Joined(merged, None, put_together)
    shared = SharedGroup(
        group=int(merged[int(np.argmax(labels == members[0]))]),
        kernels=int(sharing.sum()),
        launches=int(times.launches[members].sum()),
        time_percent=100.0 * float(time[members].sum() / time.sum()),
    )
    return _Joined(merged, shared, put_together)


def _sharing(times: GroupTimes, target: np.ndarray, kernel: np.ndarray, met: np.ndarray) -> np.ndarray:
    """Which kernels share a group, shape (k,): those of least time, together below 1 %, without those that
    the window has met, and more of less than 1 % each where simulating would save too little; kernels
    without any time always, with the one of least time if they are alone."""
    time = np.bincount(kernel, times.time, len(met))
    order = np.argsort(time, kind="stable")
    order = order[~met[order] | (time[order] == 0)]
    few = int((np.cumsum(time[order]) < SHARED_TIME_PERCENT / 100 * time.sum()).sum())
    small = order[time[order] < SMALL_KERNEL_PERCENT / 100 * time.sum()]
    chosen = np.zeros(len(time), bool)
    chosen[order[: max(few, kernels_to_share(times, target, kernel, small, few))]] = True
    if chosen.any() and not time[chosen].any():
        chosen[np.argmin(np.where(time > 0, time, np.inf))] = True
    return chosen if chosen.sum() > 1 else np.zeros(len(time), bool)
