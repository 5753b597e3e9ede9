"""Columns that several tables of a report share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from assay_report.model.common import FlagEntry, Outcome, Placed
from assay_report.model.compared import Compared, ComparedRuns
from assay_report.model.scores import Row, SummaryEntry
from assay_report.tables.table import Cell, Filled, names, sentences
from assay_report.texts import (
    ABSENT,
    assumed,
    condition_in_words,
    condition_text,
    flags_text,
    state_text,
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
        found = of(entry)
        behind = assumed(found.flags)
        if isinstance(found, ComparedRuns) and found.under_mps:
            behind += ", MPS"
        return condition_cell(found.condition, behind)

    return names(CONDITION, cell, shared=True, brief="condition")


def condition_cell(found: ConditionEntry | None, behind: str = "") -> Cell:
    """A condition, with ``behind`` after it."""
    if found is None:
        return Cell(ABSENT)
    return Cell(condition_text(found) + behind, condition_in_words(found) + behind)


def status(of: Callable[[Entry], Outcome]) -> Filled[Entry]:
    """The status with its reason; the brief form leaves out ``ok``."""

    def cell(entry: Entry) -> Cell:
        found = of(entry)
        return Cell(state_text(found), "" if found.status == "ok" else found.status)

    return sentences("status", cell)


def flags(of: Callable[[Entry], list[FlagEntry]]) -> Filled[Entry]:
    """The flags with their details."""
    return sentences("flags", lambda entry: flags_text(of(entry)), optional=True)
