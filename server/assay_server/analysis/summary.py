"""The summary of a report: the facts that readers want first, by workload and GPU, and the method to take.

Methods of a campaign stand next to each other: stars by fair scores, and a recommendation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from assay_report.model.compared import Compared, SmShareEntry
from assay_report.model.report import Comparisons
from assay_report.model.scores import RecommendedEntry, Row, ShareSummary, SummaryEntry
from assay_sampling.documents.by_method import Accuracies
from assay_sampling.documents.common import NoteEntry
from assay_sampling.launches.table import BASELINE
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scoring.fair import Contender, Fair, Recommendation, no_star, recommend
from assay_sampling.scoring.targets.judging import (
    ContenderElsewhere,
    no_star_elsewhere,
    recommend_elsewhere,
)

_OF_THE_ROW = (
    "workload", "device", "condition", "method", "selection", "status", "reason", "error", "selected_on",
    "launches", "kernels", "groups", "error_percent", "group_error_percent", "speedup",
)  # fmt: skip
_RANKS = {"ok": 0, "refused": 1, "failed": 1, "not applicable": 2}
_OF_THE_MODEL = (*Accuracies.model_fields, "agreement_percent", "ambiguous_percent")


def summarise(rows: Sequence[Row], compared: Comparisons | None = None) -> list[SummaryEntry]:
    """One entry for each workload, GPU and condition, in the order of the rows.

    It shows the first method, in the campaign's order, that gave numbers there; if none did, the first that
    was refused or failed, so that readers see the obstacle. SM shares and flushed caches are in the entry of
    the baseline that they are compared with, with that method's prediction; a report without comparisons
    has their keys in no entry.
    """
    entries = [_entry(min(members, key=lambda row: _RANKS[row.status])) for members in _cells(rows)]
    for entry in entries if compared else ():
        _add_compared(entry, compared or Comparisons())
    return entries


def _cells(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each workload, GPU and condition, in their order."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row.workload, row.device, row.condition.model_dump_json()), []).append(row)
    return list(cells.values())


def _add_compared(entry: SummaryEntry, compared: Comparisons) -> None:
    if compared.sm_share:
        entry.sm_share = [_share(each, entry) for each in compared.sm_share if _is_about(each, entry)]
    cold = next((each for each in compared.cold_start if _is_about(each, entry)), None)
    if compared.cold_start:
        parts = () if cold is None else cold.selections
        part = next((part for part in parts if part.selection == entry.selection), None)
        entry.flushed_difference_percent = None if cold is None else cold.weighted_difference_percent
        entry.flushed_difference_of_selection_percent = (
            None if part is None else part.weighted_difference_percent
        )


def _is_about(each: Compared, entry: SummaryEntry) -> bool:
    """Whether an entry is compared with this one's condition: only cache and SM share may differ."""
    if (each.workload, each.device) != (entry.workload, entry.device):
        return False
    condition = entry.condition
    baseline = (condition.cache, condition.sm_percent) == (BASELINE.cache, BASELINE.sm_percent)
    return baseline and each.condition.clock == condition.clock


def _share(each: SmShareEntry, entry: SummaryEntry) -> ShareSummary:
    predicted = next((part for part in each.predictions if part.selection == entry.selection), None)
    return ShareSummary(
        sm_percent=each.sm_percent,
        sm_share=each.sm_share,
        effective_sms=each.effective_sms,
        speedup_true=each.speedup_true,
        speedup_predicted=predicted and predicted.speedup_predicted,
    )


def _entry(row: Row) -> SummaryEntry:
    return SummaryEntry(
        **{name: getattr(row, name) for name in _OF_THE_ROW},
        cost_quantity=row.cost and row.cost.quantity,
        match_percent=row.matched_percent,
        match_kind=row.match and row.match.kind,
        model=row.model and row.model.chosen,
        **{name: row.model and getattr(row.model, name) for name in _OF_THE_MODEL},
        unknown_launches=row.unknown and row.unknown.launches,
        unknown_percent=row.unknown and row.unknown.percent,
        flags=sorted({flag.name for flag in row.flags}),
    )


def compare_fairly(rows: Sequence[Row]) -> list[RecommendedEntry]:
    """Give stars to rows where selections were made, and name the method to take there, if two or more
    selected: by their scores on other GPUs where there are any, else by their fair scores."""
    recommendations = []
    for members in _cells(row for row in rows if row.fair is not None):
        elsewhere = [_scored_elsewhere(row, rows) for row in members]
        advice = _by_other_gpus(members, elsewhere) if any(elsewhere) else _at_home(members)
        if len(members) > 1:
            recommendations.append(advice)
    return recommendations


def _at_home(members: Sequence[Row]) -> RecommendedEntry:
    contenders = [_contender(row, members) for row in members]
    for row, contender in zip(members, contenders, strict=True):
        _give_star(row, no_star(contender, contenders))
    advice = recommend(contenders)
    row_of = {contender.method: row for contender, row in zip(contenders, members, strict=True)}
    return _recommended(members, advice, row_of[advice.method] if advice.method is not None else None)


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
    entry = _recommended(
        members, advice, next((members[index] for index, one in judged.items() if one is best), None)
    )
    entry.judged_on = devices
    if best is not None:
        entry.worst_error_percent = best.worst_error_percent
        entry.worst_part_error_percent = best.worst_part_error_percent
    return entry


def _recommended(members: Sequence[Row], advice: Recommendation, taken: Row | None) -> RecommendedEntry:
    return RecommendedEntry(
        workload=members[0].workload,
        device=members[0].device,
        condition=members[0].condition,
        method=advice.method,
        selection=taken and taken.selection,
        reason=NoteEntry.of(advice.reason),
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
