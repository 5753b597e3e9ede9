"""Servers on one PostgreSQL database: LISTEN and NOTIFY, session-level advisory locks, and its clock.

Sources: PostgreSQL 15 documentation, "NOTIFY" (a notification is sent when its transaction commits, with a
payload below 8,000 bytes) and 9.27.10 "Advisory Lock Functions" (locks of a session end with it).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.peers.interface import Hear
from assay_server.store.postgresql.place import DatabasePlace
from assay_server.store.postgresql.refusals import refusal
from assay_server.store.postgresql.store import new_engine
from assay_server.store.sql import SqlTransaction

_log = logging.getLogger(__name__)

# "ASSC" and "ASSD" in ASCII: a server is there; a server starts.
_MEMBER, _STARTING = 0x41535343, 0x41535344
_HERE = "hashtext(current_schema())"
_NAMED = "hashtextextended(current_schema() || ' ' || name, 0)"
_LOCK = f"SELECT name FROM unnest(%s::text[]) AS name WHERE pg_try_advisory_lock({_NAMED})"
_UNLOCK = f"SELECT pg_advisory_unlock({_NAMED}) FROM unnest(%s::text[]) AS name"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_LOOK_SECONDS = 1.0


class PostgresqlPeers:
    """One of the servers on a database; ``shared`` False: no other one may be there.

    Args:
        place: the database.
        shared: whether other servers may use it.
    """

    def __init__(self, place: DatabasePlace, *, shared: bool) -> None:
        self.shared = shared
        self._subject = place.shown
        self._engine = new_engine(place)
        self._using = threading.RLock()
        self._kept: sa.Connection | None = None
        self._joined = False
        self._closing = threading.Event()
        self._channel = f"assay_{self._value('SELECT current_schema()')}"

    @contextmanager
    def joining(self) -> Iterator[bool]:
        self._value(f"SELECT pg_advisory_lock({_STARTING}, {_HERE})")
        try:
            alone = bool(self._value(f"SELECT pg_try_advisory_lock({_MEMBER}, {_HERE})"))
            if alone:
                self._value(f"SELECT pg_advisory_unlock({_MEMBER}, {_HERE})")
            yield alone
            self._value(f"SELECT pg_advisory_lock_shared({_MEMBER}, {_HERE})")
            self._joined = True
        finally:
            with suppress(StorageError):  # without the connection the lock is gone
                self._value(f"SELECT pg_advisory_unlock({_STARTING}, {_HERE})")

    def tell(self, write: SqlTransaction, news: Sequence[str]) -> None:
        for text in news:
            write.driver.run("SELECT pg_notify(%s::text, %s::text)", (self._channel, text))

    def told(self, news: Sequence[str]) -> None:
        """Nothing: the database told it."""

    @contextmanager
    def listening(self, hear: Hear) -> Iterator[None]:
        ready = threading.Event()
        thread = threading.Thread(target=self._listen, args=(hear, ready), name="assay-news", daemon=True)
        thread.start()
        ready.wait()  # what is told from now on is heard
        try:
            yield
        finally:
            self._closing.set()
            thread.join()

    def _listen(self, hear: Hear, ready: threading.Event) -> None:
        while not self._closing.is_set():
            try:
                with self._engine.connect() as connection:
                    raw = _raw(connection)
                    raw.execute(f'LISTEN "{self._channel}"')
                    if ready.is_set():
                        hear(None)
                    ready.set()
                    while not self._closing.is_set():
                        for each in raw.notifies(timeout=_LOOK_SECONDS):
                            hear(each.payload)
            except (sa.exc.DBAPIError, psycopg.Error) as error:
                ready.set()
                _log.warning("no news from other servers: %s", refusal(self._subject, error))
                self._closing.wait(_LOOK_SECONDS)
            except Exception:  # noqa: BLE001 - this thread must outlive every fault
                _log.exception("news from another server were not understood")

    @contextmanager
    def holding(self, names: Sequence[str]) -> Iterator[frozenset[str]]:
        if not self.shared:
            yield frozenset(names)
            return
        got = [row[0] for row in self._rows(_LOCK, [sorted(names)])]
        try:
            yield frozenset(got)
        finally:
            with suppress(StorageError):  # without the connection the locks are gone
                self._rows(_UNLOCK, [got])

    def now_ms(self) -> int | None:
        return int(self._value(_NOW))

    def close(self) -> None:
        self._closing.set()
        with self._using:
            if self._kept is not None:
                with suppress(sa.exc.DBAPIError, psycopg.Error):
                    self._kept.close()
                self._kept = None
            self._engine.dispose()

    def _value(self, statement: str) -> Any:
        return self._rows(statement, None)[0][0]

    def _rows(self, statement: str, given: Sequence[Any] | None) -> list[Any]:
        """The rows of a statement, on the one connection that holds this server's locks."""
        with self._using:
            try:
                return _raw(self._connection()).execute(statement, given).fetchall()  # type: ignore[no-any-return]
            except (sa.exc.DBAPIError, psycopg.Error) as error:
                if self._kept is not None and _is_gone(self._kept):
                    with suppress(sa.exc.DBAPIError, psycopg.Error):
                        self._kept.close()
                    self._kept = None
                raise refusal(self._subject, error) from error

    def _connection(self) -> sa.Connection:
        if self._kept is None:
            self._kept = self._engine.connect()
            if self._joined:
                _raw(self._kept).execute(f"SELECT pg_advisory_lock_shared({_MEMBER}, {_HERE})")
        return self._kept


def _raw(connection: sa.Connection) -> Any:
    raw: Any = connection.connection.driver_connection
    if not raw.autocommit:
        raw.autocommit = True
    return raw


def _is_gone(connection: sa.Connection) -> bool:
    """Whether nothing can be asked over it any more; the next question makes a new one."""
    raw: Any = connection.connection.driver_connection
    return raw is None or bool(raw.closed)
