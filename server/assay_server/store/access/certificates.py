"""Join tokens and issued certificates in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from assay_core.identity.roles import Role
from assay_server.store import tables
from assay_server.store.access.people import StoredCertificate, StoredToken

_T, _C = tables.join_tokens.c, tables.certificates.c


def all_tokens(connection: sa.Connection) -> list[StoredToken]:
    """All join tokens, oldest first."""
    query = sa.select(tables.join_tokens).order_by(_T.created_at_ms, _T.token_id)
    return [_token(row) for row in connection.execute(query).mappings()]


def token_of(connection: sa.Connection, secret_hash: str) -> StoredToken | None:
    """The token with this secret, or None."""
    query = sa.select(tables.join_tokens).where(_T.secret_hash == secret_hash)
    row = connection.execute(query).mappings().first()
    return None if row is None else _token(row)


def put_token(connection: sa.Connection, one: StoredToken) -> None:
    """Add or replace a join token."""
    connection.execute(sa.delete(tables.join_tokens).where(_T.token_id == one.token_id))
    values = {**asdict(one), "role": str(one.role), "labels": list(one.labels)}
    connection.execute(sa.insert(tables.join_tokens), [values])


def forget_tokens(connection: sa.Connection, expired_before_ms: int) -> None:
    """Remove join tokens that expired before a moment."""
    connection.execute(sa.delete(tables.join_tokens).where(_T.expires_at_ms < expired_before_ms))


def certificates(connection: sa.Connection, identity_id: str | None) -> list[StoredCertificate]:
    """The certificates of an identity (None: of all), oldest first."""
    query = sa.select(tables.certificates).order_by(_C.issued_at_ms, _C.serial)
    if identity_id is not None:
        query = query.where(_C.identity_id == identity_id)
    return [StoredCertificate(**row) for row in connection.execute(query).mappings()]


def put_certificate(connection: sa.Connection, one: StoredCertificate) -> None:
    """Add or replace a certificate."""
    connection.execute(sa.delete(tables.certificates).where(_C.serial == one.serial))
    connection.execute(sa.insert(tables.certificates), [asdict(one)])


def forget_certificate(connection: sa.Connection, serial: str) -> None:
    """Remove a certificate."""
    connection.execute(sa.delete(tables.certificates).where(_C.serial == serial))


def _token(row: Mapping[Any, Any]) -> StoredToken:
    return StoredToken(**{**row, "role": Role(row["role"]), "labels": tuple(row["labels"])})
