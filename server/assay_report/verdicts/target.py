"""The campaign's target, and which errors are held against it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from assay_report.model.common import Judged
from assay_report.model.report import Report
from assay_report.model.scores import Row
from assay_sampling.scoring.fair import TARGET_ERROR_PERCENT

_KEY = "target_error_percent"


def target_of(rows: Iterable[Row]) -> float:
    """The least target that the campaign gave a method, in percent; the usual one if it gave none."""
    given = (row.asked_parameters.get(_KEY) for row in rows)
    targets = [
        float(value) for value in given if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return min(targets, default=TARGET_ERROR_PERCENT)


def error_of(entry: Judged) -> float | None:
    """Its error in percent; None without a finite one."""
    value = getattr(entry, "error_percent", None)
    return float(value) if entry.status == "ok" and value is not None and math.isfinite(value) else None


def hold_against(report: Report, target_percent: float) -> None:
    """Mark each row, summary entry and prediction as within the target or above it."""
    for entry in _judged_entries(report):
        error = error_of(entry)
        entry.within_target = None if error is None else error <= target_percent


def _judged_entries(report: Report) -> Sequence[Judged]:
    predictions = [each for entry in report.sm_share for each in entry.predictions]
    return [*report.rows, *report.summary, *predictions]
