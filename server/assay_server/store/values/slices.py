"""Slices and their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay_server.store import statements
from assay_server.store.model import Slice, SliceState, SliceTime
from assay_server.store.values.fields import Row
from assay_server.store.values.runs import command_of


def slice_of(row: Row) -> Slice:
    """The slice of a row that may have other columns too."""
    values = {column.name: row[column.name] for column in statements.SLICE}
    return Slice(**{**values, "state": SliceState(row["state"])})


def slice_values(piece: Slice) -> dict[str, Any]:
    """The row of a slice without its place in the queue."""
    return {**vars(piece), "state": str(piece.state)}


def slice_time_of(row: Row) -> SliceTime:
    """The time of a slice, of a row."""
    values = {**row, "command": command_of(row["command"]), "counters": tuple(row["counters"])}
    return SliceTime(**values)


def states_of(rows: Sequence[Row]) -> frozenset[SliceState]:
    """The states in these rows."""
    return frozenset(SliceState(row["state"]) for row in rows)
