"""Links to the live page and sessions of browsers in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sa

from assay_server.store import tables
from assay_server.store.access.people import WebLogin

_L = tables.web_logins.c


def all_logins(connection: sa.Connection) -> list[WebLogin]:
    """All of them, the oldest first."""
    query = sa.select(tables.web_logins).order_by(_L.made_at_ms, _L.key)
    return [WebLogin(**row) for row in connection.execute(query).mappings()]


def login(connection: sa.Connection, key: str) -> WebLogin | None:
    """The one with this key, or None."""
    row = connection.execute(sa.select(tables.web_logins).where(_L.key == key)).mappings().first()
    return None if row is None else WebLogin(**row)


def put(connection: sa.Connection, one: WebLogin) -> None:
    """Add or replace a link or session."""
    forget(connection, [one.key])
    connection.execute(sa.insert(tables.web_logins), [asdict(one)])


def forget(connection: sa.Connection, keys: Sequence[str]) -> None:
    """Remove those with these keys."""
    if keys:
        connection.execute(sa.delete(tables.web_logins).where(_L.key.in_(keys)))
