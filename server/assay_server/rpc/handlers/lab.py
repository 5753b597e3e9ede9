"""Answers questions about the whole lab: its agents, and the queue. Plain functions; may block.

Runs of campaigns that the caller may not know of are in the queue and on slots, but without names.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

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
from assay_core.records.machine import GpuSample, Slot
from assay_server.access.caller import current_caller
from assay_server.access.rights import sight_of
from assay_server.campaigns.last_heard import LastHeard
from assay_server.campaigns.planning.forecast import Elsewhere, estimate
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.fitting_slots import AWAY_AFTER_MS
from assay_server.campaigns.scheduling.queue import Candidates
from assay_server.campaigns.scheduling.resting import Rest, SlotKey, Window, window_of
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
from assay_server.rpc.handlers.statuses import seen_runs
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
        coordinator = self._coordinator
        moment = _Moment(
            coordinator.clock.now_ms(),
            coordinator.resting(),
            coordinator.policy.windows,
            coordinator.last_heard,
            revoked,
            {(each.agent_id, slot_id): each for each in leased for slot_id in each.slots},
            seen,
        )
        return LabAgents(tuple(_agent(agent, moment) for agent in agents))

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
        held = held_reason(
            run,
            campaign_paused=campaign.paused,
            awaits_light=run.run_id in line.progress.awaiting_light,
        )
        reason = held or wait_reason(run, lab, line.line) or NEXT_UP
        ledger = self._coordinator.queue.ledger
        ahead = (
            ()
            if held is not None
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
            estimate=_until_done([*before, line], run.device_key, lab, held is not None),
        )


def _until_done(lines: list[_Line], device_key: str, lab: Lab, held: bool) -> Estimate:
    """Until the slices of these campaigns on one kind of GPU are done."""
    if held:
        return Estimate(missing="it is held")
    costs = [cost for line in lines for cost in line.costs_on(device_key)]
    open_ended = any(
        line.campaign.compiled.slicing is not None and not line.campaign.compiled.slicing.is_fixed
        for line in lines
    )
    runs = [run for line in lines for run, _ in line.progress.needs]
    return estimate(costs, slots_by_gpu(lab), at_least=open_ended, elsewhere=Elsewhere(runs=runs))


@dataclass(frozen=True)
class _Moment:
    """What decides besides agents whether slots take runs now, and what their sensors said.

    ``revoked``: the identities that may not call any more, among them agents, which are called as these are.
    ``leased``: what slots measure, by agent and slot; ``seen``: the runs that the caller may know of.
    """

    now_ms: int
    resting: Mapping[SlotKey, Rest]
    windows: tuple[Window, ...]
    last_heard: LastHeard
    revoked: frozenset[str]
    leased: dict[tuple[str, str], Attempt]
    seen: frozenset[str]


def _agent(agent: Agent, moment: _Moment) -> LabAgent:
    samples = moment.last_heard.gpu_samples(agent.agent_id, moment.now_ms)
    away = moment.now_ms - agent.seen_at_ms > AWAY_AFTER_MS
    slots = tuple(_slot(agent, slot, samples.get(slot.slot_id), moment) for slot in agent.slots)
    return LabAgent.like(agent, present=agent.agent_id not in moment.revoked and not away, slots=slots)


def _slot(agent: Agent, slot: Slot, sample: GpuSample | None, moment: _Moment) -> LabSlot:
    rest = moment.resting.get((agent.agent_id, slot.slot_id))
    window = window_of(moment.windows, agent, moment.now_ms)
    health, why, remaining_ms, until_ms = SlotHealth.READY, "", 0, 0
    if agent.agent_id in moment.revoked:
        health, why = SlotHealth.LOST, "its agent's identity was revoked"
    elif moment.now_ms - agent.seen_at_ms > AWAY_AFTER_MS:
        health, why = SlotHealth.LOST, "its agent gives no sign of life"
    elif slot.quarantine_reason:
        health, why = SlotHealth.QUARANTINED, slot.quarantine_reason
    elif window is not None:
        health, until_ms = SlotHealth.MAINTENANCE, window.end_ms
        why = f"a maintenance window keeps new runs from it until {window.end}"
    elif rest is not None:
        health, why = SlotHealth.RESTING, f"{rest.why.cause} [{rest.why.failure_class}]"
        remaining_ms = max(0, rest.until_ms - moment.now_ms)
    answer = LabSlot(slot, health, why, remaining_ms, maintenance_until_ms=until_ms, sample=sample)
    attempt = moment.leased.get((agent.agent_id, slot.slot_id))
    if attempt is None:
        return answer
    key = attempt.key if attempt.key.run_id in moment.seen else None
    return replace(
        answer,
        run_id="" if key is None else key.run_id,
        slice_index=0 if key is None else key.slice_index,
        leased_at_ms=attempt.leased_at_ms,
    )


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
