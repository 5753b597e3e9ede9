"""Enrolment, certificates and identities, as agents, people and the server speak of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.wire import ClosedSet, WireError
from assay_protos import identity_pb2

ROLES = ClosedSet(identity_pb2.Role, Role)


@dataclass(frozen=True)
class JoinAsked:
    """A join: ``secret`` of the token, a certificate request (DER), an agent's name and identity."""

    secret: bytes = field(repr=False)
    certificate_request: bytes
    name: str = ""
    identity_id: str = ""

    def to_proto(self) -> identity_pb2.JoinRequest:
        return identity_pb2.JoinRequest(
            secret=self.secret,
            certificate_request=self.certificate_request,
            name=self.name,
            identity_id=self.identity_id,
        )

    @classmethod
    def from_proto(cls, message: identity_pb2.JoinRequest) -> JoinAsked:
        return cls(message.secret, message.certificate_request, message.name, message.identity_id)


@dataclass(frozen=True)
class Joined:
    """The certificate (DER) of a new member, who it is now, and the port of the server itself."""

    certificate: bytes
    name: str
    role: Role
    port: int

    def to_proto(self) -> identity_pb2.JoinResponse:
        return identity_pb2.JoinResponse(
            certificate=self.certificate, name=self.name, role=ROLES.to_proto(self.role), port=self.port
        )

    @classmethod
    def from_proto(cls, message: identity_pb2.JoinResponse) -> Joined:
        role = ROLES.from_proto(message.role, "join answer")
        return cls(message.certificate, message.name, role, message.port)


@dataclass(frozen=True)
class LeaveAsked:
    """The caller withdraws the certificates of the key that it uses."""

    def to_proto(self) -> identity_pb2.LeaveRequest:
        return identity_pb2.LeaveRequest()

    @classmethod
    def from_proto(cls, _message: identity_pb2.LeaveRequest) -> LeaveAsked:
        return cls()


@dataclass(frozen=True)
class Left:
    """The serial number of the certificate that the caller left with."""

    serial: str

    def to_proto(self) -> identity_pb2.LeaveResponse:
        return identity_pb2.LeaveResponse(serial=self.serial)

    @classmethod
    def from_proto(cls, message: identity_pb2.LeaveResponse) -> Left:
        return cls(message.serial)


@dataclass(frozen=True)
class RenewalAsked:
    """A request (DER) for the next certificate of a key that has one.

    ``identity_id``: whose certificate has expired; "" if the call itself says who calls.
    """

    certificate_request: bytes
    identity_id: str = ""

    def to_proto(self) -> identity_pb2.RenewRequest:
        return identity_pb2.RenewRequest(
            certificate_request=self.certificate_request, identity_id=self.identity_id
        )

    @classmethod
    def from_proto(cls, message: identity_pb2.RenewRequest) -> RenewalAsked:
        return cls(message.certificate_request, message.identity_id)


@dataclass(frozen=True)
class Renewed:
    """The next certificate, DER."""

    certificate: bytes

    def to_proto(self) -> identity_pb2.RenewResponse:
        return identity_pb2.RenewResponse(certificate=self.certificate)

    @classmethod
    def from_proto(cls, message: identity_pb2.RenewResponse) -> Renewed:
        return cls(message.certificate)


@dataclass(frozen=True)
class TokenAsked:
    """The join token that an admin wants: for whom, how often and how long."""

    role: Role
    name: str = ""
    project: str = ""
    labels: tuple[str, ...] = ()
    uses: int = 1
    valid_ms: int = 3_600_000

    def to_proto(self) -> identity_pb2.MakeTokenRequest:
        return identity_pb2.MakeTokenRequest(
            role=ROLES.to_proto(self.role),
            name=self.name,
            project=self.project,
            labels=self.labels,
            uses=self.uses,
            valid_ms=self.valid_ms,
        )

    @classmethod
    def from_proto(cls, message: identity_pb2.MakeTokenRequest) -> TokenAsked:
        role = ROLES.from_proto(message.role, "token")
        labels = tuple(message.labels)
        return cls(role, message.name, message.project, labels, message.uses, message.valid_ms)


@dataclass(frozen=True)
class TokenMade:
    """A join token, once; ``join_port`` 0: the server has no join listener.

    ``join_address``: where to join, if the server was told under which name it is reached.
    """

    token: str = field(repr=False)
    token_id: str
    fingerprint: str
    expires_at_ms: int
    join_port: int = 0
    join_address: str = ""

    def to_proto(self) -> identity_pb2.MakeTokenResponse:
        return identity_pb2.MakeTokenResponse(
            token=self.token,
            token_id=self.token_id,
            fingerprint=self.fingerprint,
            expires_at_ms=self.expires_at_ms,
            join_port=self.join_port,
            join_address=self.join_address,
        )

    @classmethod
    def from_proto(cls, message: identity_pb2.MakeTokenResponse) -> TokenMade:
        return cls(
            message.token,
            message.token_id,
            message.fingerprint,
            message.expires_at_ms,
            message.join_port,
            message.join_address,
        )


@dataclass(frozen=True)
class NamedForRevocation:
    """An identity (id or name), a token's id, or a certificate's serial number.

    ``tokens``: also the open tokens that it has joined with.
    """

    subject: str
    tokens: bool = False

    def to_proto(self) -> identity_pb2.RevokeRequest:
        return identity_pb2.RevokeRequest(subject=self.subject, tokens=self.tokens)

    @classmethod
    def from_proto(cls, message: identity_pb2.RevokeRequest) -> NamedForRevocation:
        return cls(message.subject, message.tokens)


@dataclass(frozen=True)
class Revoked:
    """What was revoked: ``what`` is "identity", "token" or "certificate"; ``name``: of its identity.

    ``tokens``: the open join tokens that it has joined with, and could come back with as somebody new unless
    they are ``tokens_withdrawn``.
    """

    what: str
    id: str
    name: str = ""
    tokens: tuple[str, ...] = ()
    tokens_withdrawn: bool = False

    def to_proto(self) -> identity_pb2.RevokeResponse:
        return identity_pb2.RevokeResponse(
            what=self.what,
            id=self.id,
            name=self.name,
            tokens=self.tokens,
            tokens_withdrawn=self.tokens_withdrawn,
        )

    @classmethod
    def from_proto(cls, message: identity_pb2.RevokeResponse) -> Revoked:
        return cls(message.what, message.id, message.name, tuple(message.tokens), message.tokens_withdrawn)


@dataclass(frozen=True)
class Issued:
    """A certificate that was issued; ``withdrawn_at_ms`` 0: it was not withdrawn."""

    serial: str
    issued_at_ms: int
    expires_at_ms: int
    withdrawn_at_ms: int = 0

    def to_proto(self) -> identity_pb2.IssuedCertificate:
        return identity_pb2.IssuedCertificate(
            serial=self.serial,
            issued_at_ms=self.issued_at_ms,
            expires_at_ms=self.expires_at_ms,
            withdrawn_at_ms=self.withdrawn_at_ms,
        )

    @classmethod
    def from_proto(cls, message: identity_pb2.IssuedCertificate) -> Issued:
        return cls(message.serial, message.issued_at_ms, message.expires_at_ms, message.withdrawn_at_ms)


@dataclass(frozen=True)
class KnownIdentity:
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

    def to_proto(self) -> identity_pb2.KnownIdentity:
        return identity_pb2.KnownIdentity(
            identity_id=self.identity_id,
            kind=str(self.kind),
            name=self.name,
            role=ROLES.to_proto(self.role),
            project=self.project,
            labels=self.labels,
            created_at_ms=self.created_at_ms,
            revoked_at_ms=self.revoked_at_ms,
            certificates=[each.to_proto() for each in self.certificates],
        )

    @classmethod
    def from_proto(cls, message: identity_pb2.KnownIdentity) -> KnownIdentity:
        role = ROLES.from_proto(message.role, f"identity {message.identity_id}")
        if message.kind != role.kind:
            raise WireError(f"identity {message.identity_id}", f"a {message.kind} cannot have role {role}")
        return cls(
            message.identity_id, role.kind, message.name, role, message.project, tuple(message.labels),
            message.created_at_ms, message.revoked_at_ms,
            tuple(Issued.from_proto(each) for each in message.certificates),
        )  # fmt: skip


@dataclass(frozen=True)
class OpenToken:
    """A join token that can still be used; nobody knows its secret any more."""

    token_id: str
    role: Role
    name: str = ""
    project: str = ""
    labels: tuple[str, ...] = ()
    uses_left: int = 1
    expires_at_ms: int = 0

    def to_proto(self) -> identity_pb2.OpenToken:
        return identity_pb2.OpenToken(
            token_id=self.token_id,
            role=ROLES.to_proto(self.role),
            name=self.name,
            project=self.project,
            labels=self.labels,
            uses_left=self.uses_left,
            expires_at_ms=self.expires_at_ms,
        )

    @classmethod
    def from_proto(cls, message: identity_pb2.OpenToken) -> OpenToken:
        role = ROLES.from_proto(message.role, f"token {message.token_id}")
        return cls(
            message.token_id, role, message.name, message.project, tuple(message.labels), message.uses_left,
            message.expires_at_ms,
        )  # fmt: skip


@dataclass(frozen=True)
class IdentitiesAsked:
    """Asks for all identities and open tokens."""

    def to_proto(self) -> identity_pb2.ListIdentitiesRequest:
        return identity_pb2.ListIdentitiesRequest()

    @classmethod
    def from_proto(cls, _message: identity_pb2.ListIdentitiesRequest) -> IdentitiesAsked:
        return cls()


@dataclass(frozen=True)
class Identities:
    """All identities, and the join tokens that can still be used."""

    identities: tuple[KnownIdentity, ...]
    tokens: tuple[OpenToken, ...]

    def to_proto(self) -> identity_pb2.ListIdentitiesResponse:
        return identity_pb2.ListIdentitiesResponse(
            identities=[each.to_proto() for each in self.identities],
            tokens=[each.to_proto() for each in self.tokens],
        )

    @classmethod
    def from_proto(cls, message: identity_pb2.ListIdentitiesResponse) -> Identities:
        return cls(
            tuple(KnownIdentity.from_proto(each) for each in message.identities),
            tuple(OpenToken.from_proto(each) for each in message.tokens),
        )


@dataclass(frozen=True)
class WebLinkAsked:
    """The caller asks for a link to the server's page."""

    def to_proto(self) -> identity_pb2.MakeWebLinkRequest:
        return identity_pb2.MakeWebLinkRequest()

    @classmethod
    def from_proto(cls, _message: identity_pb2.MakeWebLinkRequest) -> WebLinkAsked:
        return cls()


@dataclass(frozen=True)
class WebLink:
    """A link to the server's page for its receiver alone: it opens one session, once, before it expires."""

    url: str = field(repr=False)
    expires_at_ms: int

    def to_proto(self) -> identity_pb2.MakeWebLinkResponse:
        return identity_pb2.MakeWebLinkResponse(url=self.url, expires_at_ms=self.expires_at_ms)

    @classmethod
    def from_proto(cls, message: identity_pb2.MakeWebLinkResponse) -> WebLink:
        return cls(message.url, message.expires_at_ms)
