"""What the pictures of a selection show: the kernels in each group, and a quantity launch by launch.

However many launches there are, what comes out is small: kernels are summed by group, and launches are put
into bins of which the least, the mean and the largest value are kept, so that no extreme is lost.
Columns only, no loop over launches; at most 60 bytes a launch while it works.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assay_sampling.evaluation import COST_UNITS
from assay_sampling.launches import Launches
from assay_sampling.selection import Selection

MOST_BINS = 400
MOST_MARKS = 400
MOST_GROUPS = 40
KERNELS_NAMED = 7
_INSTRUCTIONS = "instructions"


def drawn(selection: Selection, launches: Launches) -> dict[str, Any]:
    """The document of a selection's pictures; ``launches`` are those that it was made on.

    ``composition`` is None where the groups of launches are not known.
    """
    quantity = selection.evaluation.quantity
    cost = launches.column(quantity).astype(np.float64)
    return {
        "level": launches.metadata.level,
        "condition": launches.metadata.condition.to_dict(),
        "synthetic": launches.metadata.synthetic,
        "cost": {"quantity": quantity, "unit": COST_UNITS[quantity]},
        "composition": _composition(selection, launches, cost),
        "by_launch": _by_launch(selection, launches, quantity, cost),
    }


def _composition(selection: Selection, launches: Launches, cost: np.ndarray) -> dict[str, Any] | None:
    """Of each group, by kernel: launches and cost. Groups and kernels that cost least stand together."""
    labels = _labels(selection, len(launches))
    if labels is None:
        return None
    paid_by_group = np.bincount(labels, cost, minlength=len(selection.group_launches))
    dearest = np.argsort(-paid_by_group, kind="stable")
    groups = np.sort(dearest[:MOST_GROUPS])
    place = np.full(len(paid_by_group), len(groups))  # all others stand together behind the last
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
    return {
        "kernels": [launches.names[kernels[i]] for i in named.tolist()],
        "other_kernels": len(others),
        "groups": [
            {
                "id": int(groups[i]) if i < len(groups) else None,
                "launches": int(counted[i].sum()),
                "launches_percent": _short(launch_share[i]),
                "cost_percent": _short(cost_share[i]),
            }
            for i in range(len(groups) + 1)
            if counted[i].any()
        ],
        "groups_together": len(paid_by_group) - len(groups),
    }


def _labels(selection: Selection, launches: int) -> np.ndarray | None:
    if selection.labels is None and len(selection.group_launches) == 1:
        return np.zeros(launches, np.int64)
    if selection.labels is None or len(selection.labels) != launches:
        return None
    return np.asarray(selection.labels, np.int64)


def _by_launch(
    selection: Selection, launches: Launches, quantity: str, cost: np.ndarray
) -> dict[str, Any] | None:
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
    return {
        "quantity": name,
        "unit": unit,
        "launches": len(values),
        "bin_starts": starts.tolist(),
        "least": _short(np.fmin.reduceat(values, starts)),
        "mean": _short(mean),
        "most": _short(np.fmax.reduceat(values, starts)),
        "process_starts": (np.flatnonzero(np.diff(process)) + 1)[:MOST_BINS].tolist(),
        "representatives": len(rows),
        "marks": {
            "row": rows[::step].tolist(),
            "group": selection.representatives.group[order][::step].tolist(),
            "value": _short(values[rows[::step]]),
        },
    }


def _short(values: np.ndarray) -> list[float | None]:
    """Six digits are more than a picture shows; a value that is not known is None."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
