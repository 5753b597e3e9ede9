"""Small segments that the database holds until their attempt has ended."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_server.store import tables
from assay_server.store.model import HeldSegment, Segment

_UNENDED = (AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED)


def key_of(key: AttemptKey) -> dict[str, Any]:
    """The parameters that name an attempt."""
    return {"run_id": key.run_id, "slice": key.slice_index, "attempt": key.attempt}


def values_of(segment: Segment, held: HeldSegment) -> dict[str, Any]:
    """The columns of a segment that is held."""
    return {
        "run_id": segment.run_id,
        "slice": segment.slice,
        "attempt": segment.attempt,
        "index": segment.index,
        "names": held.names,
        "launches": held.launches,
    }


@cache
def of_attempt() -> sa.Select[Any]:
    """The segments that are held for an attempt."""
    h = tables.held_segments.c
    return sa.select(h.index, h.names, h.launches).where(*_is_of_attempt())


@cache
def releasing() -> sa.Delete:
    """Removes what is held for an attempt."""
    return sa.delete(tables.held_segments).where(*_is_of_attempt())


def release_ended(connection: sa.Connection) -> None:
    """Remove what is held for attempts that have ended."""
    h, a = tables.held_segments.c, tables.attempts.c
    of_one = (a.run_id == h.run_id, a.slice == h.slice, a.attempt == h.attempt)
    unended = sa.exists().where(*of_one, a.state.in_([str(state) for state in _UNENDED]))
    connection.execute(sa.delete(tables.held_segments).where(~unended))


def _is_of_attempt() -> tuple[sa.ColumnElement[bool], ...]:
    h = tables.held_segments.c
    return tuple(column == sa.bindparam(column.name) for column in (h.run_id, h.slice, h.attempt))
