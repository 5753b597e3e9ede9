"""Statements that every run needs: SQLAlchemy compiles them once, and the database's driver executes them.

To execute a statement, SQLAlchemy takes five times as long as SQLite does, with the writer's lock in hand:
a lease through ``Connection.execute`` takes twice the CPU time, and a whole run 1.5 times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter, itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.dml import ReturningUpdate

_MOST_MADE = 1_000

Convert = Callable[[Any], Any]
Reading = sa.Select[Any] | ReturningUpdate[Any]
Statement = Reading | sa.Insert | sa.Update | sa.Delete


@dataclass(frozen=True)
class Prepared:
    """A statement in the driver's words: its parameters by place, and how to read its columns.

    ``getters``: the value of each parameter among those that are given, as the driver takes it.
    """

    sql: str
    parameters: tuple[str, ...]
    getters: tuple[Callable[[Mapping[str, Any]], Any], ...]
    names: tuple[str, ...]
    converted: tuple[tuple[str, Convert], ...]

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """The parameters in the order of the statement."""
        return [get(given) for get in self.getters]

    def record(self, row: Sequence[Any]) -> dict[str, Any]:
        """A row by its columns' names."""
        values = dict(zip(self.names, row, strict=True))
        for name, convert in self.converted:
            values[name] = convert(values[name])
        return values


class PreparedStatements:
    """What was prepared for one database. Statements must be kept by who makes them: one for each use.

    ``by_cursor``: its driver executes on a cursor, of which one serves for a whole connection.
    """

    def __init__(self, dialect: sa.Dialect, *, by_cursor: bool = False) -> None:
        self._dialect = dialect
        self.by_cursor = by_cursor
        self._prepared: dict[Statement, Prepared] = {}

    def of(self, statement: Statement, names: Sequence[str] | None = None) -> Prepared:
        """The statement prepared; ``names``: the columns of an insert."""
        entry = self._prepared.get(statement)
        if entry is None:
            entry = self._prepared[statement] = self._prepare(statement, names)
        return entry

    def _prepare(self, statement: Statement, names: Sequence[str] | None) -> Prepared:
        columns = None if names is None else list(names)
        compiled: Any = statement.compile(dialect=self._dialect, column_keys=columns)
        parameters = tuple(compiled.positiontup or ())
        read: list[sa.ColumnElement[Any]] = list(statement.exported_columns)
        converts = {column.name: self._reader(column.type) for column in read}
        return Prepared(
            str(compiled),
            parameters,
            tuple(self._getter(name, compiled.binds[name]) for name in parameters),
            tuple(column.name for column in read),
            tuple((name, convert) for name, convert in converts.items() if convert is not None),
        )

    def _getter(self, name: str, bind: sa.BindParameter[Any]) -> Callable[[Mapping[str, Any]], Any]:
        convert = bind.type.dialect_impl(self._dialect).bind_processor(self._dialect)
        if not bind.required and bind.value is not None:  # the statement itself gives it
            value = bind.effective_value if convert is None else convert(bind.effective_value)
            return lambda given: value
        return itemgetter(name) if convert is None else lambda given: convert(given[name])

    def _reader(self, kind: sa.types.TypeEngine[Any]) -> Convert | None:
        plain = kind.impl_instance if isinstance(kind, sa.types.TypeDecorator) else kind
        if self.by_cursor and isinstance(plain, sa.Numeric | sa.Float):
            return None  # the driver reads numbers by what the server says they are
        return kind.dialect_impl(self._dialect).result_processor(self._dialect, None)


class Driver:
    """Executes prepared statements on a connection, inside the transaction that is open there."""

    def __init__(self, connection: sa.Connection, prepared: PreparedStatements) -> None:
        driver: Any = connection.connection.driver_connection
        place = driver.cursor() if prepared.by_cursor else driver
        self.connection = driver
        self._execute = place.execute
        self._execute_many = place.executemany
        self.prepared = prepared

    @property
    def is_lost(self) -> bool:
        """Whether the connection to a database server is gone."""
        return bool(getattr(self.connection, "closed", False))

    def run(self, command: str, values: Sequence[Any] = ()) -> None:
        """Execute a command of the database whose rows nobody reads."""
        self._execute(command, values)

    def value_of(self, command: str) -> Any:
        """The last column of the first row of a command that returns rows."""
        row = self._execute(command).fetchone()
        return None if row is None else row[-1]

    def rows(self, statement: Reading, given: Mapping[str, Any]) -> list[dict[str, Any]]:
        """All rows of a query."""
        prepared = self.prepared.of(statement)
        record = prepared.record
        return [record(row) for row in self._execute(prepared.sql, prepared.values(given)).fetchall()]

    def first(self, statement: Reading, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """The first row of a query, if there is one."""
        prepared = self.prepared.of(statement)
        row = self._execute(prepared.sql, prepared.values(given)).fetchone()
        return None if row is None else prepared.record(row)

    def scalar(self, statement: Reading, given: Mapping[str, Any]) -> Any:
        """The only column of the first row; None without rows."""
        row = self.first(statement, given)
        return None if row is None else next(iter(row.values()))

    def write(self, statement: sa.Insert | sa.Update | sa.Delete, given: Mapping[str, Any]) -> int:
        """Change one record; returns how many rows were changed."""
        prepared = self.prepared.of(statement, tuple(given))
        return int(self._execute(prepared.sql, prepared.values(given)).rowcount)

    def insert_copies(
        self,
        statement: sa.Insert,
        records: Sequence[Any],
        values_of: Callable[[Any], Mapping[str, Any]],
        varying: Sequence[str],
    ) -> None:
        """Insert dataclasses, most of which differ only in the fields ``varying``: columns of these names.

        ``values_of`` gives all columns of a record. It is asked once for records that share all other values.
        """
        if not records:
            return
        prepared = self.prepared.of(statement, tuple(values_of(records[0])))
        self._execute_many(prepared.sql, _copies(prepared, records, values_of, varying))

    def insert(self, statement: sa.Insert, names: Sequence[str], rows: Iterator[Mapping[str, Any]]) -> None:
        """Insert rows that all have these columns."""
        prepared = self.prepared.of(statement, names)
        self._execute_many(prepared.sql, map(prepared.values, rows))


def _copies(
    prepared: Prepared,
    records: Sequence[Any],
    values_of: Callable[[Any], Mapping[str, Any]],
    varying: Sequence[str],
) -> Iterator[list[Any]]:
    places = [(prepared.parameters.index(name), name) for name in varying]
    shared = attrgetter(*(item.name for item in fields(records[0]) if item.name not in varying))
    made: dict[tuple[int, ...], list[Any]] = {}
    for record in records:
        # By identity, because equal values would have to be hashed and compared in full.
        alike = tuple(map(id, shared(record)))
        known = made.get(alike)
        if known is None:
            if len(made) >= _MOST_MADE:
                made.clear()
            known = made[alike] = prepared.values(values_of(record))
        values = known.copy()
        for place, name in places:
            values[place] = getattr(record, name)
        yield values
