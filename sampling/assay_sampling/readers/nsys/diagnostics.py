"""Notes from Nsight Systems' own table of diagnostics.

Reports errors and warnings, and messages of any severity about lost or doubtful events; leaves out news
such as "Profiling has started.". Source: ENUM_DIAGNOSTIC_SEVERITY_LEVEL of exports of 2025 and 2026
(1: info, 2: warning, 3: error, 4: verbose).
"""

from __future__ import annotations

from collections.abc import Iterator

from assay_sampling.notes.registry import Note, make_note
from assay_sampling.readers.base import said_by_profiler
from assay_sampling.readers.nsys.database import Database

_TABLE = "DIAGNOSTIC_EVENT"
_LOST = "text LIKE '%drop%' OR text LIKE '%lost%'"
_DOUBT = "text LIKE 'Not all CUDA events %'"
_WARNING, _ERROR = 2, 3
_MOST_LOST, _MOST_MESSAGES, _MOST_CHARACTERS = 3, 20, 300


def diagnostics(database: Database) -> Iterator[Note]:
    """Losses and doubts first, then errors, then warnings, each message once, at most 20 of these."""
    if not database.has(_TABLE, "text"):
        return
    yield from (said_by_profiler(text) for text in _texts(database, _LOST, _MOST_LOST))
    yield from (make_note("profiler_doubt", message=text) for text in _texts(database, _DOUBT, _MOST_LOST))
    if not database.has(_TABLE, "severity"):
        return
    condition = f"severity IN ({_WARNING}, {_ERROR}) AND typeof(text) = 'text' AND NOT ({_LOST} OR {_DOUBT})"
    texts = _texts(database, condition, _MOST_MESSAGES, order="max(severity) DESC, min(rowid)")
    yield from (make_note("profiler_message", message=text) for text in texts)
    row = database.first(f"SELECT count(DISTINCT text) FROM {_TABLE} WHERE {condition}")
    if row is not None and row[0] > _MOST_MESSAGES:
        yield make_note("messages_left_out", messages=int(row[0]) - _MOST_MESSAGES)


def _texts(database: Database, where: str, most: int, order: str = "min(rowid)") -> list[str]:
    query = (
        f"SELECT substr(text, 1, {_MOST_CHARACTERS}) FROM {_TABLE} WHERE {where} "
        f"GROUP BY text ORDER BY {order} LIMIT {most}"
    )
    return [" ".join(str(row[0]).split()) for rows in database.rows(query) for row in rows]
