"""Tables of scores: the summary, every method, the window and its models, the groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from assay_report.model.report import Report
from assay_report.model.scores import (
    ChosenModel,
    LabelModel,
    RecommendedEntry,
    Row,
    ShareSummary,
    SummaryEntry,
    Unknown,
)
from assay_report.tables import shared_columns as shared
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
from assay_sampling.documents.common import Cost, FairEntry, WeightedScores
from assay_sampling.documents.selection import (
    Accuracies,
    GroupEntry,
    RepresentativeEntry,
    SelectionDocument,
    Window,
)
from assay_sampling.parameters import WeightKind

Entry = TypeVar("Entry")

_GROUPS_SHOWN = 12
_HOW_HELD_OUT = (
    "Chronological: the first 80 % of the window predict the last 20 %; grouped: no signature on both "
    "sides; balanced: mean over groups; expected: both kinds by their light time after the window, which "
    "chooses the model."
)
_OF_THE_MODEL = "Accuracies are held out, of the model that labels the launches after the window."
_BOTH_WEIGHTS = (
    "By light time: each representative stands for the light time of its group on the GPU of the selection, "
    "the mean of repeated runs ('assay docs methods/weights' says when that does not help)."
)
_LIGHT_ALONE = (
    "Light runs only, without counters: each error is against the times of all launches in a light run "
    "('assay docs light-only' says what such runs can give)."
)


def _accuracies(of: Callable[[Entry], Accuracies | None]) -> list[Filled[Entry]]:
    """Held-out accuracies of a model; left out where no entry has one."""

    def column(title: str, value: Callable[[Accuracies], float | None]) -> Filled[Entry]:
        def cell(entry: Entry) -> str:
            found = of(entry)
            return ABSENT if found is None else percent(value(found))

        return numbers(title, cell, "%", optional=True)

    return [
        column("accuracy, expected", lambda found: found.expected_accuracy_percent),
        column("accuracy, chronological", lambda found: found.chronological_accuracy_percent),
        column("chronological, balanced", lambda found: found.chronological_balanced_accuracy_percent),
        column("accuracy, grouped", lambda found: found.grouped_accuracy_percent),
        column("grouped, balanced", lambda found: found.grouped_balanced_accuracy_percent),
    ]


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
    *_accuracies(_itself),
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
        notes.append(f"{_OF_THE_MODEL} {_HOW_HELD_OUT}")
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
    said = (f"{share.sm_percent:g} %{share_kind(share.sm_share)}: {ratio(what(share))}" for share in shares)
    return ", ".join(said) or ABSENT


@dataclass(frozen=True)
class _Named:
    """A row with the name of its method among all rows."""

    row: Row
    method: str


_ROWS: list[Filled[_Named]] = [
    shared.gpu(lambda entry: entry.row),
    shared.condition(lambda entry: entry.row),
    names("method", lambda entry: entry.method),
    shared.status(lambda entry: entry.row),
    shared.error("error", lambda entry: (entry.row, entry.row.error_percent)),
    numbers("signed error", lambda entry: percent(entry.row.signed_error_percent, signed=True), "%"),
    numbers("group error", lambda entry: percent(entry.row.group_error_percent), "%"),
    numbers("interval", lambda entry: _interval(entry.row), optional=True),
    numbers("speedup", lambda entry: ratio(entry.row.speedup)),
    numbers("fair error", lambda entry: _fair(entry.row, lambda fair: percent(fair.error_percent)), "%",
            optional=True),
    numbers("fair speedup", lambda entry: _fair(entry.row, lambda fair: ratio(fair.speedup)), optional=True),
    numbers("held", lambda entry: _fair(entry.row, lambda fair: percent(fair.coverage_percent)), "%",
            optional=True, width=Width.WIDE),
    names("star", lambda entry: "*" if entry.row.star else ABSENT, optional=True),
    numbers("match", lambda entry: match_percent(entry.row.match.percent if entry.row.match else None), "%"),
    names("every match / %", lambda entry: match_text(entry.row.match), width=Width.WIDE),
    names("cost", lambda entry: _cost(entry.row), shared=True),
    numbers("total", lambda entry: _paid(entry.row, lambda cost: cost.total), width=Width.WIDE),
    numbers("projected", lambda entry: _paid(entry.row, lambda cost: cost.projected), width=Width.WIDE),
    names("selected on", lambda entry: text(entry.row.selected_on.device if entry.row.selected_on else None),
          shared=True, clips=True),
    numbers("launches", lambda entry: count(entry.row.launches), width=Width.WIDE),
    numbers("kernels", lambda entry: count(entry.row.kernels), width=Width.WIDE),
    numbers("groups", lambda entry: count(entry.row.groups)),
    numbers("representatives", lambda entry: count(entry.row.representatives), width=Width.WIDE),
    shared.flags(lambda entry: entry.row.flags),
    sentences("notes", lambda entry: "; ".join(note.text for note in entry.row.notes) or ABSENT,
              optional=True),
]  # fmt: skip


def rows_table(rows: Sequence[Row], *, with_workload: bool = False) -> Table:
    """Every method on every GPU, of one workload or, with a column for it, of all."""
    columns = [shared.workload(_row_of), *_ROWS] if with_workload else _ROWS
    entries = [_Named(row, method) for row, method in zip(rows, method_names(rows), strict=True)]
    note = (
        "Match: by the kind that counts; every match: exact, name and block, position; in brackets what was "
        "matched and which of the three counts."
    )
    return table_of("Every method on every GPU", columns, entries, [note])


def _fair(row: Row, value: Callable[[FairEntry], str]) -> str:
    return ABSENT if row.fair is None else value(row.fair)


_RECOMMENDED: list[Filled[RecommendedEntry]] = [
    shared.workload(lambda entry: entry),
    shared.gpu(lambda entry: entry),
    names("method", lambda entry: text(entry.method)),
    names("why", lambda entry: entry.reason.text),
]


def recommendations_table(entries: Sequence[RecommendedEntry]) -> Table | None:
    """Which method to take where; None where no two methods were compared."""
    if not entries:
        return None
    note = (
        "Fair error: root mean square over further draws, or on the half of the launches that did not "
        "choose; fair speedup: true total / mean cost of the representatives; a star: no other method that "
        "can be judged has less fair error at no less fair speedup ('assay docs comparing')."
    )
    return table_of("Which method here", _RECOMMENDED, entries, [note])


def _row_of(entry: _Named) -> Row:
    return entry.row


def _interval(row: Row) -> str:
    """Half the width of the interval, in percent of the projected total, and whether it held the true one."""
    interval, cost = row.interval, row.cost
    if interval is None or cost is None or cost.total is None or not cost.projected:
        return ABSENT
    held = "held" if interval.low <= cost.total <= interval.high else "missed"
    return f"± {percent(50.0 * (interval.high - interval.low) / cost.projected)} %, {held}"


def _paid(row: Row, value: Callable[[Cost], float | None]) -> str:
    return ABSENT if row.cost is None else quantity(value(row.cost))


def _cost(row: Row) -> Cell:
    if row.cost is None:
        return Cell(ABSENT)
    return Cell(f"{row.cost.quantity} / {row.cost.unit}", row.cost.quantity)


@dataclass(frozen=True)
class _Weighed:
    """A row with its scores by its method's own weights and by light time."""

    row: Row
    method: str
    kind: WeightKind
    own: WeightedScores
    light_time: WeightedScores


_WEIGHED: list[Filled[_Weighed]] = [
    shared.gpu(lambda entry: entry.row),
    shared.condition(lambda entry: entry.row),
    names("method", lambda entry: entry.method),
    names("selected on", lambda entry: text(entry.row.selected_on.device if entry.row.selected_on else None),
          shared=True, clips=True),
    names("own weights", lambda entry: entry.kind),
    numbers("error", lambda entry: percent(entry.own.error_percent), "%"),
    numbers("group error", lambda entry: percent(entry.own.group_error_percent), "%"),
    numbers("by light time: error", lambda entry: percent(entry.light_time.error_percent), "%"),
    numbers("group error by light time", lambda entry: percent(entry.light_time.group_error_percent), "%"),
    names("used", lambda entry: (entry.row.weights or ABSENT).replace("_", " ")),
]  # fmt: skip


def weights_table(rows: Sequence[Row], *, with_workload: bool = False) -> Table | None:
    """Away from the GPU of the selection: the errors with both kinds of weights side by side."""
    entries = [
        _Weighed(row, method, kind, own, row.by_weights["light_time"])
        for row, method in zip(rows, method_names(rows), strict=True)
        if "light_time" in row.by_weights
        for kind, own in row.by_weights.items()
        if kind != "light_time"
    ]
    if not entries:
        return None
    columns = [shared.workload(_row_weighed), *_WEIGHED] if with_workload else _WEIGHED
    return table_of("Weights by launches and by light time, on other GPUs", columns, entries, [_BOTH_WEIGHTS])


def _row_weighed(entry: _Weighed) -> Row:
    return entry.row


@dataclass(frozen=True)
class _OfModel:
    row: Row
    chosen: str
    model: LabelModel


_MODELS: list[Filled[_OfModel]] = [
    shared.gpu(lambda entry: entry.row),
    shared.condition(lambda entry: entry.row),
    names("model", lambda entry: entry.model.name),
    names("labels the launches", lambda entry: "yes" if entry.model.name == entry.chosen else ""),
    *_accuracies(lambda entry: entry.model),
    numbers("error", lambda entry: percent(entry.model.error_percent), "%"),
    numbers("group error", lambda entry: percent(entry.model.group_error_percent), "%"),
    numbers("speedup", lambda entry: ratio(entry.model.speedup)),
]


def models_table(rows: Sequence[Row]) -> Table | None:
    """Each classifier's accuracy in a two-level selection, and the error under its labels."""
    entries = [
        _OfModel(row, row.model.chosen, model)
        for row in rows
        if row.model is not None and _made_here(row)
        for model in row.model.models
    ]
    if not entries:
        return None
    return table_of(
        "Models that label the launches after the window", _MODELS, entries, [_HOW_HELD_OUT]
    )  # fmt: skip


def _made_here(row: Row) -> bool:
    return row.selected_on is not None and row.selected_on.device == row.device


@dataclass(frozen=True)
class _OfWindow:
    row: Row
    window: Window

    @property
    def model(self) -> ChosenModel | None:
        return self.row.model


_WINDOWS: list[Filled[_OfWindow]] = [
    shared.gpu(lambda entry: entry.row),
    shared.condition(lambda entry: entry.row),
    numbers("launches in the window", lambda entry: count(entry.window.launches)),
    numbers("groups", lambda entry: count(entry.window.k)),
    names("cost", lambda entry: ABSENT if entry.window.cost is None else entry.window.cost.quantity),
    numbers("error", lambda entry: percent(entry.window.error_percent), "%"),
    numbers("group error", lambda entry: percent(entry.window.group_error_percent), "%"),
    numbers("speedup", lambda entry: ratio(entry.window.speedup)),
    numbers("agreement of the models", lambda entry: _of(entry.model, lambda m: m.agreement_percent), "%"),
    numbers("ambiguous", lambda entry: _of(entry.model, lambda m: m.ambiguous_percent), "%"),
    numbers("unknown launches", lambda entry: _unknown(entry.row, lambda found: found.launches)),
    numbers("unknown signatures", lambda entry: _unknown(entry.row, lambda found: found.groups)),
    numbers("unseen time", lambda entry: percent(entry.row.unseen_time_percent), "%"),
]


def _of(model: ChosenModel | None, value: Callable[[ChosenModel], float | None]) -> str:
    return ABSENT if model is None else percent(value(model))


def _unknown(row: Row, value: Callable[[Unknown], int | None]) -> str:
    return ABSENT if row.unknown is None else count(value(row.unknown))


def window_table(rows: Sequence[Row]) -> Table | None:
    """The detailed window that each two-level selection was made on."""
    entries = [
        _OfWindow(row, row.window) for row in rows if row.window is not None and _made_here(row)
    ]  # fmt: skip
    if not entries:
        return None
    note = "The window has counters and cycles; its cost is never mixed with the whole workload's time."
    return table_of("The window", _WINDOWS, entries, [note])


def differences_table(rows: Sequence[Row]) -> Table | None:
    """For each refusal, once per GPU, the first launches that differ."""
    found = dict.fromkeys(
        (row.device, f"{error.subject}: {error.cause}", f"{' | '.join(error.differences)}; {error.remedy}")
        for row in rows
        if (error := row.error) is not None and error.differences
    )
    columns: list[Filled[tuple[str, str, str]]] = [
        names("GPU", lambda entry: entry[0]),
        sentences("refused", lambda entry: entry[1]),
        sentences("first differences, and what to do", lambda entry: entry[2]),
    ]
    return table_of("Launches that differ", columns, found) if found else None


_GROUPS: list[Filled[tuple[GroupEntry, int]]] = [
    numbers("group", lambda entry: count(entry[0].id)),
    numbers("launches", lambda entry: count(entry[0].launches)),
    numbers("share of launches", lambda entry: percent(100.0 * entry[0].launches / entry[1]), "%"),
    numbers("share of instructions", lambda entry: _instruction_share(entry[0]), "%", optional=True),
    numbers("representatives", lambda entry: count(len(entry[0].representatives))),
    numbers("process", lambda entry: _first(entry[0], lambda first: count(first.process))),
    numbers("launch", lambda entry: _first(entry[0], lambda first: str(first.launch))),
    numbers("weight", lambda entry: _first(entry[0], lambda first: quantity(first.weight))),
    sentences("kernel", lambda entry: _first(entry[0], lambda first: first.kernel)),
    names("grid", lambda entry: _first(entry[0], lambda first: " x ".join(map(str, first.grid)))),
    names("block", lambda entry: _first(entry[0], lambda first: " x ".join(map(str, first.block)))),
]


def groups_table(key: str, selection: SelectionDocument | None) -> Table | None:
    """The largest groups of a selection, with their first representative; None for a single group."""
    groups = selection.groups if selection is not None else []
    if len(groups) < 2:
        return None
    total = sum(group.launches for group in groups) or 1
    largest = sorted(groups, key=lambda group: (-group.launches, group.id))[:_GROUPS_SHOWN]
    shown = f"The {len(largest)} largest of {len(groups):,} groups; launch is 0-based in API order."
    return table_of(f"Groups of {key}", _GROUPS, [(group, total) for group in largest], [shown])


def _instruction_share(group: GroupEntry) -> str:
    share = group.instruction_share
    return ABSENT if share is None else percent(100.0 * share)


def _first(group: GroupEntry, shown: Callable[[RepresentativeEntry], str]) -> str:
    return shown(group.representatives[0]) if group.representatives else ABSENT
