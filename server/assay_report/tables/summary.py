"""The table of every workload on every GPU: the facts that readers want first."""

from __future__ import annotations

from collections.abc import Callable

from assay_report.model.report import Report
from assay_report.model.scores import (
    ShareSummary,
    SummaryEntry,
)
from assay_report.tables import shared_columns as shared
from assay_report.tables.selections import HOW_HELD_OUT, accuracies
from assay_report.tables.table import Filled, Table, Width, names, numbers, table_of
from assay_report.texts import (
    ABSENT,
    count,
    match_percent,
    percent,
    ratio,
    share_kind,
    text,
)
from assay_sampling.documents.by_method import Accuracies

_OF_THE_MODEL = "Accuracies are held out, of the model that labels the launches after the window."
_LIGHT_ALONE = (
    "Light runs only, without counters: each error is against the times of all launches in a light run "
    "('assay docs light-only' says what such runs can give)."
)


def _itself(entry: SummaryEntry) -> Accuracies:
    return entry


_SUMMARY: list[Filled[SummaryEntry]] = [
    shared.workload(lambda entry: entry),
    shared.gpu(lambda entry: entry),
    shared.condition(lambda entry: entry),
    names("method", lambda entry: entry.method),
    shared.status(lambda entry: entry),
    names("cost", lambda entry: text(entry.cost_quantity), shared=True, optional=True),
    numbers("launches", lambda entry: count(entry.launches)),
    shared.error("error", lambda entry: (entry, entry.error_percent)),
    numbers("group error", lambda entry: percent(entry.group_error_percent), "%"),
    numbers("speedup", lambda entry: ratio(entry.speedup)),
    numbers("match", lambda entry: match_percent(entry.match_percent), "%"),
    numbers(
        "speedup of all SMs, true", lambda entry: _shares(entry, lambda share: share.speedup_true),
        optional=True,
    ),
    numbers(
        "predicted", lambda entry: _shares(entry, lambda share: share.speedup_predicted), optional=True
    ),
    numbers(
        "flushed difference", lambda entry: percent(entry.flushed_difference_percent), "%", optional=True
    ),
    numbers(
        "by representatives", lambda entry: percent(entry.flushed_difference_of_selection_percent), "%",
        optional=True, width=Width.WIDE,
    ),
    *accuracies(_itself),
    numbers(
        "agreement", lambda entry: percent(entry.agreement_percent), "%", optional=True, width=Width.WIDE
    ),
    numbers(
        "ambiguous", lambda entry: percent(entry.ambiguous_percent), "%", optional=True, width=Width.WIDE
    ),
    numbers("unknown launches", lambda entry: count(entry.unknown_launches), optional=True),
]  # fmt: skip


def summary_table(report: Report) -> Table:
    """Workload x GPU: the facts that readers want first."""
    notes = []
    if any(getattr(entry, name) is not None for entry in report.summary for name in Accuracies.model_fields):
        notes.append(f"{_OF_THE_MODEL} {HOW_HELD_OUT}")
    if _light_alone(report):
        notes.append(_LIGHT_ALONE)
    return table_of("Workload x GPU", _SUMMARY, report.summary, notes)


def _light_alone(report: Report) -> bool:
    """Whether the campaign asked only for light runs: no detailed run has data, and none failed."""
    made = {run.level for run in report.runs}
    return "light" in made and "detailed" not in made | {run.level for run in report.failed_runs}


def _shares(entry: SummaryEntry, what: Callable[[ShareSummary], float | None]) -> str:
    """A speedup at each SM share; where there are several, each with its share."""
    shares = entry.sm_share or []
    if len(shares) == 1:
        return ratio(what(shares[0]))
    texts = (f"{share.sm_percent:g} %{share_kind(share.sm_share)}: {ratio(what(share))}" for share in shares)
    return ", ".join(texts) or ABSENT
