"""Methods of a campaign next to each other: stars by fair scores, and which method to take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay_report.model.scores import RecommendedEntry, Row
from assay_sampling.documents.common import FairEntry, NoteEntry
from assay_sampling.methods.tried import Tried
from assay_sampling.scoring.fair import Contender, Fair, no_star, recommend


def describe_fair(row: Row, tried: Tried) -> None:
    """Fill in the method's score over its tries."""
    row.fair = FairEntry.model_validate(tried.fair.to_dict())


def compare_fairly(rows: Sequence[Row]) -> list[RecommendedEntry]:
    """Give stars to rows where selections were made, and name the method to take there, if two or more
    selected."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.fair is not None:
            cells.setdefault((row.workload, row.device, row.condition.model_dump_json()), []).append(row)
    found = []
    for members in cells.values():
        contenders = [_contender(row, members) for row in members]
        for row, contender in zip(members, contenders, strict=True):
            against = no_star(contender, contenders)
            row.star, row.no_star = against is None, None if against is None else NoteEntry.of(against)
        if len(members) > 1:
            found.append(_recommended(members, contenders))
    return found


def _contender(row: Row, members: Sequence[Row]) -> Contender:
    fair: dict[str, Any] = {} if row.fair is None else row.fair.model_dump()
    twice = sum(other.method == row.method for other in members) > 1
    name = row.selection if twice and row.selection else row.method
    return Contender(name, "" if row.cost is None else row.cost.quantity, Fair(**fair))


def _recommended(members: Sequence[Row], contenders: Sequence[Contender]) -> RecommendedEntry:
    found = recommend(contenders)
    names = [each.method for each in contenders]
    return RecommendedEntry(
        workload=members[0].workload,
        device=members[0].device,
        condition=members[0].condition,
        method=found.method,
        selection=None if found.method is None else members[names.index(found.method)].selection,
        reason=NoteEntry.of(found.reason),
    )
