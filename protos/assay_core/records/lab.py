"""A whole lab: its boxes and the queue of waiting runs; for admins, its audit log and people's roles."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from assay_core.identity.roles import Role
from assay_core.records.campaign import Estimate
from assay_core.records.campaign import QueueKind as QueueKind  # noqa: PLC0414 - a word of this module too
from assay_core.records.machine import GpuSample, Inventory, Slot
from assay_core.records.wire import Record, closed_set
from assay_protos import lab_pb2
from assay_sampling.errors import ParameterError

_MOST_HOURS = 1_000_000_000


@dataclass(frozen=True)
class AuditAsked(Record[lab_pb2.ReadAuditRequest]):
    """A page of the audit log, newest first.

    ``before``: only entries with a smaller number; ``most`` 0: as many as the server gives; ``identity``: an
    id, or a name then; ``since_ms``: Unix time.
    """

    before: int = 0
    most: int = 0
    identity: str = ""
    since_ms: int = 0


@dataclass(frozen=True)
class AuditEntry(Record[lab_pb2.AuditEntry]):
    """One changing call: who, when, which role, from where, what, about what, with which outcome.

    ``entry_id``: 0 before it is stored; numbers only grow, so that a removed entry leaves a gap. ``name`` and
    ``role`` are those at that time, "" if the caller was not recognised; ``how``: "socket", "certificate" or
    "web"; ``address``: the peer as gRPC names it. ``outcome``: "done", or the gRPC status of a refusal.
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


@dataclass(frozen=True)
class AuditPage(Record[lab_pb2.ReadAuditResponse]):
    """Entries, newest first; ``next``: ``before`` of the next page, 0 on the last."""

    entries: tuple[AuditEntry, ...] = ()
    next: int = 0


@dataclass(frozen=True)
class RoleChange(Record[lab_pb2.SetRoleRequest]):
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


@dataclass(frozen=True)
class BudgetsAsked(Record[lab_pb2.ListBudgetsRequest]):
    """People's budgets; ``identity``: an id, or the name of one person; "": everybody."""

    identity: str = ""


@dataclass(frozen=True)
class PersonBudget:
    """How much GPU time a person may use, and has used, in the days of the budget.

    ``own_gpu_hours`` None: the person has no budget of their own; ``gpu_hours``: the one that holds, the own
    one or the server's, None without any limit.
    """

    identity_id: str
    name: str
    role: Role
    project: str
    own_gpu_hours: float | None
    gpu_hours: float | None
    used_gpu_hours: float

    def to_proto(self) -> lab_pb2.PersonBudget:
        return lab_pb2.PersonBudget(
            identity_id=self.identity_id,
            name=self.name,
            role=str(self.role),
            project=self.project,
            own_gpu_hours=self.own_gpu_hours,
            gpu_hours=self.gpu_hours,
            used_gpu_hours=self.used_gpu_hours,
        )

    @classmethod
    def from_proto(cls, message: lab_pb2.PersonBudget) -> PersonBudget:
        return cls(
            message.identity_id,
            message.name,
            role_named(message.role),
            message.project,
            message.own_gpu_hours if message.HasField("own_gpu_hours") else None,
            message.gpu_hours if message.HasField("gpu_hours") else None,
            message.used_gpu_hours,
        )


@dataclass(frozen=True)
class Budgets(Record[lab_pb2.ListBudgetsResponse]):
    """People with their budgets, which count the GPU time of ``days`` days."""

    people: tuple[PersonBudget, ...] = ()
    days: int = 0


@dataclass(frozen=True)
class BudgetChange(Record[lab_pb2.SetBudgetRequest]):
    """A person's new budget in GPU hours; None: no budget of their own."""

    identity: str
    gpu_hours: float | None

    @classmethod
    def from_proto(cls, message: lab_pb2.SetBudgetRequest) -> BudgetChange:
        """Raises ParameterError for what is not a number of hours."""
        change = super().from_proto(message)
        hours = change.gpu_hours
        if hours is not None and not 0 <= hours <= _MOST_HOURS:
            raise ParameterError(
                "--gpu-hours", f"{hours:g} is not a number from 0 to {_MOST_HOURS:,}", "or give: none"
            )
        return change


def role_named(name: str) -> Role:
    """The role of this name; raises ParameterError."""
    if name not in tuple(Role):
        raise ParameterError("role", f"there is no {name[:100]!r}", f"use one of {', '.join(Role)}")
    return Role(name)


class SlotHealth(StrEnum):
    """Whether a slot takes runs: RESTING after failures of its box, QUARANTINED until a person clears it,
    LOST while its agent gives no sign of life or was revoked, MAINTENANCE while a window keeps new runs
    from its agent."""

    READY = "ready"
    RESTING = "resting"
    QUARANTINED = "quarantined"
    LOST = "lost"
    MAINTENANCE = "maintenance"


_HEALTH = closed_set(lab_pb2.SlotHealth, SlotHealth)


@dataclass(frozen=True)
class LabSlot(Record[lab_pb2.LabSlot], slice_index="slice"):
    """A slot, its health, and the run that it has had since ``leased_at_ms`` (Unix time); "": none, or,
    with a time, one that the caller may not know of.

    ``why`` it is not ready, for people; ``rest_remaining_ms`` while it rests; ``maintenance_until_ms`` (Unix
    time) in a maintenance window; ``sample``: what the GPU's sensors said lately, None if nothing is known.
    """

    slot: Slot
    health: SlotHealth
    why: str = ""
    rest_remaining_ms: int = 0
    run_id: str = ""
    slice_index: int = 0
    leased_at_ms: int = 0
    maintenance_until_ms: int = 0
    sample: GpuSample | None = None


@dataclass(frozen=True)
class LabAgent(Record[lab_pb2.LabAgent]):
    """An agent. ``present``: it sent a heartbeat recently; ``since_ms``: when its process registered (Unix
    time)."""

    agent_id: str
    name: str
    inventory: Inventory
    labels: tuple[str, ...]
    present: bool
    seen_at_ms: int
    since_ms: int
    slots: tuple[LabSlot, ...]


@dataclass(frozen=True)
class LabAgents(Record[lab_pb2.LabAgents]):
    """All agents that the server remembers."""

    agents: tuple[LabAgent, ...] = ()


@dataclass(frozen=True)
class LabQuestion(Record[lab_pb2.ListAgentsRequest]):
    """A question about the whole lab."""


@dataclass(frozen=True, kw_only=True)
class QueuedRuns(Record[lab_pb2.QueuedRuns]):
    """Waiting runs of a campaign with one need: why they wait (``reason`` for people), and who is ahead.

    ``ahead``: campaigns that get the same slots first, the next of them first, with ``runs_ahead`` waiting
    runs. ``estimate``: until these runs are done. Names of campaigns, runs and people that the caller may not
    know of are "".
    """

    campaign_id: str
    first_run_id: str
    device_kind: str
    profiler: str
    runs: int
    kind: QueueKind
    reason: str
    ahead: tuple[str, ...] = ()
    runs_ahead: int = 0
    estimate: Estimate
    owner_name: str = ""
    project: str = ""


@dataclass(frozen=True)
class LabQueue(Record[lab_pb2.LabQueue]):
    """The waiting runs of all campaigns; ``campaigns_left_out``: younger ones, if there are too many."""

    queued: tuple[QueuedRuns, ...] = ()
    campaigns_left_out: int = 0
