"""Where most of an error comes from: one group that scales unlike its representative, or one part of it."""

from __future__ import annotations

from assay_report.model.scores import Row
from assay_report.model.verdicts import Cause
from assay_sampling.documents.common import ErrorDecomposition

PART_NAMES = tuple(name for name in ErrorDecomposition.model_fields if name != "not_separated_parts")
# A group explains an error if it has at least this share of it, with the same sign.
_MOST = 0.5


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
    points_by_part = {name: getattr(parts, name) for name in PART_NAMES} if parts is not None else {}
    known = {name: points for name, points in points_by_part.items() if points is not None}
    return max(known.items(), key=lambda part: abs(part[1])) if known else None
