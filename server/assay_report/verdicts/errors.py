"""Errors of a report's entries: held against the campaign's target, and where most of each comes from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from assay_report.model.common import Judged
from assay_report.model.report import Report
from assay_report.model.scores import Row
from assay_report.model.verdicts import Cause
from assay_sampling.documents.common import ErrorDecomposition
from assay_sampling.scoring.fair import TARGET_ERROR_PERCENT

_KEY = "target_error_percent"
PARTS = tuple(name for name in ErrorDecomposition.model_fields if name != "not_separated_parts")
# A group explains an error if it has at least this share of it, with the same sign.
_MOST = 0.5


def target_of(rows: Iterable[Row]) -> float:
    """The least target that the campaign gave a method, in percent; the usual one if it gave none."""
    values = (row.asked_parameters.get(_KEY) for row in rows)
    targets = [
        float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)
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


def cause_of(row: Row) -> Cause:
    """The group that has most of the row's signed error, else the largest part of its decomposition."""
    signed = row.signed_error_percent
    groups = [each for each in row.widest_groups if each.representative_ratio is not None]
    if signed and groups:
        widest = max(groups, key=lambda each: each.error_points / signed)
        if widest.error_points / signed >= _MOST:
            return Cause(
                kind="group",
                points=widest.error_points,
                kernel=widest.kernel,
                launches=widest.launches,
                ratio=widest.ratio,
                representative_ratio=widest.representative_ratio,
            )
    part = largest_part(row.decomposition)
    if part is None or row.decomposition is None:
        return Cause(kind="unknown")
    together = row.decomposition.not_separated_parts if part[0] == "not_separated" else []
    return Cause(kind="part", part=part[0], points=part[1], together=together)


def largest_part(parts: ErrorDecomposition | None) -> tuple[str, float] | None:
    """The part with the most absolute points; None where nothing was decomposed."""
    points_by_part = {name: getattr(parts, name) for name in PARTS} if parts is not None else {}
    known = {name: points for name, points in points_by_part.items() if points is not None}
    return max(known.items(), key=lambda part: abs(part[1])) if known else None
