"""What the rows of a figure or table are, in words: launches of kernels, or operations of strata."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowWords:
    """One row, several, and what tells them apart, one and several."""

    one: str
    several: str
    kind: str
    kinds: str


LAUNCHES = RowWords("launch", "launches", "kernel", "kernels")
OPERATIONS = RowWords("operation", "operations", "kind of operation", "kinds of operations")
