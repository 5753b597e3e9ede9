"""Opening the database of a state folder, whichever it is."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay_sampling.errors import ParameterError, StorageError
from assay_server.database.copying import has_rows
from assay_server.database.state_notes import (
    SQLITE_FILE,
    DatabaseInForce,
    note_database,
    noted_database,
)
from assay_server.places import DatabasePlace, database_place, database_place_in_file, require_package
from assay_server.signals import StandbyEndedError
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from assay_server.store.tables import STATE_NUMBER

if TYPE_CHECKING:
    from assay_server.store.postgresql.lead import Lead
    from assay_server.store.postgresql.store import PostgresqlStore


@dataclass(frozen=True)
class AskedDatabase:
    """What settings ask for; ``place`` None: the database that the state folder notes.

    ``shared``: the records are where other servers reach them, too, so they may stand by for one another.
    ``joins``: whether the records are those of the state with this number, so that a new folder may join.
    ``records``: the place of these records, for people.
    """

    place: DatabasePlace | None = None
    file: Path | None = None
    shared: bool = False
    joins: Callable[[int], bool] = lambda number: False
    records: str = ""


def asked_database(database: str, file: Path | None) -> AskedDatabase:
    """What the settings ``--database`` and ``--database-file`` ask for. Raises ParameterError."""
    if database and file is not None:
        raise ParameterError("--database-file", "--database is given too", "give one of them")
    if file is not None:
        return AskedDatabase(database_place_in_file(file), file)
    return AskedDatabase(database_place(database) if database else None)


def place_in_force(state: Path, settings: AskedDatabase) -> DatabasePlace | None:
    """Where the metadata of a state folder are, or will be; None: in SQLite's file.

    Raises StorageError if the folder has campaigns in SQLite and another database is asked for.
    """
    noted = noted_database(state)
    if noted is not None:
        return settings.place or noted.place
    if settings.place is not None and (state / SQLITE_FILE).exists():
        raise StorageError(
            str(state),
            f"its metadata are in {SQLITE_FILE}, not in {settings.place.shown}",
            "move them: assay-server move --to URL --state DIR; or leave --database out",
        )
    return settings.place


def awaited_lead_of(
    state: Path,
    settings: AskedDatabase,
    is_ending: Callable[[], bool] = lambda: False,
    standing_by: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Lead | None:
    """The lead of the database of a state folder; None if it has none: SQLite's folder is locked.

    A server whose records others reach, too, stands by while another leads, until it is ending and inside the
    block ``standing_by``; any other is refused then. Raises
    StorageError, and StandbyEndedError if the wait was ended.
    """
    place = place_in_force(state, settings)
    if place is None:
        return None
    require_package("psycopg", "postgresql")
    from assay_server.store.postgresql.lead import awaited_lead, taken_lead  # noqa: PLC0415 - loads libpq

    if not settings.shared:
        return taken_lead(place)
    lead = awaited_lead(place, is_ending, standing_by)
    if lead is None:
        raise StandbyEndedError
    return lead


def open_leading(state: Path, settings: AskedDatabase = AskedDatabase()) -> SqliteStore | PostgresqlStore:
    """As :func:`open_database`, for who works alone on a locked folder: a server is refused meanwhile."""
    return open_database(state, settings, awaited_lead_of(state, replace(settings, shared=False)))


def open_database(
    state: Path, settings: AskedDatabase = AskedDatabase(), lead: Lead | None = None
) -> SqliteStore | PostgresqlStore:
    """The database of a state folder. ``lead``: of PostgreSQL, for its server; closed with it.

    A new folder and an empty database are bound to each other. Raises StorageError, also if the database has
    the campaigns of another folder.
    """
    place = place_in_force(state, settings)
    if place is None:
        return SqliteStore(state / SQLITE_FILE)
    store = opened_place(place, lead)
    try:
        _bind(state, settings, place, store)
    except BaseException:
        store.close()
        raise
    return store


def number_of_state(store: MetadataStore) -> int:
    """The number of a state, which it is given when it is first asked for. Raises StorageError."""
    with store.transaction() as write:
        number = write.number(STATE_NUMBER)
        if number is None:
            number = 1 + secrets.randbelow((1 << 62) - 1)  # which no other state has
            write.keep_number(STATE_NUMBER, number)
    return number


def opened_place(place: DatabasePlace, lead: Lead | None = None) -> PostgresqlStore:
    """A PostgreSQL database. Raises StorageError, and MissingExtraError without its packages."""
    require_package("psycopg", "postgresql")
    from assay_server.store.postgresql.store import PostgresqlStore  # noqa: PLC0415 - loads libpq

    return PostgresqlStore(place, lead=lead)


def opened_alone(place: DatabasePlace) -> PostgresqlStore:
    """A PostgreSQL database for who works alone on it. Raises StorageError, also if a server has it."""
    require_package("psycopg", "postgresql")
    from assay_server.store.postgresql.lead import taken_lead  # noqa: PLC0415 - loads libpq

    return opened_place(place, taken_lead(place))


def _bind(state: Path, settings: AskedDatabase, place: DatabasePlace, store: PostgresqlStore) -> None:
    """Make sure that the folder and the database belong together."""
    noted = noted_database(state)
    with store.snapshot() as read:
        number, is_empty = read.number(STATE_NUMBER), not has_rows(read.connection, beside_number=True)
    if noted is not None and number == noted.state:
        if settings.place is not None and _has_new_address(noted, settings):
            note_database(state, settings.place, settings.file, number)
        return
    may_join = is_empty or (number is not None and settings.shared and settings.joins(number))
    if noted is None and not may_join and noted_database(state) is not None:
        # A server that started at this moment has bound the two since the note was looked for.
        _bind(state, settings, place, store)
        return
    if noted is not None or not may_join:
        belongs = "it is empty" if number is None else "it has the campaigns of another state folder"
        remedy = "name the right database; to start anew, name an empty one and a new --state directory"
        if noted is None and settings.records:
            belongs += f", whose records are not in {settings.records}"
            theirs = "to join its servers, name their bucket and prefix, or folder, with --records"
            remedy = f"{theirs}; or {remedy}"
        raise StorageError(place.shown, f"it is not the database of {state}: {belongs}", remedy)
    note_database(state, place, settings.file, number_of_state(store))


def _has_new_address(noted: DatabaseInForce, settings: AskedDatabase) -> bool:
    """Whether the database has another address now, so that verbs without it find it too."""
    file = "" if settings.file is None else str(settings.file.absolute())
    return settings.place is not None and (noted.url, noted.file) != (settings.place.without_secret, file)
