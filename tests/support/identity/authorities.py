"""Authorities and credentials for tests, made in this process."""

from __future__ import annotations

import datetime
from uuid import uuid4

from assay_core.identity.certificates import certificate_der
from assay_core.identity.credentials import Credentials, new_credentials
from assay_core.identity.keys import new_key
from assay_core.identity.roles import IdentityKind
from assay_server.identity.authority import Authority, new_authority

DAY = datetime.timedelta(days=1)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def made_authority(name: str = "Test lab") -> Authority:
    """An authority in memory, valid for a year."""
    return new_authority(name, 365 * DAY, now())


def made_credentials(
    authority: Authority,
    kind: IdentityKind = IdentityKind.AGENT,
    identity_id: str = "",
    *,
    server: str = "127.0.0.1:1",
    validity: datetime.timedelta = DAY,
    at: datetime.datetime | None = None,
) -> Credentials:
    """Credentials that the authority issued without asking anybody; ``at``: when (default: now)."""
    key = new_key()
    certificate = authority.issue(key.public_key(), kind, identity_id or uuid4().hex, validity, at or now())
    return new_credentials(server, authority.der, certificate_der(certificate), key)
