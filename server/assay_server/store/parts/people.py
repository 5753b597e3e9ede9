"""Who may call the server, and who has, in SQL.

Identities, certificates, join tokens, logins of the live page, and the audit log.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from assay_core.records.lab import AuditEntry
from assay_server.store import tables
from assay_server.store.column_values import shallow
from assay_server.store.parts.record_cache import CachedRecords
from assay_server.store.people import Identity, StoredCertificate, StoredToken, WebLogin

_C, _E, _I, _L, _T = (
    each.c
    for each in (tables.certificates, tables.audit, tables.identities, tables.web_logins, tables.join_tokens)
)


class PeopleRows(CachedRecords):
    """Who may call the server, and who has, in SQL."""

    def identity(self, identity_id: str) -> Identity | None:
        return self.by_key(tables.identities, (identity_id,), lambda row: Identity(**row))

    def identities(self) -> list[Identity]:
        """All identities, revoked ones too, in the order of their identifiers."""
        query = sa.select(tables.identities).order_by(_I.identity_id)
        return [Identity(**row) for row in self.rows(query)]

    def put_identity(self, one: Identity) -> None:
        """Add or replace an identity."""
        self.put(tables.identities, shallow(one))

    def join_tokens(self) -> list[StoredToken]:
        """All join tokens, oldest first."""
        query = sa.select(tables.join_tokens).order_by(_T.created_at_ms, _T.token_id)
        return [StoredToken(**row) for row in self.rows(query)]

    def join_token(self, secret_hash: str) -> StoredToken | None:
        query = sa.select(tables.join_tokens).where(_T.secret_hash == secret_hash)
        return next((StoredToken(**row) for row in self.rows(query)), None)

    def put_join_token(self, one: StoredToken) -> None:
        """Add or replace a join token; StorageError if another one has its secret."""
        self.put(tables.join_tokens, shallow(one))

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
        self.put(tables.certificates, shallow(one))

    def forget_certificate(self, serial: str) -> None:
        """Remove a certificate, if it is there."""
        self.write(sa.delete(tables.certificates).where(_C.serial == serial))

    def web_logins(self) -> list[WebLogin]:
        """All links to the live page and sessions of browsers, the oldest first; also those that ended."""
        query = sa.select(tables.web_logins).order_by(_L.made_at_ms, _L.key)
        return [WebLogin(**row) for row in self.rows(query)]

    def web_login(self, key: str) -> WebLogin | None:
        return self.by_key(tables.web_logins, (key,), lambda row: WebLogin(**row))

    def put_web_login(self, login: WebLogin) -> None:
        """Add or replace a link to the live page, or a session."""
        self.put(tables.web_logins, shallow(login))

    def forget_web_logins(self, keys: Sequence[str]) -> None:
        """Remove those links and sessions, if they are there."""
        if keys:
            self.write(sa.delete(tables.web_logins).where(_L.key.in_(keys)))

    def audit_entries(
        self, *, before: int = 0, most: int = 100, identity: str = "", since_ms: int = 0
    ) -> list[AuditEntry]:
        """Entries of the audit log, newest first.

        ``before``: only those with a smaller number (0: all). ``identity``: an identity's id or name then.
        """
        query = sa.select(tables.audit).where(_E.at_ms >= since_ms)
        if before:
            query = query.where(_E.entry_id < before)
        if identity:
            query = query.where(sa.or_(_E.identity_id == identity, _E.name == identity))
        return [AuditEntry(**row) for row in self.rows(query.order_by(_E.entry_id.desc()).limit(most))]

    def add_audit(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log; the store numbers it."""
        values = shallow(entry)
        del values["entry_id"]
        self.write(sa.insert(tables.audit), [values])

    def forget_audit(self, before_ms: int) -> None:
        """Remove the entries older than this moment."""
        self.write(sa.delete(tables.audit).where(_E.at_ms < before_ms))
