"""Identities, join tokens, certificates, logins of the live page and the audit log in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from assay_core.records.lab import AuditEntry
from assay_server.store.access import audit, certificates, identities, logins
from assay_server.store.model import Identity, StoredCertificate, StoredToken, WebLogin
from assay_server.store.parts.known import KnownRows


class AccessRows(KnownRows):
    """Identities, join tokens, certificates, logins of the live page and the audit log in SQL."""

    def identity(self, identity_id: str) -> Identity | None:
        return identities.identity(self.connection, identity_id)

    def identities(self) -> list[Identity]:
        return identities.all_identities(self.connection)

    def put_identity(self, identity: Identity) -> None:
        self.known.clear()
        identities.put(self.connection, identity)

    def join_tokens(self) -> list[StoredToken]:
        return certificates.all_tokens(self.connection)

    def join_token(self, secret_hash: str) -> StoredToken | None:
        return certificates.token_of(self.connection, secret_hash)

    def put_join_token(self, token: StoredToken) -> None:
        certificates.put_token(self.connection, token)

    def forget_join_tokens(self, expired_before_ms: int) -> None:
        certificates.forget_tokens(self.connection, expired_before_ms)

    def certificates(self, identity_id: str | None = None) -> list[StoredCertificate]:
        return certificates.certificates(self.connection, identity_id)

    def put_certificate(self, certificate: StoredCertificate) -> None:
        certificates.put_certificate(self.connection, certificate)

    def forget_certificate(self, serial: str) -> None:
        certificates.forget_certificate(self.connection, serial)

    def web_logins(self) -> list[WebLogin]:
        return logins.all_logins(self.connection)

    def web_login(self, key: str) -> WebLogin | None:
        return logins.login(self.connection, key)

    def put_web_login(self, login: WebLogin) -> None:
        logins.put(self.connection, login)

    def forget_web_logins(self, keys: Sequence[str]) -> None:
        logins.forget(self.connection, keys)

    def audit_entries(
        self, *, before: int = 0, most: int = 100, identity: str = "", since_ms: int = 0
    ) -> list[AuditEntry]:
        return audit.entries(self.connection, before, most, identity, since_ms)

    def add_audit(self, entry: AuditEntry) -> None:
        audit.add(self.connection, entry)

    def forget_audit(self, before_ms: int) -> None:
        audit.forget(self.connection, before_ms)
