"""Methods of a campaign next to each other: stars by fair scores, and which method to take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay_report.model.scores import RecommendedEntry, Row
from assay_sampling.documents.common import FairEntry, NoteEntry
from assay_sampling.methods.tried import Tried
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scoring.fair import Contender, Fair, no_star, recommend
from assay_sampling.scoring.targets.judging import (
    ContenderElsewhere,
    no_star_elsewhere,
    recommend_elsewhere,
)


def describe_fair(row: Row, tried: Tried) -> None:
    """Fill in the method's score over its tries."""
    row.fair = FairEntry.model_validate(tried.fair.to_dict())


def compare_fairly(rows: Sequence[Row]) -> list[RecommendedEntry]:
    """Give stars to rows where selections were made, and name the method to take there, if two or more
    selected: by their scores on other GPUs where there are any, else by their fair scores."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.fair is not None:
            cells.setdefault((row.workload, row.device, row.condition.model_dump_json()), []).append(row)
    recommendations = []
    for members in cells.values():
        elsewhere = [_scored_elsewhere(row, rows) for row in members]
        advice = _by_other_gpus(members, elsewhere) if any(elsewhere) else _at_home(members)
        if len(members) > 1:
            recommendations.append(advice)
    return recommendations


def _at_home(members: Sequence[Row]) -> RecommendedEntry:
    contenders = [_contender(row, members) for row in members]
    for row, contender in zip(members, contenders, strict=True):
        _give_star(row, no_star(contender, contenders))
    return _recommended(members, contenders)


def _give_star(row: Row, against: Note | None) -> None:
    row.star, row.no_star = against is None, None if against is None else NoteEntry.of(against)


def _scored_elsewhere(made: Row, rows: Sequence[Row]) -> dict[str, Row]:
    """The rows of a selection on other GPUs, under the condition that it was made under, by GPU."""
    return {
        row.device: row
        for row in rows
        if row.selection is not None
        and row.selection == made.selection
        and row.device != made.device
        and row.condition == made.condition
        and row.rank == made.rank
        and row.status == "ok"
    }


def _by_other_gpus(members: Sequence[Row], elsewhere: Sequence[dict[str, Row]]) -> RecommendedEntry:
    """Stars and advice by the GPUs that any of the methods was scored on; a method must be scored on all."""
    devices = list(dict.fromkeys(device for scores in elsewhere for device in scores))
    judged = {
        index: _elsewhere(members[index], scores, members)
        for index, scores in enumerate(elsewhere)
        if len(scores) == len(devices)
    }
    contenders = list(judged.values())
    for index, row in enumerate(members):
        if index in judged:
            _give_star(row, no_star_elsewhere(judged[index], contenders))
        else:
            missing = ", ".join(device for device in devices if device not in elsewhere[index])
            _give_star(row, make_note("not_scored_elsewhere", reason=f"no score on {missing}"))
    advice, best = recommend_elsewhere(contenders, len(devices))
    taken = next((members[index] for index, one in judged.items() if one is best), None)
    return RecommendedEntry(
        workload=members[0].workload,
        device=members[0].device,
        condition=members[0].condition,
        method=advice.method,
        selection=taken and taken.selection,
        reason=NoteEntry.of(advice.reason),
        judged_on=devices,
        worst_error_percent=best and best.worst_error_percent,
        worst_part_error_percent=best and best.worst_part_error_percent,
    )


def _elsewhere(made: Row, scores: dict[str, Row], members: Sequence[Row]) -> ContenderElsewhere:
    weights = next(row.weights for row in scores.values())
    return ContenderElsewhere.of(
        _name(made, members),
        weights or "launches",
        made.speedup or 0.0,
        [(row.error_percent or 0.0, row.part_error_percent) for row in scores.values()],
    )


def _name(row: Row, members: Sequence[Row]) -> str:
    twice = sum(other.method == row.method for other in members) > 1
    return row.selection if twice and row.selection else row.method


def _contender(row: Row, members: Sequence[Row]) -> Contender:
    fair: dict[str, Any] = {} if row.fair is None else row.fair.model_dump()
    return Contender(_name(row, members), "" if row.cost is None else row.cost.quantity, Fair(**fair))


def _recommended(members: Sequence[Row], contenders: Sequence[Contender]) -> RecommendedEntry:
    recommendation = recommend(contenders)
    names = [each.method for each in contenders]
    return RecommendedEntry(
        workload=members[0].workload,
        device=members[0].device,
        condition=members[0].condition,
        method=recommendation.method,
        selection=None
        if recommendation.method is None
        else members[names.index(recommendation.method)].selection,
        reason=NoteEntry.of(recommendation.reason),
    )
