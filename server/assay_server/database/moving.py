"""Moving the metadata of a stopped server from SQLite to PostgreSQL, and back.

Everything is copied and compared first. One durable step at the end puts the new database in force; whatever
interrupts the move before that leaves the old one in force, and the move can be done again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay_core.files.durable import replace, storage_errors, sync_directory
from assay_sampling.errors import ParameterError, StorageError
from assay_server.database.copying import Progress, copy_rows, has_rows
from assay_server.database.opening import AskedDatabase, number_of_state, open_leading, opened_alone
from assay_server.database.state_notes import (
    SQLITE_FILE,
    DatabaseInForce,
    note_database,
    noted_database,
    remove_note,
)
from assay_server.state_lock import locked_state
from assay_server.store.sqlite import SqliteStore
from assay_server.store.tables import STATE_NUMBER
from assay_server.store.transactions import NothingKeptError, OutcomeUnknownError

_EMPTY = "name an empty one: createdb --owner USER --encoding UTF8 --locale C --template template0 NAME"
_NEW = f"{SQLITE_FILE}.moving"


@dataclass(frozen=True)
class Moved:
    """What was moved; ``kept``: SQLite's old file, under its new name."""

    rows: int
    to: str
    kept: Path | None = None


def move_to_postgresql(state: Path, settings: AskedDatabase, progress: Progress) -> Moved:
    """Move a state's metadata from SQLite to a PostgreSQL database.

    Raises StorageError if a server has either of them, the database has other campaigns, or a copy differs.
    """
    place = settings.place
    assert place is not None
    with _stopped(state), _nothing_moved(state):
        if noted_database(state) is not None:
            raise ParameterError(
                "--to", "the metadata are in PostgreSQL already", "move them --to sqlite first"
            )
        with (
            contextlib.closing(SqliteStore(state / SQLITE_FILE)) as source,
            contextlib.closing(opened_alone(place)) as target,
        ):
            source.require_sound()
            number = number_of_state(source)
            with source.snapshot() as read, target.transaction() as write:
                theirs = write.number(STATE_NUMBER)
                # Our own rows are those of an earlier move, of which another one is in force since.
                if theirs != number and (theirs is not None or has_rows(write.connection)):
                    raise StorageError(place.shown, "it has the campaigns of another state folder", _EMPTY)
                rows = copy_rows(read.connection, write.connection, progress)
        note_database(state, place, settings.file, number)
        old_database = state / f"{SQLITE_FILE}.moved-{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}"
        with storage_errors(state):
            replace(state / SQLITE_FILE, old_database)
            sync_directory(state)
    return Moved(rows, place.shown, old_database)


def move_to_sqlite(state: Path, settings: AskedDatabase, progress: Progress) -> Moved:
    """Move a state's metadata from PostgreSQL to SQLite's file in the state folder. Raises StorageError."""
    with _stopped(state), _nothing_moved(state):
        if noted_database(state) is None:
            raise ParameterError(
                "--to", "the metadata are in SQLite already", "name a database to move them to"
            )
        new = state / _NEW
        _remove(new)
        try:
            with (
                contextlib.closing(open_leading(state, settings)) as source,
                contextlib.closing(SqliteStore(new)) as target,
                source.snapshot() as read,
                target.transaction() as write,
            ):
                rows = copy_rows(read.connection, write.connection, progress)
            with storage_errors(new):
                replace(new, state / SQLITE_FILE)
                sync_directory(state)
        finally:
            _remove(new)
        remove_note(state, DatabaseInForce)
    return Moved(rows, str(state / SQLITE_FILE))


@contextlib.contextmanager
def _stopped(state: Path) -> Iterator[None]:
    if not (state / SQLITE_FILE).exists() and noted_database(state) is None:
        raise StorageError(str(state), "there is no state of an assay-server", "name its --state folder")
    with locked_state(state):
        yield


@contextlib.contextmanager
def _nothing_moved(state: Path) -> Iterator[None]:
    """Say of a database that went away in the middle what that means for a move."""
    before = noted_database(state)
    try:
        yield
    except (NothingKeptError, OutcomeUnknownError) as error:
        if noted_database(state) != before:
            raise
        remedy = "nothing was moved, and the old database is still in force: move again when it answers"
        raise StorageError(error.subject, error.cause, remedy) from error


def _remove(path: Path) -> None:
    with storage_errors(path):
        for suffix in ("", "-wal", "-shm", "-journal"):
            path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
