"""Identities, join tokens, certificates, logins of the live page and the audit log in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from assay_core.records.lab import AuditEntry
from assay_server.store.access import audit, certificates, identities, logins
from assay_server.store.access.people import Identity, StoredCertificate, StoredToken, WebLogin
from assay_server.store.parts.known import KnownRows


class AccessRows(KnownRows):
    """Identities, join tokens, certificates, logins of the live page and the audit log in SQL."""

    def identity(self, identity_id: str) -> Identity | None:
        return identities.identity(self.connection, identity_id)

    def identities(self) -> list[Identity]:
        """All identities, revoked ones too, in the order of their identifiers."""
        return identities.all_identities(self.connection)

    def put_identity(self, identity: Identity) -> None:
        """Add or replace an identity."""
        self.known.clear()
        identities.put(self.connection, identity)

    def join_tokens(self) -> list[StoredToken]:
        """All join tokens, oldest first."""
        return certificates.all_tokens(self.connection)

    def join_token(self, secret_hash: str) -> StoredToken | None:
        return certificates.token_of(self.connection, secret_hash)

    def put_join_token(self, token: StoredToken) -> None:
        """Add or replace a join token; StorageError if another one has its secret."""
        certificates.put_token(self.connection, token)

    def forget_join_tokens(self, expired_before_ms: int) -> None:
        """Remove join tokens that expired before a moment."""
        certificates.forget_tokens(self.connection, expired_before_ms)

    def certificates(self, identity_id: str | None = None) -> list[StoredCertificate]:
        """The certificates of an identity (None: of all), oldest first."""
        return certificates.certificates(self.connection, identity_id)

    def put_certificate(self, certificate: StoredCertificate) -> None:
        """Add or replace a certificate."""
        certificates.put_certificate(self.connection, certificate)

    def forget_certificate(self, serial: str) -> None:
        """Remove a certificate, if it is there."""
        certificates.forget_certificate(self.connection, serial)

    def web_logins(self) -> list[WebLogin]:
        """All links to the live page and sessions of browsers, the oldest first; also those that ended."""
        return logins.all_logins(self.connection)

    def web_login(self, key: str) -> WebLogin | None:
        return logins.login(self.connection, key)

    def put_web_login(self, login: WebLogin) -> None:
        """Add or replace a link to the live page, or a session."""
        logins.put(self.connection, login)

    def forget_web_logins(self, keys: Sequence[str]) -> None:
        """Remove those links and sessions, if they are there."""
        logins.forget(self.connection, keys)

    def audit_entries(
        self, *, before: int = 0, most: int = 100, identity: str = "", since_ms: int = 0
    ) -> list[AuditEntry]:
        """Entries of the audit log, newest first.

        ``before``: only those with a smaller number (0: all). ``identity``: an identity's id or name then.
        """
        return audit.entries(self.connection, before, most, identity, since_ms)

    def add_audit(self, entry: AuditEntry) -> None:
        """Add an entry to the audit log; the store numbers it."""
        audit.add(self.connection, entry)

    def forget_audit(self, before_ms: int) -> None:
        """Remove the entries older than this moment."""
        audit.forget(self.connection, before_ms)
