"""One commit, and so one sync of the disk, for all transactions that wait for the writer at one moment.

Transactions run one after another, each in a savepoint, in one transaction of the database. The one behind
which none waits commits, and only then do all of them return: what is reported as done is durable. A block
that raises undoes its own changes only. If the commit fails, or an error makes the database roll back
everything, all of them raise StorageError and nothing is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store.connections.ended import NothingKeptError, OutcomeUnknownError, again
from assay_server.store.connections.prepared import Driver, PreparedStatements
from assay_server.store.connections.words import Words

_MOST_TOGETHER = 32
_UNKNOWN = "whether the change was kept is not known"
_LOOK = (
    "start the database, look whether the change is there, and ask again only if it is not; "
    "agents do so by themselves"
)
LONGEST_SECONDS = 0.02  # nobody waits longer for those who come later, except for one that has begun


Command = tuple[str, Sequence[Any]]


class Turns(Protocol):
    """The turns of those who write: what each changed, and whether it was kept."""

    def hearing(self) -> Command:
        """The last command that begins a group: it asks what others have changed."""

    def begin(self, driver: Driver) -> None:
        """A group has begun."""

    def next(self, driver: Driver) -> tuple[int, Sequence[Command]]:
        """The group's number, and the commands right before its commit, which write that there."""

    def end(self) -> None:
        """The group was committed."""

    def forget(self) -> None:
        """Some of what the group's members know was undone, or may have been."""

    def was_kept(self, driver: Driver, number: int) -> bool:
        """Whether the group of a number was committed; asked on a new connection."""


@dataclass
class _Group:
    """Transactions that will be committed together.

    ``number``: of its turn, 0 before its commit was sent; ``lost``: how the connection was lost meanwhile.
    """

    connection: sa.Connection
    driver: Driver
    began: float = field(default_factory=time.monotonic)
    members: int = 0
    commit_sent: bool = False
    number: int = 0
    lost: BaseException | None = None
    committed: Future[None] = field(default_factory=Future)


class SharedCommit:
    """The writer of a database. ``errors`` turns the database's errors into StorageError.

    The engine must not begin transactions itself: SQLAlchemy's took longer than most statements.

    ``greet`` is given each new connection before its first transaction. A kept connection that cannot begin,
    because the database was restarted, is replaced by a new one, once.
    """

    def __init__(
        self,
        engine: sa.Engine,
        prepared: PreparedStatements,
        errors: Callable[[], AbstractContextManager[None]],
        words: Words,
        *,
        greet: Callable[[Driver], None] = lambda driver: None,
        make_driver: type[Driver] = Driver,
        turns: Turns | None = None,
    ) -> None:
        self._engine = engine
        self._prepared = prepared
        self._errors = errors
        self._words = words
        self._greet = greet
        self._make_driver = make_driver
        self._turns = turns
        self._kept: tuple[sa.Connection, Driver] | None = None
        self._writing = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._group: _Group | None = None

    @contextmanager
    def transaction(self, *, alone: bool) -> Iterator[tuple[sa.Connection, Driver]]:
        """Write: durable when the block ends, undone when it raises.

        ``alone``: for what takes long; it neither waits for others nor lets others wait for it.
        """
        refused: list[BaseException] = []
        with self._turn(alone=alone):
            group = self._opened()
            try:
                with self._savepoint(group, alone=alone, refused=refused.append):
                    yield group.connection, group.driver
            finally:
                group.members += 1
                if alone or group.commit_sent or self._is_full(group):
                    self._commit()
        group.committed.result()
        if refused:  # by the message of another member, which carried the last of this one's writes
            with self._errors():
                raise refused[0]

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

    def close(self, leave: Callable[[Driver], None] = lambda driver: None) -> None:
        """Close the connection, which ``leave`` is given before; nobody writes any more."""
        with self._writing:
            self._commit()
            try:
                if self._kept is not None and not self._kept[1].is_lost:
                    leave(self._kept[1])
            finally:
                self._drop()

    def _opened(self) -> _Group:
        if self._group is None:
            with self._errors():
                self._group = self._begun_again() or self._newly_begun()
        return self._group

    def _begun_again(self) -> _Group | None:
        """A group on the kept connection; None if no connection is kept, or it was lost."""
        if self._kept is None:
            return None
        driver = self._kept[1]
        try:
            return self._begun(*self._kept)
        except BaseException as error:
            self._drop()
            if isinstance(error, self._words.failures) and driver.is_lost:
                return None
            raise

    def _newly_begun(self) -> _Group:
        connection, driver = self._connected()
        try:
            return self._begun(connection, driver)
        except BaseException:
            self._drop()
            raise

    def _connected(self) -> tuple[sa.Connection, Driver]:
        """A new connection, which is kept."""
        connection = self._engine.connect()
        try:
            driver = self._make_driver(connection, self._prepared)
            self._greet(driver)
        except BaseException:
            connection.close()
            raise
        self._kept = connection, driver
        return self._kept

    def _begun(self, connection: sa.Connection, driver: Driver) -> _Group:
        group = _Group(connection, driver)
        commands: list[Command] = [(command, ()) for command in self._words.begin]
        if self._turns is not None:
            commands.append(self._turns.hearing())
        # Before anything is read: to read first and then want to write can fail.
        driver.begin(commands)
        if self._turns is not None:
            self._turns.begin(driver)
        return group

    def _drop(self) -> None:
        """Have the next group open a connection of its own."""
        self._forget()
        kept, self._kept = self._kept, None
        if kept is not None:
            with suppress(sa.exc.DBAPIError, *self._words.failures):
                kept[0].close()

    @contextmanager
    def _savepoint(
        self, group: _Group, *, alone: bool, refused: Callable[[BaseException], None]
    ) -> Iterator[None]:
        words = self._words
        with self._errors():
            group.driver.mark(words.mark.format(group.members))
            try:
                yield
                self._send(group, alone=alone, refused=refused)
            except BaseException as error:
                self._forget()
                if group.driver.forget():
                    self._undo(group, error)
                raise
            if words.keep:
                group.driver.run(words.keep)

    def _send(self, group: _Group, *, alone: bool, refused: Callable[[BaseException], None]) -> None:
        """Have the database execute what a member kept back, with the commit or the next one's question."""
        if not (self._words.commit_with_last and (alone or self._is_full(group))):
            group.driver.leave(self._words.undo[0].format(group.members), refused)
            return
        group.commit_sent = True
        try:
            self._end(group)
        except BaseException as error:
            if not (isinstance(error, self._words.failures) and group.driver.is_lost):
                group.commit_sent = False  # it was not sent, or left out because something before it failed
                raise
            group.lost = error

    def _end(self, group: _Group) -> None:
        driver = group.driver
        if self._turns is not None and not driver.is_untouched:
            group.number, notes = self._turns.next(driver)
            for note in notes:
                driver.later(*note)
        driver.run("COMMIT")

    def _undo(self, group: _Group, cause: BaseException) -> None:
        try:
            for command in self._words.undo:
                group.driver.run(command.format(group.members))
        except self._words.failures as error:  # a full disk makes SQLite roll back everything
            self._abandon(group, cause if isinstance(cause, self._words.failures) else error)

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
                if group.lost is not None:
                    raise group.lost
                if not group.commit_sent:
                    self._end(group)
        except BaseException as error:  # noqa: BLE001 - every member hears of it
            lost = group.driver.is_lost or isinstance(error, NothingKeptError)
            self._forget()
            self._roll_back(group)
            self._drop()
            found = self._settled(group, error) if lost else error
            if found is not None:
                group.committed.set_exception(found)
                return
        else:
            if self._turns is not None:
                self._turns.end()
        group.committed.set_result(None)

    def _settled(self, group: _Group, error: BaseException) -> BaseException | None:
        """What became of a commit whose answer was lost: None if it was kept, else the error."""
        if self._turns is None or not isinstance(error, StorageError):
            return error
        try:
            kept = group.number > 0 and again(StorageError, lambda: self._was_kept(group.number))
        except StorageError:
            return OutcomeUnknownError(error.subject, f"{error.cause}; {_UNKNOWN}", _LOOK)
        if kept:
            return None
        return NothingKeptError(error.subject, error.cause, error.remedy)

    def _was_kept(self, number: int) -> bool:
        assert self._turns is not None
        try:
            with self._errors():
                return self._turns.was_kept(self._connected()[1], number)
        except BaseException:
            self._drop()
            raise

    def _abandon(self, group: _Group, error: Exception) -> None:
        self._group = None
        self._roll_back(group)
        self._drop()
        try:
            with self._errors():
                raise error
        except StorageError as typed:
            # On a file the cause concerns all. A database server's is that of one, and the others go again.
            others = NothingKeptError(typed.subject, typed.cause, typed.remedy)
            group.committed.set_exception(typed if self._turns is None else others)

    def _forget(self) -> None:
        if self._turns is not None:
            self._turns.forget()

    def _roll_back(self, group: _Group) -> None:
        with suppress(*self._words.failures):  # the database may have done so itself
            group.driver.run("ROLLBACK")
