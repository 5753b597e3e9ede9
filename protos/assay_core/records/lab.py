"""What admins ask about a lab: its audit log, and people's roles."""

from __future__ import annotations

from dataclasses import dataclass

from assay_core.identity.roles import Role
from assay_protos import lab_pb2
from assay_sampling.errors import ParameterError


@dataclass(frozen=True)
class AuditAsked:
    """A page of the audit log, newest first.

    ``before``: only entries with a smaller number; ``most`` 0: as many as the server gives; ``identity``: an
    id, or a name then; ``since_ms``: Unix time.
    """

    before: int = 0
    most: int = 0
    identity: str = ""
    since_ms: int = 0

    def to_proto(self) -> lab_pb2.ReadAuditRequest:
        return lab_pb2.ReadAuditRequest(
            before=self.before, most=self.most, identity=self.identity, since_ms=self.since_ms
        )

    @classmethod
    def from_proto(cls, message: lab_pb2.ReadAuditRequest) -> AuditAsked:
        return cls(message.before, message.most, message.identity, message.since_ms)


@dataclass(frozen=True)
class AuditEntry:
    """One changing call: who, when, which role, from where, what, about what, with which outcome.

    ``entry_id``: 0 before it is stored; numbers only grow, so that a removed entry leaves a gap. ``name`` and
    ``role`` are those at that time, "" if the caller was not recognised; ``how``: "socket" or "certificate";
    ``address``: the peer as gRPC names it. ``outcome``: "done", or the gRPC status of a refusal.
    """

    entry_id: int
    at_ms: int
    identity_id: str
    name: str
    role: str
    how: str
    address: str
    call: str
    subject: str
    outcome: str
    detail: str

    def to_proto(self) -> lab_pb2.AuditEntry:
        return lab_pb2.AuditEntry(
            entry_id=self.entry_id,
            at_ms=self.at_ms,
            identity_id=self.identity_id,
            name=self.name,
            role=self.role,
            how=self.how,
            address=self.address,
            call=self.call,
            subject=self.subject,
            outcome=self.outcome,
            detail=self.detail,
        )

    @classmethod
    def from_proto(cls, message: lab_pb2.AuditEntry) -> AuditEntry:
        return cls(
            message.entry_id,
            message.at_ms,
            message.identity_id,
            message.name,
            message.role,
            message.how,
            message.address,
            message.call,
            message.subject,
            message.outcome,
            message.detail,
        )


@dataclass(frozen=True)
class AuditPage:
    """Entries, newest first; ``next``: ``before`` of the next page, 0 on the last."""

    entries: tuple[AuditEntry, ...] = ()
    next: int = 0

    def to_proto(self) -> lab_pb2.ReadAuditResponse:
        return lab_pb2.ReadAuditResponse(entries=[e.to_proto() for e in self.entries], next=self.next)

    @classmethod
    def from_proto(cls, message: lab_pb2.ReadAuditResponse) -> AuditPage:
        return cls(tuple(AuditEntry.from_proto(each) for each in message.entries), message.next)


@dataclass(frozen=True)
class RoleChange:
    """A person's new role; ``project`` None: it stays."""

    identity: str
    role: Role
    project: str | None = None

    def to_proto(self) -> lab_pb2.SetRoleRequest:
        return lab_pb2.SetRoleRequest(
            identity=self.identity,
            role=str(self.role),
            project=self.project or "",
            keep_project=self.project is None,
        )

    @classmethod
    def from_proto(cls, message: lab_pb2.SetRoleRequest) -> RoleChange:
        """Raises ParameterError for a role that there is not."""
        role = role_named(message.role)
        return cls(message.identity, role, None if message.keep_project else message.project)


@dataclass(frozen=True)
class RoleSet:
    """An identity with the role and project that it has now."""

    identity_id: str
    name: str
    role: Role
    project: str

    def to_proto(self) -> lab_pb2.SetRoleResponse:
        return lab_pb2.SetRoleResponse(
            identity_id=self.identity_id, name=self.name, role=str(self.role), project=self.project
        )

    @classmethod
    def from_proto(cls, message: lab_pb2.SetRoleResponse) -> RoleSet:
        return cls(message.identity_id, message.name, role_named(message.role), message.project)


def role_named(name: str) -> Role:
    """The role of this name; raises ParameterError."""
    if name not in tuple(Role):
        raise ParameterError("role", f"there is no {name[:100]!r}", f"use one of {', '.join(Role)}")
    return Role(name)
