"""Identities, and the links and sessions of the live page, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sa

from assay_core.identity.roles import IdentityKind, Role
from assay_server.store import tables
from assay_server.store.column_values import Row
from assay_server.store.parts.known import KnownRows
from assay_server.store.people import Identity, WebLogin

_I, _L = tables.identities.c, tables.web_logins.c


class IdentityRows(KnownRows):
    """Identities, and the links and sessions of the live page, in SQL."""

    def identity(self, identity_id: str) -> Identity | None:
        query = sa.select(tables.identities).where(_I.identity_id == identity_id)
        return next((_identity(row) for row in self.rows(query)), None)

    def identities(self) -> list[Identity]:
        """All identities, revoked ones too, in the order of their identifiers."""
        query = sa.select(tables.identities).order_by(_I.identity_id)
        return [_identity(row) for row in self.rows(query)]

    def put_identity(self, one: Identity) -> None:
        """Add or replace an identity."""
        self.write(sa.delete(tables.identities).where(_I.identity_id == one.identity_id))
        values = {**asdict(one), "kind": str(one.kind), "role": str(one.role), "labels": list(one.labels)}
        self.write(sa.insert(tables.identities), [values])

    def web_logins(self) -> list[WebLogin]:
        """All links to the live page and sessions of browsers, the oldest first; also those that ended."""
        query = sa.select(tables.web_logins).order_by(_L.made_at_ms, _L.key)
        return [WebLogin(**row) for row in self.rows(query)]

    def web_login(self, key: str) -> WebLogin | None:
        query = sa.select(tables.web_logins).where(_L.key == key)
        return next((WebLogin(**row) for row in self.rows(query)), None)

    def put_web_login(self, login: WebLogin) -> None:
        """Add or replace a link to the live page, or a session."""
        self.forget_web_logins([login.key])
        self.write(sa.insert(tables.web_logins), [asdict(login)])

    def forget_web_logins(self, keys: Sequence[str]) -> None:
        """Remove those links and sessions, if they are there."""
        if keys:
            self.write(sa.delete(tables.web_logins).where(_L.key.in_(keys)))


def _identity(row: Row) -> Identity:
    made = {"kind": IdentityKind(row["kind"]), "role": Role(row["role"]), "labels": tuple(row["labels"])}
    return Identity(**{**row, **made})
