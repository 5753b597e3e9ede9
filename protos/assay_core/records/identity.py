"""Enrolment, certificates and identities, as agents, people and the server speak of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.wire import Record, WireError, closed_set, convert_by
from assay_protos import identity_pb2

ROLES = closed_set(identity_pb2.Role, Role)
convert_by(IdentityKind, str, lambda text, _subject: text)


@dataclass(frozen=True)
class JoinAsked(Record[identity_pb2.JoinRequest]):
    """A join: ``secret`` of the token, a certificate request (DER), an agent's name and identity."""

    secret: bytes = field(repr=False)
    certificate_request: bytes
    name: str = ""
    identity_id: str = ""


@dataclass(frozen=True)
class Joined(Record[identity_pb2.JoinResponse]):
    """The certificate (DER) of a new member, who it is now, and the port of the server itself."""

    certificate: bytes
    name: str
    role: Role
    port: int


@dataclass(frozen=True)
class LeaveAsked(Record[identity_pb2.LeaveRequest]):
    """The caller withdraws the certificates of the key that it uses."""


@dataclass(frozen=True)
class Left(Record[identity_pb2.LeaveResponse]):
    """The serial number of the certificate that the caller left with."""

    serial: str


@dataclass(frozen=True)
class RenewalAsked(Record[identity_pb2.RenewRequest]):
    """A request (DER) for the next certificate of a key that has one.

    ``identity_id``: whose certificate has expired; "" if the call itself says who calls.
    """

    certificate_request: bytes
    identity_id: str = ""


@dataclass(frozen=True)
class Renewed(Record[identity_pb2.RenewResponse]):
    """The next certificate, DER."""

    certificate: bytes


@dataclass(frozen=True)
class TokenAsked(Record[identity_pb2.MakeTokenRequest]):
    """The join token that an admin wants: for whom, how often and how long."""

    role: Role
    name: str = ""
    project: str = ""
    labels: tuple[str, ...] = ()
    uses: int = 1
    valid_ms: int = 3_600_000


@dataclass(frozen=True)
class TokenMade(Record[identity_pb2.MakeTokenResponse]):
    """A join token, once; ``join_port`` 0: the server has no join listener.

    ``join_address``: where to join, if the server was told under which name it is reached.
    """

    token: str = field(repr=False)
    token_id: str
    fingerprint: str
    expires_at_ms: int
    join_port: int = 0
    join_address: str = ""


@dataclass(frozen=True)
class NamedForRevocation(Record[identity_pb2.RevokeRequest]):
    """An identity (id or name), a token's id, or a certificate's serial number.

    ``tokens``: also the open tokens that it has joined with.
    """

    subject: str
    tokens: bool = False


@dataclass(frozen=True)
class Revoked(Record[identity_pb2.RevokeResponse]):
    """What was revoked: ``what`` is "identity", "token" or "certificate"; ``name``: of its identity.

    ``tokens``: the open join tokens that it has joined with, and could come back with as somebody new unless
    they are ``tokens_withdrawn``.
    """

    what: str
    id: str
    name: str = ""
    tokens: tuple[str, ...] = ()
    tokens_withdrawn: bool = False


@dataclass(frozen=True)
class Issued(Record[identity_pb2.IssuedCertificate]):
    """A certificate that was issued; ``withdrawn_at_ms`` 0: it was not withdrawn."""

    serial: str
    issued_at_ms: int
    expires_at_ms: int
    withdrawn_at_ms: int = 0


@dataclass(frozen=True)
class KnownIdentity(Record[identity_pb2.KnownIdentity]):
    """An agent or a person as the server knows it, with its certificates that have not expired."""

    identity_id: str
    kind: IdentityKind
    name: str
    role: Role
    project: str = ""
    labels: tuple[str, ...] = ()
    created_at_ms: int = 0
    revoked_at_ms: int = 0
    certificates: tuple[Issued, ...] = ()

    @classmethod
    def from_proto(cls, message: identity_pb2.KnownIdentity) -> KnownIdentity:
        read = super().from_proto(message)
        if read.kind != read.role.kind:
            raise WireError(f"identity {read.identity_id}", f"a {read.kind} cannot have role {read.role}")
        return replace(read, kind=read.role.kind)


@dataclass(frozen=True)
class OpenToken(Record[identity_pb2.OpenToken]):
    """A join token that can still be used; nobody knows its secret any more."""

    token_id: str
    role: Role
    name: str = ""
    project: str = ""
    labels: tuple[str, ...] = ()
    uses_left: int = 1
    expires_at_ms: int = 0


@dataclass(frozen=True)
class IdentitiesAsked(Record[identity_pb2.ListIdentitiesRequest]):
    """Asks for all identities and open tokens."""


@dataclass(frozen=True)
class Identities(Record[identity_pb2.ListIdentitiesResponse]):
    """All identities, and the join tokens that can still be used."""

    identities: tuple[KnownIdentity, ...]
    tokens: tuple[OpenToken, ...]


@dataclass(frozen=True)
class WebLinkAsked(Record[identity_pb2.MakeWebLinkRequest]):
    """The caller asks for a link to the server's page."""


@dataclass(frozen=True)
class WebLink(Record[identity_pb2.MakeWebLinkResponse]):
    """A link to the server's page for its receiver alone: it opens one session, once, before it expires."""

    url: str = field(repr=False)
    expires_at_ms: int
