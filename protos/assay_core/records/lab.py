"""A whole lab: its boxes and the queue of waiting runs; for admins, its audit log and people's roles."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from assay_core.identity.roles import Role
from assay_core.records.campaign import QUEUE_KINDS, Estimate
from assay_core.records.campaign import QueueKind as QueueKind  # noqa: PLC0414 - a word of this module too
from assay_core.records.machine import GpuSample, Inventory, Slot
from assay_core.records.wire import ClosedSet
from assay_protos import lab_pb2
from assay_sampling.errors import ParameterError

_MOST_HOURS = 1_000_000_000


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


@dataclass(frozen=True)
class BudgetsAsked:
    """People's budgets; ``identity``: an id, or the name of one person; "": everybody."""

    identity: str = ""

    def to_proto(self) -> lab_pb2.ListBudgetsRequest:
        return lab_pb2.ListBudgetsRequest(identity=self.identity)

    @classmethod
    def from_proto(cls, message: lab_pb2.ListBudgetsRequest) -> BudgetsAsked:
        return cls(message.identity)


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
class Budgets:
    """People with their budgets, which count the GPU time of ``days`` days."""

    people: tuple[PersonBudget, ...] = ()
    days: int = 0

    def to_proto(self) -> lab_pb2.ListBudgetsResponse:
        return lab_pb2.ListBudgetsResponse(people=[each.to_proto() for each in self.people], days=self.days)

    @classmethod
    def from_proto(cls, message: lab_pb2.ListBudgetsResponse) -> Budgets:
        return cls(tuple(PersonBudget.from_proto(each) for each in message.people), message.days)


@dataclass(frozen=True)
class BudgetChange:
    """A person's new budget in GPU hours; None: no budget of their own."""

    identity: str
    gpu_hours: float | None

    def to_proto(self) -> lab_pb2.SetBudgetRequest:
        return lab_pb2.SetBudgetRequest(identity=self.identity, gpu_hours=self.gpu_hours)

    @classmethod
    def from_proto(cls, message: lab_pb2.SetBudgetRequest) -> BudgetChange:
        """Raises ParameterError for what is not a number of hours."""
        hours = message.gpu_hours if message.HasField("gpu_hours") else None
        if hours is not None and not 0 <= hours <= _MOST_HOURS:
            raise ParameterError(
                "--gpu-hours", f"{hours:g} is not a number from 0 to {_MOST_HOURS:,}", "or give: none"
            )
        return cls(message.identity, hours)


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


_HEALTH: ClosedSet[SlotHealth] = ClosedSet(lab_pb2.SlotHealth, SlotHealth)


@dataclass(frozen=True)
class LabSlot:
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

    def to_proto(self) -> lab_pb2.LabSlot:
        return lab_pb2.LabSlot(
            slot=self.slot.to_proto(),
            health=_HEALTH.to_proto(self.health),
            why=self.why,
            rest_remaining_ms=self.rest_remaining_ms,
            run_id=self.run_id,
            slice=self.slice_index,
            leased_at_ms=self.leased_at_ms,
            maintenance_until_ms=self.maintenance_until_ms,
            sample=None if self.sample is None else self.sample.to_proto(),
        )

    @classmethod
    def from_proto(cls, message: lab_pb2.LabSlot) -> LabSlot:
        return cls(
            Slot.from_proto(message.slot),
            _HEALTH.from_proto(message.health, message.slot.slot_id),
            message.why,
            message.rest_remaining_ms,
            message.run_id,
            message.slice,
            message.leased_at_ms,
            message.maintenance_until_ms,
            GpuSample.from_proto(message.sample) if message.HasField("sample") else None,
        )


@dataclass(frozen=True)
class LabAgent:
    """An agent. ``present``: it gave a sign of life lately; ``since_ms``: when its process registered (Unix
    time)."""

    agent_id: str
    name: str
    inventory: Inventory
    labels: tuple[str, ...]
    present: bool
    seen_at_ms: int
    since_ms: int
    slots: tuple[LabSlot, ...]

    def to_proto(self) -> lab_pb2.LabAgent:
        return lab_pb2.LabAgent(
            agent_id=self.agent_id,
            name=self.name,
            inventory=self.inventory.to_proto(),
            labels=self.labels,
            present=self.present,
            seen_at_ms=self.seen_at_ms,
            since_ms=self.since_ms,
            slots=[slot.to_proto() for slot in self.slots],
        )

    @classmethod
    def from_proto(cls, message: lab_pb2.LabAgent) -> LabAgent:
        return cls(
            message.agent_id,
            message.name,
            Inventory.from_proto(message.inventory),
            tuple(message.labels),
            message.present,
            message.seen_at_ms,
            message.since_ms,
            tuple(LabSlot.from_proto(slot) for slot in message.slots),
        )


@dataclass(frozen=True)
class LabAgents:
    """All agents that the server remembers."""

    agents: tuple[LabAgent, ...] = ()

    def to_proto(self) -> lab_pb2.LabAgents:
        return lab_pb2.LabAgents(agents=[agent.to_proto() for agent in self.agents])

    @classmethod
    def from_proto(cls, message: lab_pb2.LabAgents) -> LabAgents:
        return cls(tuple(LabAgent.from_proto(agent) for agent in message.agents))


@dataclass(frozen=True)
class LabQuestion:
    """A question about the whole lab."""

    def to_proto(self) -> lab_pb2.ListAgentsRequest:
        return lab_pb2.ListAgentsRequest()

    @classmethod
    def from_proto(cls, _message: object) -> LabQuestion:
        return cls()


@dataclass(frozen=True, kw_only=True)
class QueuedRuns:
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

    def to_proto(self) -> lab_pb2.QueuedRuns:
        estimate = self.estimate
        return lab_pb2.QueuedRuns(
            campaign_id=self.campaign_id,
            first_run_id=self.first_run_id,
            device_kind=self.device_kind,
            profiler=self.profiler,
            runs=self.runs,
            kind=QUEUE_KINDS.to_proto(self.kind),
            reason=self.reason,
            ahead=self.ahead,
            runs_ahead=self.runs_ahead,
            estimate=lab_pb2.Estimate(
                known=estimate.known,
                remaining_ms=estimate.remaining_ms,
                missing=estimate.missing,
                at_least=estimate.at_least,
            ),
            owner_name=self.owner_name,
            project=self.project,
        )

    @classmethod
    def from_proto(cls, message: lab_pb2.QueuedRuns) -> QueuedRuns:
        told = message.estimate
        return cls(
            campaign_id=message.campaign_id,
            first_run_id=message.first_run_id,
            device_kind=message.device_kind,
            profiler=message.profiler,
            runs=message.runs,
            kind=QUEUE_KINDS.from_proto(message.kind, message.first_run_id),
            reason=message.reason,
            ahead=tuple(message.ahead),
            runs_ahead=message.runs_ahead,
            estimate=Estimate(told.known, told.remaining_ms, told.missing, told.at_least),
            owner_name=message.owner_name,
            project=message.project,
        )


@dataclass(frozen=True)
class LabQueue:
    """The waiting runs of all campaigns; ``campaigns_left_out``: younger ones, if there are too many."""

    queued: tuple[QueuedRuns, ...] = ()
    campaigns_left_out: int = 0

    def to_proto(self) -> lab_pb2.LabQueue:
        queued = [each.to_proto() for each in self.queued]
        return lab_pb2.LabQueue(queued=queued, campaigns_left_out=self.campaigns_left_out)

    @classmethod
    def from_proto(cls, message: lab_pb2.LabQueue) -> LabQueue:
        return cls(tuple(QueuedRuns.from_proto(q) for q in message.queued), message.campaigns_left_out)
