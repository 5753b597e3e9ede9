"""One commit, and so one sync of the disk, for all transactions that wait for the writer at one moment.

Transactions run one after another, each in a savepoint, in one transaction of the database. The one behind
which none waits commits, and only then do all of them return: what is reported as done is durable. A block
that raises undoes its own changes only. If the commit fails, or an error makes SQLite roll back everything,
all of them raise StorageError and nothing is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa

from assay_sampling.errors import StorageError

_MOST_TOGETHER = 32
LONGEST_SECONDS = 0.02  # nobody waits longer for those who come later, except for one that has begun


@dataclass
class _Group:
    """Transactions that will be committed together."""

    connection: sa.Connection
    transaction: sa.RootTransaction
    began: float = field(default_factory=time.monotonic)
    members: int = 0
    committed: Future[None] = field(default_factory=Future)


class SharedCommit:
    """The writer of a database. ``errors`` turns the database's errors into StorageError."""

    def __init__(self, engine: sa.Engine, errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._engine = engine
        self._errors = errors
        self._writing = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._group: _Group | None = None

    @contextmanager
    def transaction(self, *, alone: bool) -> Iterator[sa.Connection]:
        """Write: durable when the block ends, undone when it raises.

        ``alone``: for what takes long; it neither waits for others nor lets others wait for it.
        """
        with self._turn(alone=alone):
            group = self._opened()
            try:
                with self._savepoint(group):
                    yield group.connection
            finally:
                group.members += 1
                if alone or self._is_full(group):
                    self._commit()
        group.committed.result()

    @contextmanager
    def _turn(self, *, alone: bool) -> Iterator[None]:
        with self._counting:
            self._waiting += not alone
        with self._writing:
            with self._counting:
                self._waiting -= not alone
            if alone:
                self._commit()
            yield

    def _opened(self) -> _Group:
        if self._group is None:
            with self._errors():
                connection = self._engine.connect()
                try:
                    self._group = _Group(connection, connection.begin())
                except BaseException:
                    connection.close()
                    raise
        return self._group

    @contextmanager
    def _savepoint(self, group: _Group) -> Iterator[None]:
        run = group.connection.exec_driver_sql
        with self._errors():
            run("SAVEPOINT one")
            try:
                yield
            except BaseException:
                self._undo(group)
                raise
            run("RELEASE one")

    def _undo(self, group: _Group) -> None:
        run = group.connection.exec_driver_sql
        try:
            run("ROLLBACK TO one")
            run("RELEASE one")
        except sa.exc.DBAPIError as error:  # a full disk makes SQLite roll back everything
            self._abandon(group, error)

    def _is_full(self, group: _Group) -> bool:
        return (
            not self._waiting
            or group.members >= _MOST_TOGETHER
            or time.monotonic() - group.began > LONGEST_SECONDS
        )

    def _commit(self) -> None:
        """Commit the open group, if there is one; whoever belongs to it hears how that ended."""
        group, self._group = self._group, None
        if group is None:
            return
        try:
            with self._errors():
                group.transaction.commit()
        except BaseException as error:  # noqa: BLE001 - every member hears of it
            _roll_back(group)
            group.committed.set_exception(error)
        else:
            group.committed.set_result(None)
        finally:
            group.connection.close()

    def _abandon(self, group: _Group, error: sa.exc.DBAPIError) -> None:
        self._group = None
        _roll_back(group)
        group.connection.close()
        try:
            with self._errors():
                raise error
        except StorageError as typed:
            group.committed.set_exception(typed)


def _roll_back(group: _Group) -> None:
    try:
        group.transaction.rollback()
    except sa.exc.DBAPIError:
        group.connection.invalidate()
