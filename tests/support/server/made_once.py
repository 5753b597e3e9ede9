"""What every store on SQLite makes anew, kept from the first of a test process: half of a small test's time.

That is the schema of an empty database, which migrations make in 0.08 s (the two are compared in
``tests/server/test_migrations.py``), and compiled statements.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache

import sqlalchemy as sa

from assay_server.store import migrate, sqlite

# In the order in which they were made: a table before its indexes.
_MADE = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid"

by_migrations = migrate.upgrade
_schema: list[str] = []
_compiled: dict[object, object] = {}
_dialects: list[sa.Dialect] = []


def as_kept(connection: sa.Connection, subject: str, option: str = "--state") -> None:
    """As ``migrate.upgrade``, without migrations where there is nothing to migrate."""
    _share_compiled(connection.engine)
    if connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1").first() is not None:
        by_migrations(connection, subject, option)
        return
    if not _schema:
        by_migrations(connection, subject, option)
        _schema.extend(connection.exec_driver_sql(_MADE).scalars())
        return
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    if driver.execute("PRAGMA database_list").fetchone()[2]:
        _make(driver)
    else:
        driver.execute("COMMIT")
        driver.deserialize(_image())
        driver.execute("BEGIN IMMEDIATE")


def _share_compiled(engine: sa.Engine) -> None:
    """Statements are compiled once, and not for each store: SQLAlchemy keeps them by dialect."""
    if not _dialects:
        _dialects.append(engine.dialect)
    engine.dialect = _dialects[0]
    engine.update_execution_options(compiled_cache=_compiled)


def _make(driver: sqlite3.Connection) -> None:
    for statement in _schema:
        driver.execute(statement)
    driver.execute("INSERT INTO alembic_version VALUES (?)", (migrate.HEAD,))


@cache
def _image() -> bytes:
    """The bytes of an empty database in memory: copied in 1 ms, made in 5."""
    with closing(sqlite3.connect(":memory:")) as empty:
        _make(empty)
        empty.commit()
        return empty.serialize()


def install() -> None:
    """Let stores on SQLite take what is kept."""
    sqlite.upgrade = as_kept  # type: ignore[attr-defined]
