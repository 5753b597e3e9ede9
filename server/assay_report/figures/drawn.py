"""The data behind a selection's figures: the kernels in each group, and launches in their order.

The result is small for any number of launches: kernels are summed by group, and bins of launches keep their
least, mean and largest value, so that no extreme is lost. Columns only, no loop over launches; at most
60 bytes per launch while it works.
"""

from __future__ import annotations

import numpy as np

from assay_report.model.drawn import ByLaunch, Composition, Drawn, GroupShares, Lanes, Marks, PicturedCost
from assay_sampling.counters.definitions import COST_UNITS
from assay_sampling.documents.common import ConditionEntry
from assay_sampling.launches.in_memory import Launches
from assay_sampling.scoring.selection import Selection

MOST_BINS = 400
MOST_MARKS = 400
MOST_GROUPS = 40
KERNELS_NAMED = 7
GROUPS_IN_LANES = 7
# Bins times lanes: what a figure can show, however many launches there are.
MOST_LANE_VALUES = 1500
_INSTRUCTIONS = "instructions"


def drawn(selection: Selection, launches: Launches) -> Drawn:
    """The data of a selection's figures; ``launches`` are those that it was made on.

    ``composition`` and ``lanes`` are None if the groups of launches are not known.
    """
    quantity = selection.evaluation.quantity
    cost = launches.column(quantity).astype(np.float64)
    labels = _labels(selection, len(launches))
    return Drawn(
        level=launches.metadata.level,
        condition=ConditionEntry.of(launches.metadata.condition),
        synthetic=launches.metadata.synthetic,
        cost=PicturedCost(quantity=quantity, unit=COST_UNITS[quantity]),
        composition=None if labels is None else _composition(selection, launches, cost, labels),
        by_launch=_by_launch(selection, launches, quantity, cost),
        lanes=None if labels is None else _lanes(selection, launches, cost, labels),
    )


def _composition(
    selection: Selection, launches: Launches, cost: np.ndarray, labels: np.ndarray
) -> Composition:
    """Each group's launches and cost by kernel. The groups and kernels that cost least are joined."""
    paid_by_group = np.bincount(labels, cost, minlength=len(selection.group_launches))
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


def _labels(selection: Selection, launches: int) -> np.ndarray | None:
    if selection.labels is None and len(selection.group_launches) == 1:
        return np.zeros(launches, np.int64)
    if selection.labels is None or len(selection.labels) != launches:
        return None
    return np.asarray(selection.labels, np.int64)


def _lanes(selection: Selection, launches: Launches, cost: np.ndarray, labels: np.ndarray) -> Lanes | None:
    """Each bin's cost by group. The groups that cost least are joined."""
    known = np.where(np.isfinite(cost), cost, 0.0)
    count = len(selection.group_launches)
    paid_by_group = np.bincount(labels, known, minlength=count)
    dearest = np.argsort(-paid_by_group, kind="stable")
    kept = dearest[:GROUPS_IN_LANES] if count > GROUPS_IN_LANES + 1 else dearest
    lanes = len(kept) + (len(kept) < count)
    place = np.full(count, lanes - 1, np.int64)  # all others share the last place
    place[kept] = np.arange(len(kept))
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
        groups=[*map(int, kept.tolist()), *([None] if lanes > len(kept) else [])],
        kernels=[launches.names[kernels[i]] for i in by_kernel.argmax(axis=1).tolist()],
        bin_starts=starts.tolist(),
        cost_percent=[[_rounded(value) for value in lane] for lane in share.T.tolist()],
    )


def _rounded(percent: float) -> float | None:
    """Two digits after the point: a lane is some twenty px high."""
    return round(percent, 2) if np.isfinite(percent) else None


def _by_launch(selection: Selection, launches: Launches, quantity: str, cost: np.ndarray) -> ByLaunch | None:
    """IPC where instructions and cycles were counted, else the cost; None where no launch has a value."""
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
    order = np.argsort(selection.representatives.row, kind="stable")
    rows = selection.representatives.row[order]
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
            group=selection.representatives.group[order][::step].tolist(),
            value=_short(values[rows[::step]]),
        ),
    )


def _short(values: np.ndarray) -> list[float | None]:
    """Six digits, more than a figure shows; None for an unknown value."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
