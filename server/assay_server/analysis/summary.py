"""The summary of a report: the facts that readers want first, by workload and GPU."""

from __future__ import annotations

from collections.abc import Sequence

from assay_report.model.compared import ColdStartEntry, Compared, SelectionDifference, SmShareEntry
from assay_report.model.report import Comparisons
from assay_report.model.scores import Row, ShareSummary, SummaryEntry
from assay_sampling.documents.by_method import Accuracies
from assay_sampling.launches.table import BASELINE

_OF_THE_ROW = (
    "workload", "device", "condition", "method", "selection", "status", "reason", "error", "selected_on",
    "launches", "kernels", "groups", "error_percent", "group_error_percent", "speedup",
)  # fmt: skip
_OF_THE_MODEL = (*Accuracies.model_fields, "agreement_percent", "ambiguous_percent")


def summarise(rows: Sequence[Row], compared: Comparisons | None = None) -> list[SummaryEntry]:
    """One entry for each workload, GPU and condition, in the order of the rows.

    It shows the first method, in the campaign's order, that gave numbers there; if none did, the first that
    was refused or failed, so that readers see the obstacle. SM shares and flushed caches are in the entry of
    the baseline that they are compared with, with that method's prediction; a report without comparisons
    has their keys in no entry.
    """
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row.workload, row.device, row.condition.model_dump_json()), []).append(row)
    entries = [_entry(min(members, key=_rank)) for members in cells.values()]
    for entry in entries if compared else ():
        _add_compared(entry, compared or Comparisons())
    return entries


def _add_compared(entry: SummaryEntry, compared: Comparisons) -> None:
    if compared.sm_share:
        entry.sm_share = [_share(each, entry) for each in compared.sm_share if _is_about(each, entry)]
    if compared.cold_start:
        first = next((each for each in compared.cold_start if _is_about(each, entry)), None)
        entry.flushed_difference_percent = None if first is None else first.weighted_difference_percent
        entry.flushed_difference_of_selection_percent = _of_selection(first, entry)


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


def _of_selection(each: ColdStartEntry | None, entry: SummaryEntry) -> float | None:
    """The difference that the summary entry's selection shows."""
    parts: Sequence[SelectionDifference] = each.selections if each is not None else ()
    chosen = next((part for part in parts if part.selection == entry.selection), None)
    return None if chosen is None else chosen.weighted_difference_percent


def _rank(row: Row) -> int:
    return {"ok": 0, "refused": 1, "failed": 1, "not applicable": 2}[row.status]


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
