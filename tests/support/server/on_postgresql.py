"""A pytest plugin: wherever the server would open SQLite's file, it opens a schema of PostgreSQL instead.

    ASSAY_POSTGRESQL=postgresql://... pytest -p tests.support.server.on_postgresql tests/server

The file is made too, empty, for tests that only look whether it is there. Tests of what is SQLite's own are
left out by SQLITE_ONLY.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_server.store import sqlite
from assay_server.store.postgresql.store import PostgresqlStore
from tests.support.server.postgresql_server import fresh_schema, place_in_schema, release, server_url

# By module or test: what they are about is a file, a copy of it or its locks.
SQLITE_ONLY: tuple[str, ...] = (
    "test_lease_holders.py::test_no_error_of_the_database_quotes_the_secret_of_a_lease",
    "test_many_runs.py::test_a_lease_costs_no_more_in_a_campaign_of_ten_times_the_runs",
    "test_restored_backup.py",
)

_schemas: dict[str, str] = {}
_in_memory: list[str] = []


class SqliteInPostgresql(PostgresqlStore):
    """What is built as a SQLite store, on PostgreSQL; the same path gives the same data."""

    def __init__(self, path: Path | None) -> None:
        self._forgotten = ""
        if path is None:
            schema = self._forgotten = fresh_schema()
        else:
            key = str(path.absolute())
            schema = _schemas.get(key) or _schemas.setdefault(key, fresh_schema())
            path.touch(mode=0o600)
        super().__init__(place_in_schema(schema))
        if path is not None:
            self.subject = str(path)

    def write_back(self) -> int:
        """PostgreSQL writes back by itself."""
        return 0

    def close(self) -> None:
        super().close()
        if self._forgotten:
            release(self._forgotten)
            self._forgotten = ""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Let later tests have the schemas of this one, whose folders are gone."""
    for schema in _schemas.values():
        release(schema)
    _schemas.clear()


def pytest_configure() -> None:
    """Refuse to run without a server: the tests would pass on SQLite."""
    if not server_url():
        raise pytest.UsageError("ASSAY_POSTGRESQL names no server")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about SQLite's file."""
    left_out = [item for item in items if any(name in item.nodeid for name in SQLITE_ONLY)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


sqlite.SqliteStore = SqliteInPostgresql  # type: ignore[assignment,misc]  # before any module imports it
