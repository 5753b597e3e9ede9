"""Columns that several tables of a report share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from assay_report.model.common import FlagEntry, Judged, Outcome, Placed
from assay_report.model.compared import Compared, ComparedRuns
from assay_report.model.scores import Row, SummaryEntry
from assay_report.tables.table import Cell, Filled, names, numbers, sentences
from assay_report.texts import (
    ABSENT,
    assumed,
    condition_in_words,
    condition_text,
    flags_text,
    judged_text,
    percent,
    state_text,
    text,
)
from assay_sampling.documents.common import ConditionEntry

Entry = TypeVar("Entry")

CONDITION = "cache, clock, SMs"


def workload(of: Callable[[Entry], Placed]) -> Filled[Entry]:
    """The workload."""
    return names("workload", lambda entry: of(entry).workload, clips=True)


def gpu(of: Callable[[Entry], Placed]) -> Filled[Entry]:
    """The kind of GPU."""
    return names("GPU", lambda entry: of(entry).device, clips=True)


def condition(of: Callable[[Entry], Compared | Row | SummaryEntry]) -> Filled[Entry]:
    """The condition, and whether it is assumed or under MPS."""

    def cell(entry: Entry) -> Cell:
        run = of(entry)
        behind = assumed(run.flags)
        if isinstance(run, ComparedRuns) and run.under_mps:
            behind += ", MPS"
        return condition_cell(run.condition, behind)

    return names(CONDITION, cell, shared=True, brief="condition")


def condition_cell(entry: ConditionEntry | None, behind: str = "") -> Cell:
    """A condition, with ``behind`` after it."""
    if entry is None:
        return Cell(ABSENT)
    return Cell(condition_text(entry) + behind, condition_in_words(entry) + behind)


def selected_on(of: Callable[[Entry], Row]) -> Filled[Entry]:
    """The kind of GPU that the selection was made on."""
    return names(
        "selected on",
        lambda entry: text(getattr(of(entry).selected_on, "device", None)),
        shared=True,
        clips=True,
    )


def status(of: Callable[[Entry], Outcome]) -> Filled[Entry]:
    """Whether the error is within the target, or why there is none; the brief form says only what is not."""

    def cell(entry: Entry) -> Cell:
        outcome = of(entry)
        if outcome.status != "ok":
            return Cell(state_text(outcome), outcome.status, "refused")
        above = is_above(outcome)
        return Cell(state_text(outcome), judged_text(outcome) if above else "", "above" if above else "")

    return sentences("status", cell)


def is_above(entry: Outcome) -> bool:
    """Whether its error is above the campaign's target."""
    return isinstance(entry, Judged) and entry.within_target is False


def error(title: str, of: Callable[[Entry], tuple[Judged, float | None]]) -> Filled[Entry]:
    """An error in percent, marked where the entry is above the campaign's target."""

    def cell(entry: Entry) -> Cell:
        judgement, value = of(entry)
        return Cell(percent(value), mark="above" if is_above(judgement) else "")

    return numbers(title, cell, "%")


def flags(of: Callable[[Entry], list[FlagEntry]]) -> Filled[Entry]:
    """The flags with their details."""
    return sentences("flags", lambda entry: flags_text(of(entry)), optional=True)
