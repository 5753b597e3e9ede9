"""Records that a transaction has read or written, so that it need not read them again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from assay_sampling.errors import StorageError
from assay_server.store.column_values import Record, Row
from assay_server.store.prepared import Driver

# The columns of fields that are not columns themselves, or are several.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "recorded": ("recorded_path", "recorded_time"),
    "lease_ends_at_ms": ("deadline_ms",),
    "key": ("token",),
    "log": ("command", "environment", "log", "telemetry", "wall_seconds", "facts"),
}
_KEY = "key_"  # the column's plain name would clash with the value that an update sets
_MOST_KNOWN = 10_000


@cache
def _select_of(table: sa.Table) -> sa.Select[Any]:
    """The record of a table by its key, whose parameters have the columns' names."""
    return sa.select(table).where(*(k == sa.bindparam(k.name) for k in table.primary_key))


@cache
def insert_into(table: sa.Table) -> sa.Insert:
    """One record with all its columns, whose parameters have their names."""
    return sa.insert(table)


@cache
def _update_of(table: sa.Table, names: tuple[str, ...]) -> sa.Update:
    """An update of these columns of one record, whose key's parameters begin with _KEY."""
    changed: dict[str, Any] = {n: sa.bindparam(n) for n in names if not table.c[n].primary_key}
    keys = (k == sa.bindparam(_KEY + k.name) for k in table.primary_key)
    return sa.update(table).where(*keys).values(changed)


class KnownRows:
    """One transaction of a connection. The parts that inherit from it share the records that it knows.

    ``known``: records by table and key. Nobody else writes while a transaction writes.
    """

    def __init__(self, connection: sa.Connection, driver: Driver) -> None:
        self.connection, self.driver = connection, driver
        self.known: dict[tuple[Any, ...], Any] = {}

    def rows(self, query: sa.Select[Any], values: Mapping[str, Any] | None = None) -> Sequence[Row]:
        return self.connection.execute(query, values).mappings().all()

    def write(
        self, statement: sa.Insert | sa.Update | sa.Delete, values: Sequence[Mapping[str, Any]] | None = None
    ) -> int:
        if values is not None and not values:
            return 0
        self.known.clear()
        return int(self.connection.execute(statement, list(values) if values else None).rowcount)

    def put(self, table: sa.Table, values: Mapping[str, Any]) -> None:
        """Add a record, or put it in the place of the one with its key."""
        self.write(sa.delete(table).where(*(key == values[key.name] for key in table.primary_key)))
        self.write(sa.insert(table), [values])

    def save(
        self,
        table: sa.Table,
        key: tuple[Any, ...],
        record: Any,
        values_of: Callable[[Any], dict[str, Any]],
    ) -> None:
        """Save a record; only what differs from the known one is written."""
        known = self.known.get((table.name, *key))
        if known is None:
            self.replace(table, values_of(record), key)
            return
        changed = [
            item.name
            for item in dataclasses.fields(record)
            if getattr(record, item.name) != getattr(known, item.name)
        ]
        if changed:
            names = {column for name in changed for column in _COLUMNS.get(name, (name,))}
            values = values_of(record)
            changes = {name: values[name] for name in values if name in names}
            self.driver.write(*_replacing(table, changes, key))
            self.known[(table.name, *key)] = record

    def replace(self, table: sa.Table, values: Mapping[str, Any], key: tuple[Any, ...]) -> None:
        if self.driver.write(*_replacing(table, values, key)) != 1:
            named = ", ".join(f"{k.name}={value}" for k, value in zip(table.primary_key, key, strict=True))
            raise StorageError("metadata", f"{table.name} has no record {named} to replace")

    def by_key(self, table: sa.Table, key: tuple[Any, ...], make: Callable[[Row], Record]) -> Record | None:
        known: Record | None = self.known.get((table.name, *key))
        if known is not None:
            return known
        names = [column.name for column in table.primary_key]
        row = self.driver.first(_select_of(table), dict(zip(names, key, strict=True)))
        return None if row is None else self.keep(table, key, make(row))

    def keep(self, table: sa.Table, key: tuple[Any, ...], record: Record) -> Record:
        if len(self.known) >= _MOST_KNOWN:
            self.known.clear()
        self.known[(table.name, *key)] = record
        return record


def _replacing(
    table: sa.Table, values: Mapping[str, Any], key: tuple[Any, ...]
) -> tuple[sa.Update, dict[str, Any]]:
    """The update of one record, and its parameters."""
    names = tuple(name for name in values if not table.c[name].primary_key)
    keys = {_KEY + k.name: value for k, value in zip(table.primary_key, key, strict=True)}
    return _update_of(table, names), {**values, **keys}
