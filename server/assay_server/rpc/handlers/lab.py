"""Answers questions about the whole lab: its agents, and the queue. Plain functions; may block.

Runs of campaigns that the caller may not know of are in the queue and on slots, but without names.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

from assay_core.records.campaign import AttemptState, CampaignState, Estimate, RunState
from assay_core.records.lab import (
    LabAgent,
    LabAgents,
    LabQuestion,
    LabQueue,
    LabSlot,
    QueuedRuns,
    SlotHealth,
)
from assay_core.records.machine import Slot
from assay_server.access.caller import current_caller, sight_of
from assay_server.campaigns.planning.forecast import Elsewhere, estimate
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.fitting_slots import AWAY_AFTER_MS
from assay_server.campaigns.scheduling.queue import Candidates
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
from assay_server.store.overviews import CampaignProgress, WorkloadCost
from assay_server.store.sql import SqlTransaction

_MOST_AHEAD = 5
_HIDDEN_WORKLOAD = "a workload of another project"


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
        now_ms, candidates = self._coordinator.clock.now_ms(), Candidates()
        sight = sight_of(current_caller())
        with self._coordinator.snapshot() as store:
            running = [c for c in store.campaigns() if c.state is CampaignState.RUNNING]
            oldest = running[: self._limits.status_page_campaigns]
            campaigns = [store.campaign(c.campaign_id) for c in oldest]
            lines = [
                self._line(store, campaign, now_ms, sight) for campaign in campaigns if campaign is not None
            ]
            candidates.add(store.entrants([line.campaign.campaign_id for line in lines]))
            lab = Lab(store.agents(), now_ms, self._coordinator.resting())
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
        shares = self._coordinator.queue.shares
        ahead = (
            ()
            if hold is not None
            else ahead_of(campaign.campaign_id, lab.seats(run), candidates, lab.now_ms, shares)
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
