"""Who may call the server: identities, their certificates, join tokens and logins, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from assay_core.identity.roles import IdentityKind, Role


@dataclass(frozen=True)
class Identity:
    """An agent or a person that may call the server; ``revoked_at_ms`` 0: it was not revoked.

    ``labels`` are those of its join token, for campaigns that require them. ``budget_gpu_hours``: what a
    person may use in 30 days; None: no budget of their own.
    """

    identity_id: str
    kind: IdentityKind
    name: str
    role: Role
    project: str = ""
    labels: tuple[str, ...] = ()
    created_at_ms: int = 0
    revoked_at_ms: int = 0
    budget_gpu_hours: float | None = None


@dataclass(frozen=True)
class StoredToken:
    """A join token: of its secret only ``secret_hash`` is kept.

    ``uses_left`` 0: it was used up or withdrawn.
    """

    token_id: str
    secret_hash: str
    role: Role
    name: str = ""
    project: str = ""
    labels: tuple[str, ...] = ()
    uses_left: int = 1
    created_at_ms: int = 0
    expires_at_ms: int = 0


@dataclass(frozen=True)
class StoredCertificate:
    """A certificate that was issued, by the hash of its public key; ``token_id``: of the join, "" if renewed.

    ``withdrawn_at_ms`` 0: it was not withdrawn.
    """

    serial: str
    identity_id: str
    public_key_hash: str
    issued_at_ms: int
    expires_at_ms: int
    token_id: str = ""
    withdrawn_at_ms: int = 0


@dataclass(frozen=True)
class WebLogin:
    """A link to the live page that nobody has used yet, or the session of a browser that used one.

    Args:
        key: SHA-256 of its secret, in hexadecimal; the secret itself is with its owner alone.
        identity_id: whose it is.
        serial: of the certificate that its link was asked for with; "": it was asked for on the socket.
        opened: whether it is a session.
        made_at_ms: when it was made.
        ends_at_ms: when it ends.
        session_ends_at_ms: when the session ends; for a link: the session that it opens.
    """

    key: str
    identity_id: str
    serial: str
    opened: bool
    made_at_ms: int
    ends_at_ms: int
    session_ends_at_ms: int
