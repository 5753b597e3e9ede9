"""Join tokens and issued certificates in SQL."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa

from assay_core.identity.roles import Role
from assay_server.store import tables
from assay_server.store.column_values import Row
from assay_server.store.parts.known import KnownRows
from assay_server.store.people import StoredCertificate, StoredToken

_T, _C = tables.join_tokens.c, tables.certificates.c


class CertificateRows(KnownRows):
    """Join tokens and issued certificates in SQL."""

    def join_tokens(self) -> list[StoredToken]:
        """All join tokens, oldest first."""
        query = sa.select(tables.join_tokens).order_by(_T.created_at_ms, _T.token_id)
        return [_token(row) for row in self.rows(query)]

    def join_token(self, secret_hash: str) -> StoredToken | None:
        query = sa.select(tables.join_tokens).where(_T.secret_hash == secret_hash)
        return next((_token(row) for row in self.rows(query)), None)

    def put_join_token(self, one: StoredToken) -> None:
        """Add or replace a join token; StorageError if another one has its secret."""
        self.write(sa.delete(tables.join_tokens).where(_T.token_id == one.token_id))
        values = {**asdict(one), "role": str(one.role), "labels": list(one.labels)}
        self.write(sa.insert(tables.join_tokens), [values])

    def forget_join_tokens(self, expired_before_ms: int) -> None:
        """Remove join tokens that expired before a moment."""
        self.write(sa.delete(tables.join_tokens).where(_T.expires_at_ms < expired_before_ms))

    def certificates(self, identity_id: str | None = None) -> list[StoredCertificate]:
        """The certificates of an identity (None: of all), oldest first."""
        query = sa.select(tables.certificates).order_by(_C.issued_at_ms, _C.serial)
        if identity_id is not None:
            query = query.where(_C.identity_id == identity_id)
        return [StoredCertificate(**row) for row in self.rows(query)]

    def put_certificate(self, one: StoredCertificate) -> None:
        """Add or replace a certificate."""
        self.forget_certificate(one.serial)
        self.write(sa.insert(tables.certificates), [asdict(one)])

    def forget_certificate(self, serial: str) -> None:
        """Remove a certificate, if it is there."""
        self.write(sa.delete(tables.certificates).where(_C.serial == serial))


def _token(row: Row) -> StoredToken:
    return StoredToken(**{**row, "role": Role(row["role"]), "labels": tuple(row["labels"])})
