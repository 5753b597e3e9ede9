"""What was revoked since a backup was made, from the state folder that the restored one replaces.

A backup knows nothing of what came after it. Without this, whoever was revoked, demoted or logged out since
would be let in again, and used tokens could be used again.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from assay_core.identity.roles import IdentityKind, Role
from assay_sampling.errors import AssayError
from assay_server.maintenance.database_copy import METADATA, copy_database
from assay_server.store.people import Identity, StoredCertificate, StoredToken
from assay_server.store.sql import SqlTransaction
from assay_server.store.sqlite import SqliteStore

# Who may more comes later.
_RANKS = (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True)
class Memberships:
    """Identities, certificates and tokens of a state folder."""

    identities: tuple[Identity, ...] = ()
    certificates: tuple[StoredCertificate, ...] = ()
    tokens: tuple[StoredToken, ...] = ()


def memberships_of(state: Path) -> Memberships | None:
    """Those of a state folder, which is left as it is; None if its database is missing or cannot be read."""
    with tempfile.TemporaryDirectory(prefix=".assay-restore-", dir=state.parent) as folder:
        try:
            copy_database(state, Path(folder) / METADATA)
            with closing(SqliteStore(Path(folder) / METADATA)) as store, store.snapshot() as read:
                return Memberships(
                    tuple(read.identities()), tuple(read.certificates()), tuple(read.join_tokens())
                )
        except AssayError:
            return None


def take_over(newer: Memberships, store: SqlTransaction) -> int:
    """Take what newer memberships have withdrawn into restored ones; returns how many of them change.

    Nobody gets more rights by it: people keep the lower of their roles then and now.
    """
    changes = 0
    for one in newer.identities:
        then = store.identity(one.identity_id)
        if then is None and not one.revoked_at_ms:
            continue  # it joined since the backup was made: it is unknown, and joins again
        now = one if then is None else _restricted(then, one)
        if now != then:
            store.put_identity(now)
            changes += 1
    known = {each.serial: each for each in store.certificates()}
    for certificate in newer.certificates:
        # Also one that was issued since: the restored server would take it for one of its own.
        if certificate.withdrawn_at_ms and not (
            (same := known.get(certificate.serial)) and same.withdrawn_at_ms
        ):
            store.put_certificate(certificate)
            changes += 1
    left = {each.token_id: each.uses_left for each in newer.tokens}
    for token in store.join_tokens():
        uses_left = min(token.uses_left, left.get(token.token_id, 0))
        if uses_left < token.uses_left:
            store.put_join_token(replace(token, uses_left=uses_left))
            changes += 1
    return changes


def _restricted(then: Identity, now: Identity) -> Identity:
    """An identity as it was restored, without the rights that it has lost since."""
    role = then.role
    if then.kind is IdentityKind.PERSON:
        role = min(then.role, now.role, key=_RANKS.index)
    return replace(then, role=role, revoked_at_ms=then.revoked_at_ms or now.revoked_at_ms)
