"""Tables of scores: every workload on every GPU; of each, all methods, which to take, what was refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay_report.model.report import Report
from assay_report.model.scores import RecommendedEntry, Row, ShareSummary, SummaryEntry
from assay_report.tables import shared_columns as shared
from assay_report.tables.selections import HOW_HELD_OUT, accuracies
from assay_report.tables.table import Cell, Filled, Table, Width, names, numbers, sentences, table_of
from assay_report.texts import (
    ABSENT,
    count,
    match_percent,
    match_text,
    method_names,
    percent,
    quantity,
    ratio,
    share_kind,
    text,
)
from assay_report.verdicts.suite import Named
from assay_sampling.documents.by_method import Accuracies
from assay_sampling.documents.common import WeightedScores
from assay_sampling.parameters import WeightKind
from assay_sampling.verdicts.verdict import VerdictLevel

_BOTH_WEIGHTS = (
    "By light time: each representative stands for the light time of its group on the GPU of the selection, "
    "the mean of repeated runs ('assay docs methods/weights' says when that does not help)."
)


_VERDICTS: dict[VerdictLevel, str] = {"trust": "trust", "total_only": "total only", "do_not": "do not trust"}
_OF_WORKLOAD: list[Filled[Any]] = [shared.workload(lambda entry: entry.row)]
_ROWS: list[Filled[Named]] = [
    shared.gpu(lambda entry: entry.row),
    shared.condition(lambda entry: entry.row),
    names("method", lambda entry: entry.method),
    names("verdict", lambda entry: _VERDICTS[entry.row.verdict.level] if entry.row.verdict else ABSENT,
          optional=True),
    shared.status(lambda entry: entry.row),
    shared.error("error", lambda entry: (entry.row, entry.row.error_percent)),
    numbers("signed error", lambda entry: percent(entry.row.signed_error_percent, signed=True), "%"),
    numbers("group error", lambda entry: percent(entry.row.group_error_percent), "%"),
    numbers("interval", lambda entry: _interval(entry.row), optional=True),
    numbers("not vouched for", lambda entry: percent(entry.row.not_vouched_percent), "%", optional=True,
            width=Width.WIDE),
    numbers("speedup", lambda entry: ratio(entry.row.speedup)),
    numbers("fair error", lambda entry: percent(getattr(entry.row.fair, "error_percent", None)), "%",
            optional=True),
    numbers("fair speedup", lambda entry: ratio(getattr(entry.row.fair, "speedup", None)), optional=True),
    numbers("held", lambda entry: percent(getattr(entry.row.fair, "coverage_percent", None)), "%",
            optional=True, width=Width.WIDE),
    names("star", lambda entry: "*" if entry.row.star else ABSENT, optional=True),
    numbers("match", lambda entry: match_percent(entry.row.matched_percent), "%"),
    names("every match / %", lambda entry: _every_match(entry.row), width=Width.WIDE),
    names("cost", lambda entry: _cost(entry.row), shared=True),
    numbers("total", lambda entry: quantity(getattr(entry.row.cost, "total", None)), width=Width.WIDE),
    numbers("projected", lambda entry: quantity(getattr(entry.row.cost, "projected", None)),
            width=Width.WIDE),
    shared.selected_on(lambda entry: entry.row),
    numbers("launches", lambda entry: count(entry.row.launches), width=Width.WIDE),
    numbers("kernels", lambda entry: count(entry.row.kernels), width=Width.WIDE),
    numbers("groups", lambda entry: count(entry.row.groups)),
    numbers("representatives", lambda entry: count(entry.row.representatives), width=Width.WIDE),
    shared.flags(lambda entry: entry.row.flags),
    sentences("notes", lambda entry: "; ".join(note.text for note in entry.row.notes) or ABSENT,
              optional=True),
]  # fmt: skip


def _every_match(row: Row) -> str:
    operations = row.operations
    if operations is None:
        return match_text(row.match)
    calls = match_percent(min(operations.selection_calls_percent, operations.recording_calls_percent))
    return f"calls {calls}, time {match_percent(row.matched_percent)} (GPUs: operation)"


def rows_table(rows: Sequence[Row], *, with_workload: bool = False) -> Table:
    """Every method on every GPU, of one workload or, with a column for it, of all."""
    columns = [*_OF_WORKLOAD, *_ROWS] if with_workload else _ROWS
    entries = [Named(row, method) for row, method in zip(rows, method_names(rows), strict=True)]
    note = (
        "Match: by the kind that counts; every match: exact, name and block, position; in brackets what was "
        "matched and which of the three counts."
    )
    return table_of("Every method on every GPU", columns, entries, [note])


_RECOMMENDED: list[Filled[RecommendedEntry]] = [
    shared.workload(lambda entry: entry),
    shared.gpu(lambda entry: entry),
    names("method", lambda entry: text(entry.method)),
    names("why", lambda entry: entry.reason.text),
]


def recommendations_table(entries: Sequence[RecommendedEntry]) -> Table:
    """Which method to take where; empty where no two methods were compared."""
    note = (
        "Fair error: root mean square over further draws, or on the half of the launches that did not "
        "choose; fair speedup: true total / mean cost of the representatives; a star: no other method "
        "has less error on the other GPUs, or, where none was scored, less fair error at no less fair "
        "speedup ('assay docs comparing')."
    )
    return table_of("Which method here", _RECOMMENDED, entries, [note])


def _interval(row: Row) -> str:
    """Half the width of the interval, in percent of the projected total, and whether it held the true one."""
    interval, cost = row.interval, row.cost
    if interval is None or cost is None or cost.total is None or not cost.projected:
        return ABSENT
    held = "held" if interval.low <= cost.total <= interval.high else "missed"
    return f"± {percent(50.0 * (interval.high - interval.low) / cost.projected)} %, {held}"


def _cost(row: Row) -> Cell:
    if row.cost is None:
        return Cell(ABSENT)
    return Cell(f"{row.cost.quantity} / {row.cost.unit}", row.cost.quantity)


@dataclass(frozen=True)
class _Weighed(Named):
    """A row with its scores by its method's own weights and by light time."""

    kind: WeightKind
    own: WeightedScores
    light_time: WeightedScores


_WEIGHED: list[Filled[_Weighed]] = [
    shared.gpu(lambda entry: entry.row),
    shared.condition(lambda entry: entry.row),
    names("method", lambda entry: entry.method),
    shared.selected_on(lambda entry: entry.row),
    names("own weights", lambda entry: entry.kind),
    numbers("error", lambda entry: percent(entry.own.error_percent), "%"),
    numbers("group error", lambda entry: percent(entry.own.group_error_percent), "%"),
    numbers("by light time: error", lambda entry: percent(entry.light_time.error_percent), "%"),
    numbers("group error by light time", lambda entry: percent(entry.light_time.group_error_percent), "%"),
    names("used", lambda entry: (entry.row.weights or ABSENT).replace("_", " ")),
]  # fmt: skip


def weights_table(rows: Sequence[Row], *, with_workload: bool = False) -> Table:
    """Away from the GPU of the selection: the errors with both kinds of weights side by side."""
    entries = [
        _Weighed(row, method, kind, own, row.by_weights["light_time"])
        for row, method in zip(rows, method_names(rows), strict=True)
        if "light_time" in row.by_weights
        for kind, own in row.by_weights.items()
        if kind != "light_time"
    ]
    columns = [*_OF_WORKLOAD, *_WEIGHED] if with_workload else _WEIGHED
    return table_of("Weights by launches and by light time, on other GPUs", columns, entries, [_BOTH_WEIGHTS])


def differences_table(rows: Sequence[Row]) -> Table:
    """For each refusal, once per GPU, the first launches that differ."""
    differences = dict.fromkeys(
        (row.device, f"{error.subject}: {error.cause}", f"{' | '.join(error.differences)}; {error.remedy}")
        for row in rows
        if (error := row.error) is not None and error.differences
    )
    columns: list[Filled[tuple[str, str, str]]] = [
        names("GPU", lambda entry: entry[0]),
        sentences("refused", lambda entry: entry[1]),
        sentences("first differences, and what to do", lambda entry: entry[2]),
    ]
    return table_of("Launches that differ", columns, differences)


_OF_THE_MODEL = "Accuracies are held out, of the model that labels the launches after the window."
_LIGHT_ALONE = (
    "Light runs only, without counters: each error is against the times of all launches in a light run "
    "('assay docs light-only' says what such runs can give)."
)


_HELD_OUT: list[Filled[SummaryEntry]] = accuracies(lambda entry: entry)
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
    *_HELD_OUT,
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
