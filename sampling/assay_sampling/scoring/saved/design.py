"""The design of a sample as a selection's document has it.

Source: docs/selection-format.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay_sampling.documents.selection import RepresentativeEntry, SelectionDocument
from assay_sampling.estimation.sample_design import COUNTED_DRAWS, SampleDesign

# More than any sampling draws; 64-bit numbers hold their sum.
_MOST_DRAWS = 1 << 40


def design_of(document: SelectionDocument, entries: Sequence[RepresentativeEntry]) -> SampleDesign | None:
    """How the representatives, ``entries`` in the order of their groups, were drawn; None if the document
    does not say it.

    Raises ValueError for numbers that cannot be.
    """
    if document.drawing is None:
        return None
    groups = document.groups
    kernels = [group.kernels for group in groups]
    variation = [group.cost_cov for group in groups]
    counted = document.drawing in COUNTED_DRAWS
    if counted and any(entry.draws is None for entry in entries):
        raise ValueError(f"drawing is {document.drawing}, and a representative has no draws")
    if not counted and any(entry.draws is not None for entry in entries):
        raise ValueError(f"a representative has draws, and drawing is {document.drawing}")
    if document.drawing == "rule":
        kernels, variation = [None] * 0, [None] * 0
    elif None in kernels or None in variation:
        return None
    return SampleDesign(
        drawing=document.drawing,
        launches=np.array([group.launches for group in groups], np.int64),
        kernels=np.array(kernels, np.int64),
        cost_cov=_amounts(variation, "a variation"),
        light_time=_all_or_none([entry.light_time for entry in entries], "a light time"),
        draws=_draws([entry.draws for entry in entries]),
        launches_without_time=_whole_number(document.launches_without_time, "launches_without_time"),
    )


def _all_or_none(values: Sequence[float | None], what: str) -> np.ndarray | None:
    return None if None in values else _amounts(values, what)


def _amounts(values: Sequence[float | None], what: str) -> np.ndarray:
    amounts = np.array(values, np.float64)
    if not np.isfinite(amounts).all() or bool((amounts < 0).any()):
        raise ValueError(f"{what} is negative or not a number")
    return amounts


def _whole_number(value: int | None, what: str) -> int:
    if value is not None and not 0 <= value <= _MOST_DRAWS:
        raise ValueError(f"{what} is negative or too large")
    return value or 0


def _draws(values: Sequence[int | None]) -> np.ndarray | None:
    draws = [value for value in values if value is not None]
    if not draws:
        return None
    if len(draws) < len(values) or min(draws) < 0:
        raise ValueError("the draws of a representative are missing or negative")
    if max(draws) > _MOST_DRAWS:
        raise ValueError(f"a representative has more than {_MOST_DRAWS:,} draws")
    return np.array(draws, np.int64)
