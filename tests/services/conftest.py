"""What several services' tests share: one PostgreSQL server, with a fresh database for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.services.postgresql import OwnPostgresql, programs


@pytest.fixture(scope="session")
def own_postgresql() -> Iterator[OwnPostgresql]:
    """A server of the tests' own; tests that kill it start it again."""
    if not os.environ.get("ASSAY_SERVICES") or programs() is None:
        pytest.skip("make test-services has a PostgreSQL")
    with OwnPostgresql() as own:
        yield own


@pytest.fixture
def fresh_database(own_postgresql: OwnPostgresql) -> str:
    """The URL of an empty database."""
    own_postgresql.administrate(
        "DROP DATABASE IF EXISTS fresh WITH (FORCE)", "CREATE DATABASE fresh", database="postgres"
    )
    return own_postgresql.url("fresh")
