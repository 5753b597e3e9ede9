"""The data behind figures of launches: the kernels in each group of a selection, and launches in their order.

The result is small for any number of launches: kernels are summed by group, and bins of launches keep their
least, mean and largest value, so that no extreme is lost. Columns only, no loop over launches; at most
60 bytes per launch while it works.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from assay_report.model.drawn import ByLaunch, Composition, Drawn, GroupShares, Lanes, Marks, PicturedCost
from assay_sampling.counters.definitions import COST_UNITS, default_cost_counter
from assay_sampling.documents.common import ConditionEntry
from assay_sampling.launches.in_memory import Launches
from assay_sampling.scoring.placement import Placed
from assay_sampling.scoring.selection import Selection

MOST_BINS = 400
MOST_MARKS = 400
MOST_GROUPS = 40
KERNELS_NAMED = 7
GROUPS_IN_LANES = 7
# Bins times lanes: what a figure can show, however many launches there are.
MOST_LANE_VALUES = 1500
_INSTRUCTIONS = "instructions"


@dataclass(frozen=True)
class Grouping:
    """What a figure shows of launches: their cost, their groups, and those that stand for them.

    ``groups``: how many there are. ``labels``: the group of every launch, shape (n,), or None if it is not
    known. ``row`` and ``group``, shape (r,): the representatives.
    """

    quantity: str
    groups: int
    labels: np.ndarray | None
    row: np.ndarray
    group: np.ndarray

    @classmethod
    def of(cls, selection: Selection) -> Grouping:
        """The groups of a selection, on the launches that it was made on."""
        chosen = selection.representatives
        groups = len(selection.group_launches)
        return cls(selection.evaluation.quantity, groups, selection.labels, chosen.row, chosen.group)

    @classmethod
    def placed(cls, placed: Placed, groups: int) -> Grouping:
        """The groups of a saved selection, on a recording that holds its launches."""
        return cls(placed.cost.quantity, groups, placed.labels, placed.rows, placed.groups)

    @classmethod
    def by_kernel(cls, launches: Launches) -> Grouping:
        """The kernels of launches that nothing was selected of, in the order of their first launches."""
        encoded = launches.table["kernel_id"].combine_chunks().dictionary_encode()
        nothing = np.empty(0, np.int64)
        quantity = default_cost_counter(launches.table) or "duration_ns"
        return cls(quantity, len(encoded.dictionary), encoded.indices.to_numpy(), nothing, nothing)


def drawn(selection: Selection, launches: Launches) -> Drawn:
    """The data of a selection's figures; ``launches`` are those that it was made on.

    ``composition`` and ``lanes`` are None if the groups of launches are not known.
    """
    return grouped(Grouping.of(selection), launches)


def grouped(grouping: Grouping, launches: Launches, *, with_composition: bool = True) -> Drawn:
    """The data of figures of ``launches`` in groups; a missing value of the cost is left out."""
    quantity = grouping.quantity
    entry = Drawn(
        level=launches.metadata.level,
        condition=ConditionEntry.of(launches.metadata.condition),
        synthetic=launches.metadata.synthetic,
        cost=PicturedCost(quantity=quantity, unit=COST_UNITS[quantity]),
    )
    if launches.is_on_disk:  # beyond memory, so not drawn
        return entry
    cost = launches.table[quantity].combine_chunks().cast(pa.float64()).to_numpy(zero_copy_only=False)
    entry.by_launch = _by_launch(grouping, launches, cost)
    labels = _labels(grouping, len(launches))
    if labels is not None:
        entry.lanes = _lanes(grouping.groups, launches, cost, labels)
        if with_composition:
            entry.composition = _composition(grouping.groups, launches, cost, labels)
    return entry


def _composition(count: int, launches: Launches, cost: np.ndarray, labels: np.ndarray) -> Composition:
    """Each group's launches and cost by kernel. The groups and kernels that cost least are joined."""
    paid_by_group = np.bincount(labels, cost, minlength=count)
    dearest = np.argsort(-paid_by_group, kind="stable")
    groups = np.sort(dearest[:MOST_GROUPS])
    place = np.full(len(paid_by_group), len(groups))  # all others share the place behind the last
    place[groups] = np.arange(len(groups))
    encoded = launches.table["kernel_id"].combine_chunks().dictionary_encode()
    kernels = encoded.dictionary.to_pylist()
    pair = place[labels] * len(kernels) + encoded.indices.to_numpy()
    counted, paid = (
        np.bincount(pair, weights, minlength=(len(groups) + 1) * len(kernels)).reshape(-1, len(kernels))
        for weights in (None, cost)
    )
    by_cost = np.argsort(-paid.sum(axis=0), kind="stable")
    named, others = by_cost[:KERNELS_NAMED], by_cost[KERNELS_NAMED:]
    launch_share, cost_share = (
        np.column_stack([each[:, named], each[:, others].sum(axis=1)]) * (100.0 / each.sum())
        for each in (counted, paid)
    )
    return Composition(
        kernels=[launches.names[kernels[i]] for i in named.tolist()],
        other_kernels=len(others),
        groups=[
            GroupShares(
                id=int(groups[i]) if i < len(groups) else None,
                launches=int(counted[i].sum()),
                launches_percent=_short(launch_share[i]),
                cost_percent=_short(cost_share[i]),
            )
            for i in range(len(groups) + 1)
            if counted[i].any()
        ],
        groups_together=len(paid_by_group) - len(groups),
    )


def _labels(grouping: Grouping, launches: int) -> np.ndarray | None:
    if grouping.labels is None and grouping.groups == 1:
        return np.zeros(launches, np.int64)
    if grouping.labels is None or len(grouping.labels) != launches:
        return None
    return np.asarray(grouping.labels, np.int64)


def _lanes(count: int, launches: Launches, cost: np.ndarray, labels: np.ndarray) -> Lanes | None:
    """Each bin's cost by group. The groups that cost least are joined."""
    known = np.where(np.isfinite(cost), cost, 0.0)
    paid_by_group = np.bincount(labels, known, minlength=count)
    dearest = np.argsort(-paid_by_group, kind="stable")
    lane_groups = dearest[:GROUPS_IN_LANES] if count > GROUPS_IN_LANES + 1 else dearest
    lanes = len(lane_groups) + (len(lane_groups) < count)
    place = np.full(count, lanes - 1, np.int64)  # all others share the last place
    place[lane_groups] = np.arange(len(lane_groups))
    of_launch = place[labels]
    bins = min(len(cost), MOST_LANE_VALUES // lanes)
    starts = np.linspace(0, len(cost), bins, endpoint=False).astype(np.int64)
    bin_of = np.repeat(np.arange(bins), np.diff(np.append(starts, len(cost))))
    paid = np.bincount(bin_of * lanes + of_launch, known, minlength=bins * lanes).reshape(bins, lanes)
    totals = paid.sum(axis=1)
    if not totals.any():
        return None
    share = np.full(paid.shape, np.nan)
    np.divide(100.0 * paid, totals[:, None], out=share, where=totals[:, None] > 0)
    encoded = launches.table["kernel_id"].combine_chunks().dictionary_encode()
    kernels = encoded.dictionary.to_pylist()
    by_kernel = np.bincount(
        of_launch * len(kernels) + encoded.indices.to_numpy(), known, minlength=lanes * len(kernels)
    ).reshape(lanes, len(kernels))
    return Lanes(
        groups=[*map(int, lane_groups.tolist()), *([None] if lanes > len(lane_groups) else [])],
        kernels=[launches.names[kernels[i]] for i in by_kernel.argmax(axis=1).tolist()],
        bin_starts=starts.tolist(),
        cost_percent=[[_rounded(value) for value in lane] for lane in share.T.tolist()],
    )


def _rounded(percent: float) -> float | None:
    """Two digits after the point: a lane is some twenty px high."""
    return round(percent, 2) if np.isfinite(percent) else None


def _by_launch(grouping: Grouping, launches: Launches, cost: np.ndarray) -> ByLaunch | None:
    """IPC where instructions and cycles were counted, else the cost; None where no launch has a value."""
    quantity = grouping.quantity
    name, unit, values = quantity, COST_UNITS[quantity], cost
    if quantity.startswith("cycles") and _INSTRUCTIONS in launches.counters:
        name, unit = "IPC", f"{_INSTRUCTIONS} / {quantity}"
        values = np.full(len(cost), np.nan)
        np.divide(launches.column(_INSTRUCTIONS), cost, out=values, where=cost > 0)
    if not np.isfinite(values).any():
        return None
    bins = min(len(values), MOST_BINS)
    starts = np.linspace(0, len(values), bins, endpoint=False).astype(np.int64)
    known = np.isfinite(values)
    counts = np.add.reduceat(known.astype(np.int64), starts)
    totals = np.add.reduceat(np.where(known, values, 0.0), starts)
    mean = np.full(bins, np.nan)
    np.divide(totals, counts, out=mean, where=counts > 0)
    order = np.argsort(grouping.row, kind="stable")
    rows = grouping.row[order]
    step = max(1, -(-len(rows) // MOST_MARKS))
    process = launches.column("process")
    return ByLaunch(
        quantity=name,
        unit=unit,
        launches=len(values),
        bin_starts=starts.tolist(),
        least=_short(np.fmin.reduceat(values, starts)),
        mean=_short(mean),
        most=_short(np.fmax.reduceat(values, starts)),
        process_starts=(np.flatnonzero(np.diff(process)) + 1)[:MOST_BINS].tolist(),
        representatives=len(rows),
        marks=Marks(
            row=rows[::step].tolist(),
            group=grouping.group[order][::step].tolist(),
            value=_short(values[rows[::step]]),
        ),
    )


def _short(values: np.ndarray) -> list[float | None]:
    """Six digits, more than a figure shows; None for an unknown value."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
