"""Stores on the PostgreSQL server that ASSAY_POSTGRESQL names (``make test-services`` starts one).

Each store has a schema of its own, which is emptied and used again when the store is closed: to make the
tables takes longer than most tests.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import psycopg
import sqlalchemy as sa

from assay_server.places import DatabasePlace, database_place
from assay_server.store import tables
from assay_server.store.postgresql.store import PostgresqlStore

VARIABLE = "ASSAY_POSTGRESQL"
_numbers = itertools.count()
_free: list[str] = []


def server_url() -> str:
    """The URL of a server for tests, with a database; "": none is given."""
    return os.environ.get(VARIABLE, "")


def place_in_schema(schema: str) -> DatabasePlace:
    """The place of a schema of the server's database."""
    url = sa.make_url(server_url()).update_query_dict({"options": f"-csearch_path={schema}"})
    return database_place(url.render_as_string(hide_password=False), with_secret=True)


def administrate(*commands: str) -> None:
    """Run commands as the tests' user, who may do everything."""
    with psycopg.connect(server_url(), autocommit=True) as connection:
        for command in commands:
            connection.execute(command)  # type: ignore[call-overload]


def fresh_schema() -> str:
    """A schema without a row; one that was used before has its tables already."""
    if _free:
        schema = _free.pop()
        empty(schema)
        return schema
    schema = f"t{os.getpid()}_{next(_numbers)}"
    administrate(f"DROP SCHEMA IF EXISTS {schema} CASCADE", f"CREATE SCHEMA {schema}")
    return schema


def empty(schema: str) -> None:
    """Delete every row; to truncate tables takes longer than to delete a few rows."""
    ordered = [table.name for table in reversed(tables.metadata.sorted_tables)]
    administrate(
        *(f'DELETE FROM {schema}."{name}"' for name in ordered),
        f"ALTER SEQUENCE {schema}.lanes_lane_id_seq RESTART",
        f"ALTER SEQUENCE {schema}.audit_entry_id_seq RESTART",
    )


def release(schema: str) -> None:
    """Let another test have it, whose tables are as the program made them."""
    _free.append(schema)


class StoreInSchema(PostgresqlStore):
    """A store in a schema of its own."""

    def __init__(self, **given: Any) -> None:
        self.schema = fresh_schema()
        super().__init__(place_in_schema(self.schema), **given)

    def close(self) -> None:
        super().close()
        if self.schema:
            release(self.schema)
            self.schema = ""


def metadata_stores() -> dict[str, Callable[[Any], PostgresqlStore]]:
    """By name, as METADATA_STORES has them; empty without a server."""
    if not server_url():
        return {}
    return {"postgresql": lambda _folder: StoreInSchema()}
