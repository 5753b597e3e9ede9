"""The lead among the servers of one PostgreSQL database: one server is active, others stand by.

A row says who leads, in which epoch, and until when by the database's clock. The leader renews it every two
seconds; once it has expired, a standby takes it over with the next epoch. Each transaction of the leader that
wrote locks the row of its epoch FOR KEY SHARE before its commit. A renewal changes no key and waits for no
writer; a takeover changes the key, so it waits for them, and whoever led before finds no row of its epoch and
commits nothing.

Source: PostgreSQL 15 documentation, 13.3.2 "Row-Level Locks".
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

import psycopg
import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.places import DatabasePlace
from assay_server.store.migrate import upgrade
from assay_server.store.postgresql.connections import (
    END_WRITERS,
    TAKE_WRITER_LOCK,
    new_engine,
    require_fit,
)
from assay_server.store.postgresql.refusals import refusal

_log = logging.getLogger(__name__)

LEAD_SECONDS, _RENEWAL_SECONDS = 5.0, 2.0
_LOOK_SECONDS, _LOOK_AGAIN_SECONDS = 1.0, 0.2
_WRITER_SECONDS = 2  # how long a takeover waits for transactions of the one that led before
_LONG_AGO = "timestamptz '2000-01-01 00:00+00'"  # Python knows no infinite time
_MAKE = (
    "CREATE TABLE IF NOT EXISTS assay_leader (epoch bigint PRIMARY KEY, holder text NOT NULL, "
    "expires_at timestamptz NOT NULL)"
)
_HAS_TABLE = "SELECT to_regclass(quote_ident(current_schema()) || '.assay_leader') IS NOT NULL"
_FIRST = f"INSERT INTO assay_leader SELECT 0, '', {_LONG_AGO} WHERE NOT EXISTS (SELECT FROM assay_leader)"
_UNTIL = f"clock_timestamp() + interval '{LEAD_SECONDS} s'"
_TAKE = (
    f"UPDATE assay_leader SET epoch = epoch + 1, holder = %s, expires_at = {_UNTIL} "
    "WHERE expires_at <= clock_timestamp() RETURNING epoch"
)
_READ = (
    f"SELECT holder, expires_at, expires_at <= clock_timestamp(), expires_at = {_LONG_AGO} FROM assay_leader"
)
_RENEW = f"UPDATE assay_leader SET expires_at = {_UNTIL} WHERE epoch = %s"
_RELEASE = f"UPDATE assay_leader SET expires_at = {_LONG_AGO} WHERE epoch = %s"
# A database that does not answer is noticed within four seconds.
_IMPATIENT = {
    "connect_timeout": 2,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "tcp_user_timeout": 4_000,
}
_LOCK_TIMEOUT = f"SET lock_timeout = '{_WRITER_SECONDS}s'"


class LeadLostError(StorageError):
    """Another server leads the database now: this one must not write, and ends."""


@dataclass(frozen=True)
class _Row:
    """The leader's row; ``was_released``: its holder left the lead in order."""

    holder: str
    expires_at: datetime
    has_expired: bool
    was_released: bool


class Lead:
    """The lead, renewed by a thread until :meth:`release`. ``on_lost`` is called once, from any thread."""

    def __init__(self, place: DatabasePlace, epoch: int) -> None:
        self.on_lost: Callable[[LeadLostError], None] = lambda error: None
        self._place, self._epoch = place, epoch
        self._ending, self._lost = threading.Event(), threading.Event()
        self._renewed_at = time.monotonic()
        self._thread = threading.Thread(target=self._renew_regularly, name="assay-lead", daemon=True)
        self._thread.start()

    @property
    def is_held(self) -> str:
        """SQL that is true and keeps others from the lead until the transaction ends; null: they have it."""
        return f"(SELECT true FROM assay_leader WHERE epoch = {self._epoch} FOR KEY SHARE)"

    def lost(self) -> LeadLostError:
        """The error of a transaction that found others in the lead."""
        error = LeadLostError(
            self._place.shown,
            "another assay-server leads this database now",
            "nothing was lost; this one ends: start it again, and with --records it stands by",
        )
        if not self._lost.is_set():
            self._lost.set()
            self.on_lost(error)
        return error

    @property
    def silent_seconds(self) -> float:
        """How long ago it was renewed."""
        return time.monotonic() - self._renewed_at

    def release(self) -> None:
        """Leave the lead to others at once, if the database answers."""
        self._ending.set()
        self._thread.join(LEAD_SECONDS)
        if self._lost.is_set() or self._thread.is_alive():
            return
        with contextlib.suppress(StorageError), _asking(self._place) as connection:
            connection.exec_driver_sql(_RELEASE, (self._epoch,))

    def _renew_regularly(self) -> None:
        pause_seconds = _RENEWAL_SECONDS
        while not self._ending.wait(pause_seconds):
            try:
                with _asking(self._place) as connection:
                    while connection.exec_driver_sql(_RENEW, (self._epoch,)).rowcount:
                        pause_seconds, self._renewed_at = _RENEWAL_SECONDS, time.monotonic()
                        if self._ending.wait(_RENEWAL_SECONDS):
                            return
            except StorageError as error:
                if pause_seconds != _LOOK_AGAIN_SECONDS:
                    _log.warning("the lead is not renewed, and tried again: %s", error)
                pause_seconds = _LOOK_AGAIN_SECONDS  # before a standby takes it
            except Exception:  # noqa: BLE001 - this thread must outlive every fault
                _log.exception("the lead is not renewed, and tried again")
            else:
                self.lost()
                return


def taken_lead(place: DatabasePlace) -> Lead:
    """The lead, unless a server that lives has it. Raises StorageError.

    Waits for a renewal, or until the lead of a server that was killed has expired.
    """
    with _prepared(place) as connection:
        row, epoch = _looked(connection, place, None)
        first_expires_at = row.expires_at
        while epoch is None:
            if row.expires_at > first_expires_at:
                raise StorageError(
                    place.shown,
                    f"another assay-server uses this database ({row.holder})",
                    "stop that server, or give this one a database of its own; servers that are both started "
                    "with --records stand by for one another",
                )
            time.sleep(_LOOK_SECONDS if row.has_expired else _LOOK_AGAIN_SECONDS)
            row, epoch = _looked(connection, place, row)
    return Lead(place, epoch)


def awaited_lead(
    place: DatabasePlace,
    is_ending: Callable[[], bool],
    standing_by: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Lead | None:
    """The lead, as soon as nobody else has it; None if the wait, inside ``standing_by``, was ended.

    Raises StorageError if the database cannot be used at the start; after that a standby waits for it.
    """
    with _prepared(place) as connection:
        row, epoch = _looked(connection, place, None)
    if epoch is None:
        with standing_by():
            epoch = _awaited(place, row, is_ending)
    return None if epoch is None else Lead(place, epoch)


def _awaited(place: DatabasePlace, row: _Row | None, is_ending: Callable[[], bool]) -> int | None:
    holder, epoch = None, None
    while epoch is None and not is_ending():
        if row is not None and row.holder != holder:
            holder = row.holder
            _log.warning("standing by: %s leads %s", holder, place.shown)
        time.sleep(_LOOK_SECONDS)
        try:
            with _asking(place) as connection:
                row, epoch = _looked(connection, place, row)
        except StorageError as error:
            if row is not None:
                _log.warning("standing by: %s", error)
            row = None
    return epoch


def _looked(connection: sa.Connection, place: DatabasePlace, before: _Row | None) -> tuple[_Row, int | None]:
    """The row, and the epoch of the lead if it was left, or had expired at the look before, too.

    So a leader that lost the database for as long as a standby did can renew first.
    """
    row = _read(connection, place)
    may_take = row.was_released or (before is not None and before.has_expired)
    return row, _taken(connection, row) if may_take else None


def _read(connection: sa.Connection, place: DatabasePlace) -> _Row:
    rows = connection.exec_driver_sql(_READ).all()
    if len(rows) != 1:
        raise StorageError(
            place.shown,
            f"its table assay_leader has {len(rows)} rows instead of one",
            "DROP TABLE assay_leader; the next server to start makes it",
        )
    return _Row(*rows[0])


def _taken(connection: sa.Connection, row: _Row) -> int | None:
    """Take the lead if it has expired; its epoch."""
    if not row.has_expired:
        return None
    if not row.was_released:
        # Its holder may stand still, or be out of reach, in the middle of a transaction.
        connection.exec_driver_sql(END_WRITERS)
    connection.exec_driver_sql(_LOCK_TIMEOUT)
    mine = f"{socket.gethostname()}, process {os.getpid()}"
    epoch: int | None = connection.exec_driver_sql(_TAKE, (mine,)).scalar()
    return epoch


@contextlib.contextmanager
def _prepared(place: DatabasePlace) -> Iterator[sa.Connection]:
    """A connection, after the database was found fit and has the row. Raises StorageError."""
    with _asking(place) as connection:
        require_fit(connection, place.shown)
        if not connection.exec_driver_sql(_HAS_TABLE).scalar():
            _make(connection, place.shown)
        yield connection


def _make(connection: sa.Connection, subject: str) -> None:
    for command in ("BEGIN", TAKE_WRITER_LOCK):
        connection.exec_driver_sql(command)
    upgrade(connection, subject, "--database")  # it refuses another program's database
    for command in (_MAKE, _FIRST, "COMMIT"):
        connection.exec_driver_sql(command)


@contextlib.contextmanager
def _asking(place: DatabasePlace) -> Iterator[sa.Connection]:
    """A connection that gives up quickly, because the lead expires meanwhile. Raises StorageError."""
    engine = new_engine(place, **_IMPATIENT)
    try:
        with engine.connect() as connection:
            yield connection
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        raise refusal(place.shown, error) from error
    finally:
        engine.dispose()
