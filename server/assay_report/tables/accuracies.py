"""Columns of held-out accuracies, which the summary and the table of models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from assay_report.tables.table import Filled, numbers
from assay_report.texts import (
    ABSENT,
    percent,
)
from assay_sampling.documents.by_method import Accuracies

Entry = TypeVar("Entry")

HOW_HELD_OUT = (
    "Chronological: the first 80 % of the window predict the last 20 %; grouped: no signature on both "
    "sides; balanced: mean over groups; expected: both kinds by their light time after the window, which "
    "chooses the model."
)


def accuracies(of: Callable[[Entry], Accuracies | None]) -> list[Filled[Entry]]:
    """Held-out accuracies of a model; left out where no entry has one."""

    def column(title: str, value: Callable[[Accuracies], float | None]) -> Filled[Entry]:
        def cell(entry: Entry) -> str:
            scores = of(entry)
            return ABSENT if scores is None else percent(value(scores))

        return numbers(title, cell, "%", optional=True)

    return [
        column("accuracy, expected", lambda scores: scores.expected_accuracy_percent),
        column("accuracy, chronological", lambda scores: scores.chronological_accuracy_percent),
        column("chronological, balanced", lambda scores: scores.chronological_balanced_accuracy_percent),
        column("accuracy, grouped", lambda scores: scores.grouped_accuracy_percent),
        column("grouped, balanced", lambda scores: scores.grouped_balanced_accuracy_percent),
    ]
