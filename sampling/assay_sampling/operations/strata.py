"""Strata of operations: the kinds of work that a selection method may treat as one kernel.

Operators never share a stratum. Within an operator each input shape that repeats at least eight times is a
stratum of its own. Rarer shapes share strata by work (product of the dimensions, a power of four wide) and
light time (a power of two wide), each of at least eight calls where there are as many: with one call for each
shape a workload of 50,000 distinct calls would have no speedup.

Source: docs/concepts.md, "Operations".
"""

from __future__ import annotations

import re

import numpy as np

from assay_sampling.operations.collapsing import Operations
from assay_sampling.operations.identity import Operation

LEAST_REPEATS = 8
_NUMBER = re.compile(r"-?\d+")
_WORK_WIDTH, _TIME_WIDTH = 2.0, 1.0  # in powers of two


def stratified(operations: Operations) -> Operations:
    """The operations with the name of their stratum as kernel name."""
    return operations.named(stratum_names(operations))


def stratum_names(operations: Operations) -> list[str]:
    """The stratum of each identity; threads do not tell strata apart."""
    identities = operations.identities
    shapes_of: dict[tuple[str, str, str], int] = {}
    shape = np.array(
        [shapes_of.setdefault((one.kind, one.name, one.shapes), len(shapes_of)) for one in identities],
        np.int64,
    )
    calls = np.bincount(shape[operations.identity], minlength=len(shapes_of))
    kinds = list(shapes_of)
    names = _labels(kinds)
    rare = np.flatnonzero(calls < LEAST_REPEATS)
    time = _mean_time(operations, shape, len(kinds))
    by_operator: dict[tuple[str, str], list[int]] = {}
    for index in rare.tolist():
        kind, name, shapes = kinds[index]
        if shapes:
            by_operator.setdefault((kind, name), []).append(index)
    for (_, name), members in by_operator.items():
        rows = np.array(members)
        work = np.array([_work(kinds[index][2]) for index in members])
        for index, text in zip(members, _bins(name, work, time[rows], calls[rows]), strict=True):
            names[index] = text or names[index]
    return [names[index] for index in shape.tolist()]


def _labels(kinds: list[tuple[str, str, str]]) -> list[str]:
    """The label of each kind of call; a range, say, and a kernel of one name are told apart."""
    kind_by_label: dict[str, tuple[str, str, str]] = {}
    labels = []
    for kind, name, shapes in kinds:
        label = Operation("operator", name, shapes).label()
        if kind_by_label.setdefault(label, (kind, name, shapes)) != (kind, name, shapes):
            label = f"{label} ({kind})"
        labels.append(label)
    return labels


def _mean_time(operations: Operations, shape: np.ndarray, count: int) -> np.ndarray:
    """Mean light time of each kind of call, shape (count,); 1 where it is unknown."""
    times = operations.launches.column("duration_ns").astype(np.float64)
    of_call = shape[operations.identity]
    mean = np.bincount(of_call, np.maximum(times, 1.0), count) / np.maximum(
        np.bincount(of_call, None, count), 1
    )
    return np.maximum(mean, 1.0)


def _work(shapes: str) -> float:
    """The product of all positive dimensions, as a power of two."""
    digits = (text.lstrip("0") for text in _NUMBER.findall(shapes) if not text.startswith("-"))
    return float(sum(_logarithm(text) for text in digits if text))


def _logarithm(digits: str) -> float:
    """The power of two of a number, which may be too large for a float."""
    most = 300
    return float(np.log2(float(digits[:most]))) + max(len(digits) - most, 0) * float(np.log2(10))


def _bins(name: str, work: np.ndarray, time: np.ndarray, calls: np.ndarray) -> list[str]:
    """The name of each kind of call's bin, "" for one alone; a bin with too few calls joins the next."""
    work_bin = np.floor(work / _WORK_WIDTH).astype(np.int64)
    time_bin = np.floor(np.log2(time) / _TIME_WIDTH).astype(np.int64)
    order = np.lexsort((time, time_bin, work_bin))
    names = [""] * len(order)
    first, repeats = 0, 0
    edges: list[tuple[int, int]] = []
    for place, row in enumerate(order.tolist()):
        here = (work_bin[row], time_bin[row])
        before = (work_bin[order[place - 1]], time_bin[order[place - 1]]) if place else here
        if here != before and repeats >= LEAST_REPEATS:
            edges.append((first, place))
            first, repeats = place, 0
        repeats += int(calls[row])
    if repeats < LEAST_REPEATS and edges:
        first, _ = edges.pop()
    edges.append((first, len(order)))
    for start, stop in edges:
        rows = order[start:stop]
        if len(rows) == 1:
            continue
        text = (
            f"{name}, {len(rows):,} shapes of 2^{work[rows].min():.0f} to 2^{work[rows].max():.0f}, "
            f"{time[rows].min() / 1e3:.3g} to {time[rows].max() / 1e3:.3g} us"
        )
        for row in rows.tolist():
            names[row] = text
    return names
