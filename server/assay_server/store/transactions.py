"""Transactions of a database, and those that the database ended itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa

from assay_sampling.errors import StorageError

# Long enough for a database that is restarted, and shorter than what an agent waits for an answer.
PATIENCE_SECONDS = 5.0
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.05, 1.0

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class NothingKeptError(StorageError):
    """The database ended a transaction, of which nothing was kept: it may be done again."""


class OutcomeUnknownError(StorageError):
    """The answer to a commit was lost, and the database did not come back to say whether it was kept."""


class Transactions:
    """Transactions of one kind. Thread-safe.

    Args:
        engine: its connections, which are kept between transactions. It must not begin transactions.
        begin: the commands that begin a transaction, before anything is read: to read first and then want to
            write can fail.
        failures: what the driver raises.
        refusal: one of these as a typed error.
    """

    def __init__(
        self,
        engine: sa.Engine,
        begin: Sequence[str],
        failures: type[Exception],
        refusal: Callable[[Any], StorageError],
    ) -> None:
        self.engine, self._begin, self._failures, self._refusal = engine, begin, failures, refusal
        self._is_closed = False

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A connection in a transaction, which is committed when the block ends, undone when it raises."""
        with self.errors():
            connection = self._begun()
            try:
                yield connection
                try:
                    self.commit(connection)
                except BaseException as error:
                    is_lost = connection.invalidated
                    connection.invalidate()
                    if not self.was_kept(error, is_lost=is_lost):
                        raise
            finally:
                self._give_back(connection)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the database's errors into StorageError."""
        try:
            yield
        except (sa.exc.StatementError, self._failures) as error:
            reason = error.orig if isinstance(error, sa.exc.StatementError) else error
            if isinstance(reason, StorageError):  # a value that no database keeps
                raise reason from error
            if not isinstance(reason, self._failures):
                raise  # of the other database, while rows are copied from one to another
            raise self._refusal(reason) from error

    def close(self) -> None:
        """Close the connections; those in use close when their transactions end."""
        self._is_closed = True
        self.engine.dispose()

    def commit(self, connection: sa.Connection) -> None:
        """End a transaction that is kept."""
        connection.exec_driver_sql("COMMIT")

    def was_kept(self, error: BaseException, *, is_lost: bool) -> bool:
        """Whether a commit was kept though it raised an error; ``is_lost``: so is its connection."""
        return False

    def _begun(self, *, again: bool = True) -> sa.Connection:
        """``again``: where the connection was lost, because the database was restarted, take a new one.

        With it SQLAlchemy gives up all that it kept.
        """
        connection = self.engine.connect()
        try:
            for command in self._begin:
                connection.exec_driver_sql(command)
        except BaseException:
            is_lost = connection.invalidated
            self._give_back(connection)
            if not (again and is_lost):
                raise
            return self._begun(again=False)
        return connection

    def _give_back(self, connection: sa.Connection) -> None:
        """Undo what is open on a connection, and keep it for the next transactions.

        Lost ones are not kept, and none after :meth:`close`. Whoever failed is told why, and not that the
        database has undone everything itself, or is lost.
        """
        with suppress(sa.exc.DBAPIError, self._failures):
            if self._is_closed and not connection.invalidated:
                connection.detach()
            connection.close()


def repeated(call: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """A call that is done again for some seconds if the database ended its transaction.

    Others that were ended with it come back at moments of their own. Everything that the call changes must be
    in the database: a call that has answered somebody, or written a file under a new name, is none of these.
    """

    @wraps(call)
    def done(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        try:
            return call(*args, **kwargs)
        except NothingKeptError:
            return again(NothingKeptError, lambda: call(*args, **kwargs))

    return done


def again(error: type[StorageError], call: Callable[[], Answer]) -> Answer:
    """Call after each such error again for some seconds, later each time, by chance; raises the last one."""
    from tenacity import (  # noqa: PLC0415 - seldom needed, and never on SQLite
        Retrying,
        retry_if_exception_type,
        stop_after_delay,
        wait_random_exponential,
    )

    retrying = Retrying(
        retry=retry_if_exception_type(error),
        stop=stop_after_delay(PATIENCE_SECONDS),
        wait=wait_random_exponential(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS),
        reraise=True,
    )
    return retrying(call)
