"""Who waits, why and behind whom: the queue as people see it. Pure.

The order is the scheduler's own (:mod:`assay_server.campaigns.queue.candidates`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from assay_core.records.campaign import QueueKind, RunState
from assay_server.campaigns.queue.candidates import Candidates
from assay_server.campaigns.queue.fair_share import NO_SHARES, Shares
from assay_server.campaigns.queue.fitting_slots import AWAY_AFTER_MS
from assay_server.campaigns.scheduling.choice import Seat, seat_of
from assay_server.campaigns.scheduling.resting import NO_RESTS, Row
from assay_server.campaigns.scheduling.waiting import NO_LINE, Line, wait_reasons, worth_saying
from assay_server.store.model import Agent, Run, need_of


@dataclass(frozen=True)
class Reason:
    """Why runs wait; ``text`` for people."""

    kind: QueueKind
    text: str


@dataclass(frozen=True)
class Lab:
    """The places for runs at one moment: agents, and resting slots."""

    agents: Sequence[Agent]
    now_ms: int
    resting: Row = NO_RESTS

    def seats(self, run: Run) -> list[Seat]:
        """The slots in service of present agents that fit a run."""
        need = need_of(run)
        open_seats = [
            seat_of(agent, slot)
            for agent in self.agents
            if self.now_ms - agent.seen_at_ms <= AWAY_AFTER_MS
            for slot in agent.slots
            if not slot.quarantine_reason
        ]
        return [seat for seat in open_seats if seat.fits(need)]


def held_reason(run: Run, *, campaign_paused: bool = False, awaits_light: bool = False) -> Reason | None:
    """Why a waiting run may not begin, whatever slots there are; None: it may."""
    if campaign_paused:
        text = f"its campaign is paused; let it go on with: assay lab resume {run.campaign_id}"
        return Reason(QueueKind.CAMPAIGN_PAUSED, text)
    if run.paused:
        text = f"it is paused; let it go on with: assay lab resume {run.campaign_id} --run {run.run_id}"
        return Reason(QueueKind.PAUSED, text)
    if awaits_light:
        text = f"the light run of {run.workload} on {run.device_kind} comes first: it decides the slices"
        return Reason(QueueKind.LIGHT_RUN, text)
    return None


def reason_of(run: Run, lab: Lab, held: Reason | None, line: Line = NO_LINE) -> Reason:
    """Why a waiting run waits now."""
    if held is not None:
        return held
    why = wait_reasons([run], lab.agents, lab.now_ms, lab.resting, line).get(run.run_id)
    if why is None:
        return Reason(QueueKind.QUEUED, "it is next, or its next try is not due yet")
    return Reason(QueueKind(why.kind.value), why.text)


def told_reasons(
    runs: Collection[Run], lab: Lab, line: Line, campaign_paused: bool, awaiting_light: Collection[str]
) -> dict[str, Reason]:
    """By run: why waiting runs wait, where there is more to say than that others are ahead."""
    waits = worth_saying(runs, lab.agents, lab.now_ms, lab.resting, line)
    reasons = {run_id: Reason(QueueKind(why.kind.value), why.text) for run_id, why in waits.items()}
    return reasons | _held_reasons(runs, campaign_paused, awaiting_light)


def held_lines(runs: Iterable[Run], campaign_paused: bool, awaiting_light: Collection[str]) -> dict[str, str]:
    """By run: why waiting runs may not begin, whatever slots there are. Other runs are left out."""
    held = _held_reasons(runs, campaign_paused, awaiting_light)
    return {run_id: reason.text for run_id, reason in held.items()}


def _held_reasons(
    runs: Iterable[Run], campaign_paused: bool, awaiting_light: Collection[str]
) -> dict[str, Reason]:
    reasons = {}
    for run in runs:
        if run.state is RunState.WAITING or run.paused:
            held = held_reason(
                run, campaign_paused=campaign_paused, awaits_light=run.run_id in awaiting_light
            )
            if held is not None:
                reasons[run.run_id] = held
    return reasons


def ahead_of(
    campaign_id: str, seats: Sequence[Seat], candidates: Candidates, now_ms: int, shares: Shares = NO_SHARES
) -> tuple[str, ...]:
    """The campaigns that are given a slot before this one, the next of them first."""
    if not seats:
        return ()
    campaigns: dict[str, None] = {}
    for candidate in candidates.in_order(seats[0], seats[0].fits, shares, now_ms):
        if candidate.campaign_id == campaign_id:
            break
        campaigns.setdefault(candidate.campaign_id)
    return tuple(campaigns)


def slots_by_gpu(lab: Lab) -> dict[str, int]:
    """How many slots in service of present agents there are, by the key of their GPU; "": every slot."""
    counted: dict[str, int] = {}
    for agent in lab.agents:
        if lab.now_ms - agent.seen_at_ms <= AWAY_AFTER_MS:
            for slot in agent.slots:
                if not slot.quarantine_reason:
                    for key in {slot.device_key, ""}:
                        counted[key] = counted.get(key, 0) + 1
    return counted
