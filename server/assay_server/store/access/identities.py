"""Identities in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from assay_core.identity.roles import IdentityKind, Role
from assay_server.store import tables
from assay_server.store.access.people import Identity

_C = tables.identities.c


def identity(connection: sa.Connection, identity_id: str) -> Identity | None:
    """The identity, or None."""
    query = sa.select(tables.identities).where(_C.identity_id == identity_id)
    row = connection.execute(query).mappings().first()
    return None if row is None else _identity(row)


def all_identities(connection: sa.Connection) -> list[Identity]:
    """All identities, in the order of their identifiers."""
    query = sa.select(tables.identities).order_by(_C.identity_id)
    return [_identity(row) for row in connection.execute(query).mappings()]


def put(connection: sa.Connection, one: Identity) -> None:
    """Add or replace an identity."""
    connection.execute(sa.delete(tables.identities).where(_C.identity_id == one.identity_id))
    values = {**asdict(one), "kind": str(one.kind), "role": str(one.role), "labels": list(one.labels)}
    connection.execute(sa.insert(tables.identities), [values])


def _identity(row: Mapping[Any, Any]) -> Identity:
    made = {"kind": IdentityKind(row["kind"]), "role": Role(row["role"]), "labels": tuple(row["labels"])}
    return Identity(**{**row, **made})
