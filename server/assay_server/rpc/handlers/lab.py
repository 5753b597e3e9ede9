"""Answers calls about the whole lab: agents, queue, people's roles and budgets, the audit log. May block.

Runs of campaigns that the caller may not know of are in the queue and on slots, but without names.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Any

from assay_core.identity.roles import IdentityKind
from assay_core.records.campaign import AttemptState, CampaignState, Estimate, RunState
from assay_core.records.lab import (
    AuditAsked,
    AuditPage,
    BudgetChange,
    Budgets,
    BudgetsAsked,
    LabAgent,
    LabAgents,
    LabQuestion,
    LabQueue,
    LabSlot,
    PersonBudget,
    QueuedRuns,
    RoleChange,
    RoleSet,
    SlotHealth,
)
from assay_core.records.machine import Slot
from assay_sampling.errors import ParameterError
from assay_server.access.audit import note_subject
from assay_server.access.caller import IdentityDirectory, current_caller, sight_of
from assay_server.campaigns.planning.forecast import Elsewhere, estimate
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.fitting_slots import AWAY_AFTER_MS
from assay_server.campaigns.scheduling.queue import PERSON_DAYS, Candidates
from assay_server.campaigns.scheduling.resting import window_of
from assay_server.campaigns.scheduling.waiting import (
    NEXT_UP,
    Lab,
    Line,
    ahead_of,
    held_reason,
    slots_by_gpu,
    wait_reason,
    waiting_alike,
)
from assay_server.limits import DEFAULT_LIMITS, QueryLimits
from assay_server.rpc.handlers.campaigns import seen_runs
from assay_server.store.model import Agent, Attempt, Belonging, Campaign, Run, Sight
from assay_server.store.parts.overviews import CampaignProgress, WorkloadCost
from assay_server.store.people import Identity
from assay_server.store.sql import MetadataStore, SqlTransaction

_MOST_AHEAD = 5
_HIDDEN_WORKLOAD = "a workload of another project"
_PAGE_ENTRIES = 500
_LONGEST_PROJECT = 100


@dataclass(frozen=True)
class _Line:
    """A running campaign with what it waits for and what it costs."""

    campaign: Campaign
    progress: CampaignProgress
    costs: list[WorkloadCost]
    line: Line
    hidden: bool  # from the caller

    @property
    def waiting(self) -> list[tuple[Run, int]]:
        waiting = [(run, count) for run, count in self.progress.needs if run.state is RunState.WAITING]
        return waiting_alike(waiting, self.line)

    def costs_on(self, device_key: str) -> list[WorkloadCost]:
        return [cost for cost in self.costs if cost.device_key == device_key]


class LabHandler:
    """Agents and queue."""

    def __init__(self, coordinator: Coordinator, limits: QueryLimits = DEFAULT_LIMITS.queries) -> None:
        self._coordinator = coordinator
        self._limits = limits

    def agents(self, _question: LabQuestion) -> LabAgents:
        """Every agent that the server remembers."""
        with self._coordinator.snapshot() as store:
            agents = store.agents()
            leased = store.attempts_in((AttemptState.LEASED,))
            seen = seen_runs(store, [each.key.run_id for each in leased], sight_of(current_caller()))
            revoked = frozenset(each.identity_id for each in store.identities() if each.revoked_at_ms)
            by_slot = {(each.agent_id, slot_id): each for each in leased for slot_id in each.slots}
        now_ms = self._coordinator.clock.now_ms()
        lab_agents = []
        for agent in agents:
            is_revoked = agent.agent_id in revoked
            present = not is_revoked and now_ms - agent.seen_at_ms <= AWAY_AFTER_MS
            samples = self._coordinator.last_heard.gpu_samples(agent.agent_id, now_ms)
            slots = [
                replace(
                    self._slot(agent, slot, is_revoked, now_ms),
                    sample=samples.get(slot.slot_id),
                    **_lease_on(by_slot.get((agent.agent_id, slot.slot_id)), seen),
                )
                for slot in agent.slots
            ]
            lab_agents.append(LabAgent.like(agent, present=present, slots=tuple(slots)))
        return LabAgents(tuple(lab_agents))

    def _slot(self, agent: Agent, slot: Slot, is_revoked: bool, now_ms: int) -> LabSlot:
        """A slot, and whether it takes runs now."""
        rest = self._coordinator.slots.at(agent.agent_id, slot.slot_id, now_ms)
        window = window_of(self._coordinator.policy.windows, agent, now_ms)
        if is_revoked:
            return LabSlot(slot, SlotHealth.LOST, "its agent's identity was revoked")
        if now_ms - agent.seen_at_ms > AWAY_AFTER_MS:
            return LabSlot(slot, SlotHealth.LOST, "its agent gives no sign of life")
        if slot.quarantine_reason:
            return LabSlot(slot, SlotHealth.QUARANTINED, slot.quarantine_reason)
        if window is not None:
            why = f"a maintenance window keeps new runs from it until {window.end}"
            return LabSlot(slot, SlotHealth.MAINTENANCE, why, maintenance_until_ms=window.end_ms)
        if rest is not None:
            why = f"{rest.why.cause} [{rest.why.failure_class}]"
            return LabSlot(slot, SlotHealth.RESTING, why, max(0, rest.until_ms - now_ms))
        return LabSlot(slot, SlotHealth.READY)

    def queue(self, _question: LabQuestion) -> LabQueue:
        """What waits in all running campaigns; the oldest of them, if there are too many."""
        candidates, sight = Candidates(), sight_of(current_caller())
        with self._coordinator.snapshot() as store:
            lab = self._coordinator.lab(store)
            running = [c for c in store.campaigns() if c.state is CampaignState.RUNNING]
            oldest = running[: self._limits.status_page_campaigns]
            campaigns = [store.campaign(c.campaign_id) for c in oldest]
            lines = [
                self._line(store, campaign, lab.now_ms, sight)
                for campaign in campaigns
                if campaign is not None
            ]
            candidates.add(store.entrants([line.campaign.campaign_id for line in lines]))
        by_id = {line.campaign.campaign_id: line for line in lines}
        hidden = frozenset(each for each, line in by_id.items() if line.hidden)
        queued = [
            _unnamed(self._queued(line, waiting, by_id, candidates, lab), hidden)
            for line in lines
            for waiting in line.waiting
        ]
        return LabQueue(tuple(queued), len(running) - len(oldest))

    def _line(self, store: SqlTransaction, campaign: Campaign, now_ms: int, sight: Sight) -> _Line:
        progress = store.progress(campaign.campaign_id)
        line = self._coordinator.line(store, campaign, [run for run, _ in progress.needs])
        costs = store.workload_costs(campaign.campaign_id, now_ms)
        hidden = not sight.sees(Belonging(campaign.owner, campaign.project))
        if hidden:  # what estimates say of it names no workload
            costs = [replace(each, workload=_HIDDEN_WORKLOAD) for each in costs]
        return _Line(campaign, progress, costs, line, hidden)

    def _queued(
        self, line: _Line, waiting: tuple[Run, int], lines: dict[str, _Line], candidates: Candidates, lab: Lab
    ) -> QueuedRuns:
        campaign, (run, count) = line.campaign, waiting
        hold = held_reason(
            run,
            campaign_paused=campaign.paused,
            awaits_light=run.run_id in line.progress.awaiting_light,
        )
        reason = hold or wait_reason(run, lab, line.line) or NEXT_UP
        ledger = self._coordinator.queue.ledger
        ahead = (
            ()
            if hold is not None
            else ahead_of(campaign.campaign_id, lab.seats(run), candidates, ledger, lab.now_ms)
        )
        before = [lines[each] for each in ahead if each in lines]
        return QueuedRuns.like(
            campaign,
            run,
            first_run_id=run.run_id,
            runs=count,
            kind=reason.kind,
            reason=reason.text,
            ahead=ahead[:_MOST_AHEAD],
            runs_ahead=sum(
                runs for each in before for other, runs in each.waiting if other.device_key == run.device_key
            ),
            estimate=_until_done([*before, line], run.device_key, lab, hold is not None),
        )


def _until_done(lines: list[_Line], device_key: str, lab: Lab, is_held: bool) -> Estimate:
    """Until the slices of these campaigns on one kind of GPU are done."""
    if is_held:
        return Estimate(missing="it is held")
    costs = [cost for line in lines for cost in line.costs_on(device_key)]
    open_ended = any(
        line.campaign.compiled.slicing is not None and not line.campaign.compiled.slicing.is_fixed
        for line in lines
    )
    runs = [run for line in lines for run, _ in line.progress.needs]
    return estimate(costs, slots_by_gpu(lab), at_least=open_ended, elsewhere=Elsewhere(runs=runs))


def _lease_on(attempt: Attempt | None, seen: Set[str]) -> dict[str, Any]:
    """The lease of a slot, as its fields say it; ``seen``: the runs that the caller may know of."""
    if attempt is None:
        return {}
    if attempt.key.run_id not in seen:
        return {"leased_at_ms": attempt.leased_at_ms}
    key = attempt.key
    return {"run_id": key.run_id, "slice_index": key.slice_index, "leased_at_ms": attempt.leased_at_ms}


def _unnamed(queued: QueuedRuns, hidden: Set[str]) -> QueuedRuns:
    """Waiting runs without the names of hidden campaigns, each of which becomes ""."""
    ahead = tuple("" if each in hidden else each for each in queued.ahead)
    if queued.campaign_id not in hidden:
        return replace(queued, ahead=ahead)
    return replace(
        queued,
        campaign_id="",
        first_run_id="",
        owner_name="",
        project="",
        reason="it is of another project",
        ahead=ahead,
    )


def set_role(metadata: MetadataStore, directory: IdentityDirectory, change: RoleChange) -> RoleSet:
    """Give a person another role; it holds at once. Raises ParameterError."""
    with metadata.transaction() as store:
        person = _person_called(store, change.identity)
        if change.role.kind is not IdentityKind.PERSON:
            raise _not_a_person(change.identity)
        project = person.project if change.project is None else change.project
        if len(project) > _LONGEST_PROJECT or not (project.isprintable()):
            raise ParameterError(
                "project", f"{project[:50]!r} is not at most {_LONGEST_PROJECT} printable characters"
            )
        now = replace(person, role=change.role, project=project)
        store.put_identity(now)
        what = f"{person.role} to {now.role}"
        if project != person.project:
            what += f", project {person.project!r} to {project!r}"
        note_subject(f"person {now.name} ({now.identity_id})", what)
    directory.refresh()
    return RoleSet(now.identity_id, now.name, now.role, now.project)


def read_audit(metadata: MetadataStore, query: AuditAsked) -> AuditPage:
    """A page of the audit log, newest first."""
    most = max(1, min(query.most or _PAGE_ENTRIES, _PAGE_ENTRIES))
    with metadata.snapshot() as store:
        entries = store.audit_entries(
            before=max(0, query.before), most=most + 1, identity=query.identity, since_ms=query.since_ms
        )
    page = entries[:most]
    return AuditPage(tuple(page), page[-1].entry_id if len(entries) > most else 0)


def budgets(coordinator: Coordinator, query: BudgetsAsked) -> Budgets:
    """Everybody, or one person; callers who may not see all campaigns see themselves alone.

    Raises ParameterError for a person whom the server does not know.
    """
    sight = sight_of(current_caller())
    with coordinator.schedule() as schedule:
        store = schedule.store
        people: Iterable[Identity] = (
            [_person_called(store, query.identity)] if query.identity else store.identities()
        )
        entries = [
            _budget_of(coordinator, store, each)
            for each in people
            if each.kind is IdentityKind.PERSON
            and not each.revoked_at_ms
            and (sight.everything or each.identity_id == sight.identity_id)
        ]
    return Budgets(tuple(sorted(entries, key=lambda each: (each.name, each.identity_id))), PERSON_DAYS)


def set_budget(coordinator: Coordinator, change: BudgetChange) -> PersonBudget:
    """Give a person a budget, or take it away; it holds for the next lease. Raises ParameterError."""
    with coordinator.schedule() as schedule:
        store = schedule.store
        person = _person_called(store, change.identity)
        now = replace(person, budget_gpu_hours=change.gpu_hours)
        store.put_identity(now)
        before, after = (_hours(each.budget_gpu_hours) for each in (person, now))
        note_subject(f"person {now.name} ({now.identity_id})", f"GPU hours {before} to {after}")
        schedule.effects.doubt = True  # the next decision reads budgets again
    with coordinator.schedule() as schedule:
        return _budget_of(coordinator, schedule.store, now)


def _budget_of(coordinator: Coordinator, store: SqlTransaction, person: Identity) -> PersonBudget:
    own = person.budget_gpu_hours
    return PersonBudget(
        person.identity_id,
        person.name,
        person.role,
        person.project,
        own,
        (coordinator.policy.person_gpu_hours or None) if own is None else own,
        coordinator.queue.person_hours(store, person.identity_id, coordinator.clock.now_ms()),
    )


def _hours(hours: float | None) -> str:
    return "none" if hours is None else f"{hours:g}"


def _person_called(store: SqlTransaction, name: str) -> Identity:
    """The person with an id, or the only one with a name. Raises ParameterError."""
    subject = f"identity {name[:100]!r}"
    identities = [each for each in store.identities() if not each.revoked_at_ms]
    matches = [each for each in identities if each.identity_id == name]
    matches = matches or [each for each in identities if each.name == name]
    if len(matches) != 1:
        cause = "the server knows no such identity" if not matches else "several identities have that name"
        raise ParameterError(subject, cause, "give the id of one: assay admin identities lists them")
    [identity] = matches
    if identity.kind is not IdentityKind.PERSON:
        raise _not_a_person(name)
    return identity


def _not_a_person(name: str) -> ParameterError:
    return ParameterError(
        f"identity {name[:100]!r}",
        "an agent stays an agent, and a person a person",
        "make a join token for another identity",
    )
