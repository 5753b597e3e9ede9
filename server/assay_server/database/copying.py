"""All rows of one database into another, checked row for row. Both have the newest schema.

A row that cannot be read, or that no database keeps, is named.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store import tables
from assay_server.store.column_values import Row, finite, without_nul

_TABLES = tables.metadata.sorted_tables
# Logs of attempts may have megabytes.
_TOGETHER = 100
Progress = Callable[[str, int], None]  # a table, and how many of its rows so far


def copy_rows(
    source: sa.Connection, target: sa.Connection, progress: Progress = lambda table, rows: None
) -> int:
    """Copy every row inside the target's transaction, whose rows are deleted first; returns how many.

    Raises StorageError if a row cannot be read, or in the target differs from its source, or the numbers of
    rows do.
    """
    for table in reversed(_TABLES):
        target.execute(sa.delete(table))
    plain = [_plain(table) for table in _TABLES]
    copied = sum(_copy(table, source, target, progress) for table in plain)
    for table in plain:
        _go_on_counting(table, target)
        require_equal(table, source, target)
    return copied


def has_rows(connection: sa.Connection, *, beside_number: bool = False) -> bool:
    """Whether a database has any row of ours; ``beside_number``: besides the number of its state."""
    every = {table.name: sa.select(table).limit(1) for table in _TABLES}
    if beside_number:
        every["tokens"] = every["tokens"].where(tables.tokens.c.name != tables.STATE_NUMBER)
    return any(connection.execute(query).first() is not None for query in every.values())


def _plain(table: sa.Table) -> sa.Table:
    """A table whose values are as they are stored, and no states or records."""
    columns = (
        sa.Column(
            column.name,
            getattr(column.type, "impl", column.type),
            primary_key=column.primary_key,
            autoincrement=column.autoincrement,
        )
        for column in table.c
    )
    return sa.Table(table.name, sa.MetaData(), *columns)


def _copy(table: sa.Table, source: sa.Connection, target: sa.Connection, progress: Progress) -> int:
    copied = 0
    for rows in _pieces(table, source):
        target.execute(sa.insert(table), rows)
        copied += len(rows)
        progress(table.name, copied)
    return copied


def _pieces(table: sa.Table, connection: sa.Connection) -> Iterator[list[dict[str, Any]]]:
    """The rows in the order of their key, some at a time."""
    key = list(table.primary_key)
    query = sa.select(table).order_by(*key).limit(_TOGETHER)
    after: list[Any] | None = None
    while True:
        here = query if after is None else query.where(sa.tuple_(*key) > sa.tuple_(*map(sa.literal, after)))
        rows = _read(table, connection, here)
        if rows:
            yield rows
        if len(rows) < _TOGETHER:
            return
        after = [rows[-1][column.name] for column in key]


def _read(table: sa.Table, connection: sa.Connection, query: sa.Select[Any]) -> list[dict[str, Any]]:
    """The rows of a query; raises StorageError that names the one that cannot be read."""
    try:
        return [_stored(row) for row in connection.execute(query).mappings()]
    except (ValueError, StorageError, sa.exc.DBAPIError) as error:
        if not _is_of_a_value(error):
            raise
        raise StorageError(
            f"the row {_unreadable(table, connection, query)} of {table.name}",
            f"it cannot be read ({_error_text(error)}): it was changed on the disk, or by another program",
            "nothing was copied; correct the row, or restore a backup",
        ) from error


def _stored(row: Row) -> dict[str, Any]:
    """A row as every database keeps it; raises StorageError if a number in it is not finite."""
    return {name: without_nul(finite(value, name)) for name, value in row.items()}


def _unreadable(table: sa.Table, connection: sa.Connection, query: sa.Select[Any]) -> str:
    """The key of the first row of a query that cannot be read."""
    key = list(table.primary_key)
    for values in connection.execute(query.with_only_columns(*key)).all():
        named = dict(zip((column.name for column in key), values, strict=True))
        one = sa.select(table).where(*(column == named[column.name] for column in key))
        try:
            for row in connection.execute(one).mappings():
                _stored(row)
        except (ValueError, StorageError, sa.exc.DBAPIError):
            return ", ".join(f"{name}={value}" for name, value in named.items())
    raise AssertionError(f"each row of {table.name} can be read by itself")


def _is_of_a_value(error: Exception) -> bool:
    """Whether it is about one value: text that is no UTF-8, malformed JSON, a number that is not finite.

    SQLite's own errors have a code; Python's driver, which decodes text, has none for its own.
    """
    if not isinstance(error, sa.exc.DBAPIError):
        return True
    return isinstance(error.orig, sqlite3.Error) and getattr(error.orig, "sqlite_errorcode", None) is None


def _error_text(error: Exception) -> str:
    if isinstance(error, StorageError):
        return error.cause
    return str(error.orig) if isinstance(error, sa.exc.DBAPIError) else str(error)


def require_equal(table: sa.Table, source: sa.Connection, target: sa.Connection) -> None:
    """Raise StorageError if two databases differ in a row of a table."""
    for there, here in itertools.zip_longest(_rows(table, source), _rows(table, target)):
        if there != here:
            row = there or here
            assert row is not None
            named = ", ".join(f"{column.name}={row[column.name]}" for column in table.primary_key)
            raise StorageError(
                "the copy of the metadata",
                f"the row {named} of {table.name} is not as in its source",
                "nothing was moved; look for another program that writes in the new database, and try again",
            )


def _rows(table: sa.Table, connection: sa.Connection) -> Iterator[dict[str, Any]]:
    return itertools.chain.from_iterable(_pieces(table, connection))


def _go_on_counting(table: sa.Table, target: sa.Connection) -> None:
    """Have PostgreSQL number new rows after those that were copied; SQLite sees them itself."""
    column = table.autoincrement_column
    if target.dialect.name != "postgresql" or column is None:
        return
    last = target.scalar(sa.select(sa.func.max(column)))
    sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
    target.execute(sa.select(sa.func.setval(sequence, last or 1, last is not None)))
