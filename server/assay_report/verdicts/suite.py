"""A suite in one line: all workloads of a GPU, condition and method, as the last rows of PKA's Table 4."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from assay_report.model.scores import Row
from assay_report.model.verdicts import SuiteEntry
from assay_report.texts import condition_text
from assay_report.verdicts.errors import PARTS, error_of


@dataclass(frozen=True)
class Named:
    """A row with the name of its method among all rows of the report."""

    row: Row
    method: str


def suite_entries(rows: Sequence[Named]) -> list[SuiteEntry]:
    """One entry for each kind of GPU, condition and method, in the order of the rows."""
    suites: dict[tuple[str, str, str], list[Row]] = {}
    for each in rows:
        key = (each.row.device, condition_text(each.row.condition), each.method)
        suites.setdefault(key, []).append(each.row)
    return [_entry(*key, members) for key, members in suites.items()]


def interval_held(row: Row) -> bool | None:
    """Whether the interval held the true total; None without an interval or a total."""
    interval, cost = row.interval, row.cost
    if interval is None or cost is None or cost.total is None:
        return None
    return interval.low <= cost.total <= interval.high


def _entry(device: str, condition: str, method: str, rows: Sequence[Row]) -> SuiteEntry:
    scored = [(row, error) for row in rows if (error := error_of(row)) is not None]
    worst, worst_error = max(scored, key=lambda each: each[1], default=(None, None))
    held = [is_held for row, _ in scored if (is_held := interval_held(row)) is not None]
    part, points = _largest_mean_part([row for row, _ in scored])
    selected_on = dict.fromkeys(row.selected_on.device for row in rows if row.selected_on is not None)
    return SuiteEntry(
        device=device,
        condition=condition,
        method=method,
        selected_on=list(selected_on),
        workloads=len(scored),
        without_number=len(rows) - len(scored),
        within_target=sum(row.within_target is True for row, _ in scored),
        mean_error_percent=statistics.fmean(error for _, error in scored) if scored else None,
        geometric_mean_speedup=_geometric_mean([row.speedup for row, _ in scored]),
        worst_workload=worst and worst.workload,
        worst_error_percent=worst_error,
        intervals=len(held),
        intervals_held=sum(held),
        largest_part=part,
        largest_part_points=points,
    )


def _geometric_mean(values: Sequence[float | None]) -> float | None:
    """None where a value is missing or not positive: a mean of the others would flatter."""
    factors = [value for value in values if value is not None and value > 0 and math.isfinite(value)]
    return statistics.geometric_mean(factors) if factors and len(factors) == len(values) else None


def _largest_mean_part(rows: Sequence[Row]) -> tuple[str | None, float | None]:
    """The part with the largest mean of absolute points, over the rows that were decomposed."""
    parts = [row.decomposition for row in rows if row.decomposition is not None]
    if not parts:
        return None, None
    means = {
        name: statistics.fmean(abs(getattr(each, name) or 0.0) for each in parts)
        for name in PARTS
        if any(getattr(each, name) is not None for each in parts)
    }
    return max(means.items(), key=lambda mean: mean[1], default=(None, None))
