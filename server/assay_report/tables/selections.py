"""Tables of how selections were made: their groups, windows, label models and slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from assay_report.model.report import Report
from assay_report.model.scores import LabelModel, Row
from assay_report.model.slices import ChosenSlicesEntry, SliceEntry
from assay_report.tables import shared_columns as shared
from assay_report.tables.table import Filled, Table, names, numbers, sentences, table_of
from assay_report.texts import ABSENT, count, percent, quantity, ratio
from assay_sampling.documents.by_method import Accuracies
from assay_sampling.documents.selection import GroupEntry, RepresentativeEntry, SelectionDocument

Entry = TypeVar("Entry")

HOW_HELD_OUT = (
    "Chronological: the first 80 % of the window predict the last 20 %; grouped: no signature on both "
    "sides; balanced: mean over groups; expected: both kinds by their light time after the window, which "
    "chooses the model."
)
_OF_WINDOW = "The window has counters and cycles; its cost is never mixed with the whole workload's time."
_OF_SLICES = (
    "Slices of launches with counters, chosen from the light run by the unseen time that each brings."
)
_GROUPS_SHOWN = 12
_SLICES_SHOWN = 20
_ENDINGS = {
    "unseen": "little enough is unseen",
    "budget": "the time budget is spent",
    "slices": "a run has as many slices as it may have",
}


def accuracies(of: Callable[[Entry], Accuracies]) -> list[Filled[Entry]]:
    """Held-out accuracies of a model; left out where no entry has one."""

    def column(title: str, name: str) -> Filled[Entry]:
        return numbers(title, lambda entry: percent(getattr(of(entry), name)), "%", optional=True)

    return [
        column("accuracy, expected", "expected_accuracy_percent"),
        column("accuracy, chronological", "chronological_accuracy_percent"),
        column("chronological, balanced", "chronological_balanced_accuracy_percent"),
        column("accuracy, grouped", "grouped_accuracy_percent"),
        column("grouped, balanced", "grouped_balanced_accuracy_percent"),
    ]


_MODELS: list[Filled[tuple[Row, LabelModel]]] = [
    shared.gpu(lambda entry: entry[0]),
    shared.condition(lambda entry: entry[0]),
    names("model", lambda entry: entry[1].name),
    names("labels the launches", lambda entry: "yes" if _is_chosen(*entry) else ""),
    *accuracies(lambda entry: entry[1]),
    numbers("error", lambda entry: percent(entry[1].error_percent), "%"),
    numbers("group error", lambda entry: percent(entry[1].group_error_percent), "%"),
    numbers("speedup", lambda entry: ratio(entry[1].speedup)),
]
_WINDOWS: list[Filled[Row]] = [
    shared.gpu(lambda row: row),
    shared.condition(lambda row: row),
    numbers("launches in the window", lambda row: count(getattr(row.window, "launches", None))),
    numbers("groups", lambda row: count(getattr(row.window, "k", None))),
    names("cost", lambda row: row.window.cost.quantity if row.window and row.window.cost else ABSENT),
    numbers("error", lambda row: percent(getattr(row.window, "error_percent", None)), "%"),
    numbers("group error", lambda row: percent(getattr(row.window, "group_error_percent", None)), "%"),
    numbers("speedup", lambda row: ratio(getattr(row.window, "speedup", None))),
    numbers(
        "agreement of the models", lambda row: percent(getattr(row.model, "agreement_percent", None)), "%"
    ),
    numbers("ambiguous", lambda row: percent(getattr(row.model, "ambiguous_percent", None)), "%"),
    numbers("unknown launches", lambda row: count(getattr(row.unknown, "launches", None))),
    numbers("unknown signatures", lambda row: count(getattr(row.unknown, "groups", None))),
    numbers("unseen time", lambda row: percent(row.unseen_time_percent), "%"),
]


def models_table(rows: Sequence[Row]) -> Table:
    """Each classifier's accuracy in a two-level selection, and the error under its labels."""
    here = [row for row in rows if row.is_selected_here and row.model is not None]
    entries = [(row, model) for row in here if row.model for model in row.model.models]
    return table_of("Models that label the launches after the window", _MODELS, entries, [HOW_HELD_OUT])


def _is_chosen(row: Row, model: LabelModel) -> bool:
    return row.model is not None and row.model.chosen == model.name


def window_table(rows: Sequence[Row]) -> Table:
    """The detailed window that each two-level selection was made on."""
    windowed = [row for row in rows if row.window is not None and row.is_selected_here]
    return table_of("The window", _WINDOWS, windowed, [_OF_WINDOW])


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
    names("grid", lambda entry: _first(entry[0], lambda first: _shape(first.grid))),
    names("block", lambda entry: _first(entry[0], lambda first: _shape(first.block))),
]


def groups_table(key: str, selection: SelectionDocument | None) -> Table:
    """The largest groups of a selection, with their first representative; empty for a single group."""
    groups = selection.groups if selection is not None and len(selection.groups) > 1 else []
    total = sum(group.launches for group in groups) or 1
    largest = sorted(groups, key=lambda group: (-group.launches, group.id))[:_GROUPS_SHOWN]
    shown = f"The {len(largest)} largest of {len(groups):,} groups; launch is 0-based in API order."
    return table_of(f"Groups of {key}", _GROUPS, [(group, total) for group in largest], [shown])


def _instruction_share(group: GroupEntry) -> str:
    share = group.instruction_share
    return percent(None if share is None else 100.0 * share)


def _shape(sizes: list[int]) -> str:
    return " x ".join(map(str, sizes)) if all(sizes) else ABSENT


def _first(group: GroupEntry, shown: Callable[[RepresentativeEntry], str]) -> str:
    return shown(group.representatives[0]) if group.representatives else ABSENT


_SLICES: list[Filled[tuple[int, SliceEntry]]] = [
    numbers("slice", lambda entry: count(entry[0])),
    numbers("from launch", lambda entry: count(entry[1].first_launch)),
    numbers("launches", lambda entry: count(entry[1].launches)),
    numbers("new light time", lambda entry: percent(entry[1].new_time_percent), "%"),
    numbers("unseen after it", lambda entry: percent(entry[1].unseen_time_percent), "%"),
    numbers("expected", lambda entry: f"{entry[1].expected_seconds:,.1f}", "s"),
    names("measured", lambda entry: "yes" if entry[1].measured else "no"),
]
_SLICES_SUMMARY: list[Filled[ChosenSlicesEntry]] = [
    names("workload", lambda entry: entry.workload, clips=True),
    names("GPU", lambda entry: entry.device, clips=True),
    numbers("slices measured", lambda entry: count(sum(piece.measured for piece in entry.slices))),
    numbers("of", lambda entry: count(len(entry.slices))),
    numbers("launches", lambda entry: count(sum(p.launches for p in entry.slices if p.measured))),
    numbers("unseen", lambda entry: percent(entry.unseen_time_percent), "%"),
    numbers("may stay unseen", lambda entry: percent(entry.most_unseen_time_percent), "%"),
    names("no more because", lambda entry: _ENDINGS[entry.ending]),
]


def slices_tables(report: Report, workload: str) -> list[Table]:
    """For each GPU of a workload, the slices in the order in which they were measured, and why."""
    return [_slices_table(entry) for entry in report.chosen_slices if entry.workload == workload]


def slices_summary(entries: Sequence[ChosenSlicesEntry]) -> Table:
    """How many slices each workload took on each GPU, and what they leave unseen."""
    return table_of("Slices chosen from the light run", _SLICES_SUMMARY, entries, [_OF_SLICES])


def _slices_table(entry: ChosenSlicesEntry) -> Table:
    cost = entry.cost
    notes = [
        f"Chosen from {entry.light_run} ({entry.launches:,} launches): each time the slice of the most new "
        f"light time per second, until {_ENDINGS[entry.ending]}.",
        f"By the model, in {len(entry.runs)} runs together: {cost.start_seconds:g} s to start, "
        f"{1e3 * cost.skipped_launch_seconds:.3g} ms a skipped launch, "
        f"{1e3 * cost.profiled_launch_seconds:.3g} ms a profiled launch.",
    ]
    if len(entry.slices) > _SLICES_SHOWN:
        notes.append(f"The first {_SLICES_SHOWN} of {len(entry.slices):,} slices; JSON has all.")
    shown = list(enumerate(entry.slices[:_SLICES_SHOWN], start=1))
    return table_of(f"Slices chosen for {entry.workload} on {entry.device}", _SLICES, shown, notes)
