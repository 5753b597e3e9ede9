"""What every store on SQLite makes anew, kept from the first of a test process: half of a small test's time.

That is the schema of an empty database, which migrations make in 0.08 s (the two are compared in
``tests/server/test_migrations.py``), and prepared statements, 3 ms each, equal for all of its files.
"""

from __future__ import annotations

import sqlalchemy as sa

from assay_server.store import migrate, sqlite
from assay_server.store.connections.prepared import PreparedStatements

# In the order in which they were made: a table before its indexes.
_MADE = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid"

by_migrations = migrate.upgrade
_schema: list[str] = []
_statements: list[PreparedStatements] = []


def as_kept(connection: sa.Connection, subject: str, option: str = "--state") -> None:
    """As ``migrate.upgrade``, without migrations where there is nothing to migrate."""
    if connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1").first() is not None:
        by_migrations(connection, subject, option)
        return
    if not _schema:
        by_migrations(connection, subject, option)
        _schema.extend(connection.exec_driver_sql(_MADE).scalars())
        return
    for statement in _schema:
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (migrate.HEAD,))


def prepared_statements(dialect: sa.Dialect) -> PreparedStatements:
    """Those of the first store."""
    if not _statements:
        _statements.append(PreparedStatements(dialect))
    return _statements[0]


def install() -> None:
    """Let stores on SQLite take what is kept."""
    sqlite.upgrade = as_kept  # type: ignore[attr-defined]
    sqlite.PreparedStatements = prepared_statements  # type: ignore[assignment,misc]
