"""Records that a transaction has read or written, so that it need not read them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store import tables
from assay_server.store.column_values import Record, Row

_KEY = "key_"  # the column's plain name would clash with the value that an update sets
_MOST_CACHED = 10_000


@cache
def _select_of(table: sa.Table) -> sa.Select[Any]:
    return sa.select(table).where(*_has_key(table))


@cache
def _update_of(table: sa.Table) -> sa.Update:
    """Sets the columns of its further parameters."""
    return sa.update(table).where(*_has_key(table))


def _has_key(table: sa.Table) -> list[sa.ColumnElement[bool]]:
    """Whether a record has the key whose parameters begin with _KEY."""
    return [column == sa.bindparam(_KEY + column.name) for column in table.primary_key]


def _key_of(table: sa.Table, key: tuple[Any, ...]) -> dict[str, Any]:
    return {_KEY + column.name: value for column, value in zip(table.primary_key, key, strict=True)}


class CachedRecords:
    """One transaction of a connection. The parts that inherit from it share its cache.

    ``cache``: records by table and key. Nobody else writes while a transaction writes.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.cache: dict[tuple[Any, ...], Any] = {}

    def rows(self, query: sa.Select[Any], values: Mapping[str, Any] | None = None) -> Sequence[Row]:
        return self.connection.execute(query, values).mappings().all()

    def write(
        self, statement: sa.Insert | sa.Update | sa.Delete, values: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        if values is not None and not values:
            return 0
        self.cache.clear()
        return int(self.connection.execute(statement, list(values) if values else None).rowcount)

    def put(self, table: sa.Table, values: Mapping[str, Any]) -> None:
        """Add a record, or put it in the place of the one with its key."""
        self.write(sa.delete(table).where(*(key == values[key.name] for key in table.primary_key)))
        self.write(sa.insert(table), [values])

    def save(
        self,
        table: sa.Table,
        key: tuple[Any, ...],
        record: Record,
        values_of: Callable[[Record], dict[str, Any]],
    ) -> None:
        """Save a record; of one in the cache, only what differs is written."""
        values, cached = values_of(record), self.cached(table, key)
        if cached is None:
            self.replace(table, values, key)
            return
        before = values_of(cached)
        if changes := {name: value for name, value in values.items() if value != before[name]}:
            self.replace(table, changes, key)
            self.keep(table, key, record)

    def replace(self, table: sa.Table, values: Mapping[str, Any], key: tuple[Any, ...]) -> None:
        changes = {name: value for name, value in values.items() if not table.c[name].primary_key}
        if self.connection.execute(_update_of(table), changes | _key_of(table, key)).rowcount != 1:
            named = ", ".join(f"{k.name}={value}" for k, value in zip(table.primary_key, key, strict=True))
            raise StorageError("metadata", f"{table.name} has no record {named} to replace")

    def by_key(self, table: sa.Table, key: tuple[Any, ...], make: Callable[[Row], Record]) -> Record | None:
        record: Record | None = self.cached(table, key)
        if record is not None:
            return record
        row = self.connection.execute(_select_of(table), _key_of(table, key)).mappings().first()
        return None if row is None else self.keep(table, key, make(row))

    def number(self, name: str) -> int | None:
        """The number that is kept under this name."""
        row = self.connection.execute(_select_of(tables.tokens), {_KEY + "name": name}).first()
        return None if row is None else int(row.value)

    def keep_number(self, name: str, number: int) -> None:
        """Keep a number under this name, in the place of another one."""
        self.put(tables.tokens, {"name": name, "value": number})

    def cached(self, table: sa.Table, key: tuple[Any, ...]) -> Any:
        """The record with a key, if this transaction has read or written it."""
        return self.cache.get((table.name, *key))

    def keep(self, table: sa.Table, key: tuple[Any, ...], record: Record) -> Record:
        if len(self.cache) >= _MOST_CACHED:
            self.cache.clear()
        self.cache[(table.name, *key)] = record
        return record
