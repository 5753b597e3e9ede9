"""Tables of two-level selections: the window, and the models that label the launches after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay_report.model.scores import (
    ChosenModel,
    LabelModel,
    Row,
    Unknown,
)
from assay_report.tables import shared_columns as shared
from assay_report.tables.accuracies import HOW_HELD_OUT, accuracies
from assay_report.tables.table import Filled, Table, names, numbers, table_of
from assay_report.texts import (
    ABSENT,
    count,
    percent,
    ratio,
)
from assay_sampling.documents.by_method import Window


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
    *accuracies(lambda entry: entry.model),
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
        "Models that label the launches after the window", _MODELS, entries, [HOW_HELD_OUT]
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
    numbers("unknown launches", lambda entry: _unknown(entry.row, lambda unknown: unknown.launches)),
    numbers("unknown signatures", lambda entry: _unknown(entry.row, lambda unknown: unknown.groups)),
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
