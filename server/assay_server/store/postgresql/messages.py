"""Prepared statements to and from PostgreSQL, several in one message, by psycopg's layer over libpq.

psycopg's cursors took more CPU time for a small statement than the database did: they look anew each time how
to prepare it, and send it by generators. Every statement here is prepared at its first use on a connection.
"""

from __future__ import annotations

import itertools
import re
import select
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

Command = tuple[str, Sequence[Any]]
# A statement, its values as they are sent, and their formats.
Dumped = tuple[str, tuple[Sequence[Any] | None, Sequence[Any] | None]]
_BINARY = (bytes, psycopg.Binary)  # as text they would be twice as long

# So many statements stay prepared on a connection; others are sent with their text each time.
MOST_PREPARED = 500
_GOOD = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY)


class Answer:
    """What one statement came to, read as from a cursor."""

    def __init__(self, result: Any, transformer: Any) -> None:
        self._result, self._transformer = result, transformer

    @property
    def told(self) -> str:
        """What the database says that it did: the statement's first words, and numbers of rows."""
        return (self._result.command_status or b"").decode()

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""
        return self._result.command_tuples or 0

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""
        self._transformer.set_pgresult(self._result)
        rows: list[tuple[Any, ...]] = self._transformer.load_rows(0, self._result.ntuples, tuple)
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row, if there is one."""
        self._transformer.set_pgresult(self._result)
        return self._transformer.load_row(0, tuple) if self._result.ntuples else None


@dataclass(frozen=True)
class Refused:
    """The first statement of a message that failed, by its place there; those behind it were left out."""

    place: int
    error: psycopg.Error


class Messages:
    """One connection, which is in nobody else's use while a message is under way."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._link = connection.pgconn
        self._encoding = connection.info.encoding
        self._transformer = Transformer(connection)
        self._prepared: dict[str, bytes] = {}  # names, by the text
        self._made = 0

    def dumped(self, commands: Sequence[Command]) -> list[Dumped]:
        """Commands as they are sent; raises here, where nothing was sent yet, if a value cannot be sent."""
        return [(text, self._dumped(values)) for text, values in commands]

    def _dumped(self, values: Sequence[Any]) -> tuple[Sequence[Any] | None, Sequence[Any] | None]:
        if not values:
            return None, None
        formats = [PyFormat.BINARY if isinstance(each, _BINARY) else PyFormat.TEXT for each in values]
        return self._transformer.dump_sequence(values, formats), self._transformer.formats

    def answers(self, commands: Sequence[Dumped]) -> list[Answer]:
        """Send all in one message, and wait once; raises the error of the first that failed, as a cursor."""
        found, refused = self.exchanged(commands)
        if refused is not None:
            raise refused.error
        return found

    def exchanged(self, commands: Sequence[Dumped]) -> tuple[list[Answer], Refused | None]:
        """Send all in one message, and wait once: the answers, and which one failed.

        Those behind one that failed are not executed. A message that was not read to its end ends
        the connection.
        """
        link = self._link
        link.enter_pipeline_mode()
        try:
            fresh: dict[str, bytes] = {}
            given = [self._send(text, *values, fresh) for text, values in commands]
            link.pipeline_sync()
            self._flush()
            results, refused = self._received(given)
            link.exit_pipeline_mode()
        except BaseException as error:
            link.finish()  # or the next message would read the answers to this one
            if isinstance(error, psycopg.Error) or not isinstance(error, Exception):
                raise
            raise psycopg.OperationalError(f"a message was not read to its end ({error})") from error
        return [Answer(result, self._transformer) for result in results], refused

    def _send(
        self, text: str, dumped: Any, formats: Any, fresh: dict[str, bytes]
    ) -> tuple[str, bytes] | None:
        """Returns text and name if the statement is prepared here; ``fresh``: those of this message."""
        link = self._link
        name, made = self._prepared.get(text) or fresh.get(text), None
        if name is None:
            if len(self._prepared) + len(fresh) >= MOST_PREPARED:
                link.send_query_params(_numbered(text), dumped, param_formats=formats)
                return None
            self._made += 1
            name = fresh[text] = b"assay_%d" % self._made
            made = text, name
            link.send_prepare(name, _numbered(text))
        link.send_query_prepared(name, dumped, formats)
        return made

    def _flush(self) -> None:
        link = self._link
        while link.flush():
            poll = select.poll()
            poll.register(link.socket, select.POLLIN | select.POLLOUT)
            if any(event & select.POLLIN for _, event in poll.poll()):
                link.consume_input()  # or both sides could wait for each other

    def _received(self, given: Sequence[tuple[str, bytes] | None]) -> tuple[list[Any], Refused | None]:
        """The results of statements, and the first error; given text and name of those prepared with them."""
        results: list[Any] = []
        refused: Refused | None = None
        try:
            for place, made in enumerate(given):
                if made is not None:
                    prepared = self._result()
                    refused = refused or self._refused(place, prepared)
                    if prepared.status in _GOOD:
                        self._prepared[made[0]] = made[1]
                results.append(self._result())
                refused = refused or self._refused(place, results[-1])
            self._next()  # the end of the message
        except psycopg.Error as lost:
            # The database may say why it ends a connection.
            raise (lost if refused is None else refused.error) from None
        return results, refused

    def _refused(self, place: int, result: Any) -> Refused | None:
        if result.status in _GOOD or result.status == ExecStatus.PIPELINE_ABORTED:
            return None
        return Refused(place, error_from_result(result, encoding=self._encoding))

    def _result(self) -> Any:
        """The result of one statement."""
        found = self._next()
        if found is None:
            raise psycopg.OperationalError("the connection to the database was closed")
        while self._next() is not None:
            pass
        return found

    def _next(self) -> Any:
        link = self._link
        if link.is_busy():
            poll = select.poll()
            poll.register(link.socket, select.POLLIN)
            while link.is_busy():
                poll.poll()  # others of this process run meanwhile
                link.consume_input()
        return link.get_result()


def _numbered(text: str) -> bytes:
    """A statement with its parameters by number, as the database has them."""
    numbers = itertools.count(1)
    return re.sub("%s|%%", lambda found: f"${next(numbers)}" if found[0] == "%s" else "%", text).encode()
