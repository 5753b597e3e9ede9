"""Who waits, why and behind whom: the queue as people see it. Pure.

A run waits for what the registered agents lack for it, or for what keeps it from a slot that fits. The order
is the scheduler's own (:mod:`assay_server.campaigns.scheduling.queue`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assay_core.records.campaign import QueueKind, RunState
from assay_server.campaigns.scheduling.fitting_slots import (
    AWAY_AFTER_MS,
    Lack,
    Seat,
    idle_together,
    lack_of_gangs,
    rivals,
    seats_of,
)
from assay_server.campaigns.scheduling.queue import Candidates, Ledger
from assay_server.campaigns.scheduling.resting import Rest, SlotKey, Window, window_of
from assay_server.store.model import OPEN_RUNS, Agent, Hold, Run, need_of

# Requested names that are not a profiler themselves.
_PROFILERS = {"auto": "nsight_systems or cupti"}
_MOST_NAMED = 3
_REQUIRED = (
    Lack.ARCHITECTURE, Lack.NAME, Lack.SM_COUNT, Lack.MEMORY, Lack.DRIVER, Lack.TOOLS, Lack.LABELS, Lack.MIG,
)  # fmt: skip
_PARTITIONS_NEED = "they need Ampere or newer, NVIDIA's MPS of CUDA 13.1, and an agent of this release"
_BUNDLES_NEED = "its agent's policy file must enable bundles: 'assay docs bundles'"
_NOT_OFFERED = {Lack.PARTITIONS: _PARTITIONS_NEED, Lack.BUNDLES: _BUNDLES_NEED}


@dataclass(frozen=True)
class Reason:
    """Why runs wait, and what for; ``text`` for people."""

    kind: QueueKind
    text: str


# Of a run that a slot may have at any moment.
NEXT_UP = Reason(QueueKind.QUEUED, "it is next, or its next try is not due yet")


@dataclass(frozen=True)
class Line:
    """What decides about a campaign's runs besides agents.

    ``windows``: of maintenance. ``budget_left_hours``: of GPU time, the campaign's or its owner's.
    ``blocking``: by workload, those that must end before it and have not. ``busy``: agent and slot of every
    lease.
    """

    windows: tuple[Window, ...] = ()
    budget_left_hours: float = math.inf
    blocking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    busy: frozenset[tuple[str, str]] = frozenset()


NO_LINE = Line()


@dataclass(frozen=True)
class Lab:
    """The places for runs at one moment: agents, and resting slots."""

    agents: Sequence[Agent]
    now_ms: int
    resting: Mapping[SlotKey, Rest] = field(default_factory=dict)

    def seats(self, run: Run) -> list[Seat]:
        """The slots in service of present agents that fit a run."""
        need = need_of(run)
        return [seat for seat in self.in_service() if seat.fits(need)]

    def has(self, agent: Agent) -> bool:
        """Whether an agent is present."""
        return self.now_ms - agent.seen_at_ms <= AWAY_AFTER_MS

    def in_service(self) -> Iterator[Seat]:
        """The slots in service of present agents."""
        present = seats_of(filter(self.has, self.agents))
        return (seat for seat in present if not seat.slot.quarantine_reason)


def waiting_alike(needs: Iterable[tuple[Run, int]], line: Line) -> list[tuple[Run, int]]:
    """Needs of a campaign's open runs, each with a run and how many there are, without those whose only
    difference is the workload, as they wait for the same workloads to end."""
    groups: dict[object, tuple[Run, int]] = {}
    for run, runs in needs:
        blocking = line.blocking.get(run.workload, ()) if Hold.AFTER in run.holds else ()
        alike = (need_of(run), run.device_kind, run.state, run.holds, blocking)
        key: object = alike if run.holds else run.run_id
        first, counted = groups.get(key, (run, 0))
        groups[key] = first, counted + runs
    return list(groups.values())


def wait_reason(run: Run, lab: Lab, line: Line = NO_LINE) -> Reason | None:
    """Why a run that nothing holds waits; None: it has ended, or has begun and can continue.

    A run that has begun also waits if every slot that could continue it is out of service, or rests.
    """
    if run.state not in OPEN_RUNS or run.paused:
        return None
    if Hold.AFTER in run.holds:
        names = ", ".join(line.blocking.get(run.workload, ()))
        return Reason(QueueKind.AFTER, f"{names or 'other workloads'} must end before it")
    need = need_of(run)
    offers = [seat for seat in seats_of(lab.agents) if seat.fits(need)]
    present = [seat for seat in offers if lab.has(seat.agent)]
    in_service = [seat for seat in present if not seat.slot.quarantine_reason]
    if in_service:
        return _not_served(run, in_service, lab, line)
    if present:
        text = f"every {_kind_wanted(run)} is out of service: {'; '.join(_out_of_service(present))}"
        return Reason(QueueKind.OUT_OF_SERVICE, text)
    return _not_offered(run, lab, [agent for agent, _ in offers])


def _not_offered(run: Run, lab: Lab, offering: Sequence[Agent]) -> Reason | None:
    """Why a run waits for which no present agent has a slot."""
    if run.state is not RunState.WAITING:
        return None
    if offering:
        agent = max(offering, key=lambda agent: agent.seen_at_ms)
        minutes = (lab.now_ms - agent.seen_at_ms) // 60_000
        text = f"agent {agent.name}, which offers {_wanted(run)}, was last seen {minutes:,} min ago"
        return Reason(QueueKind.AGENT_AWAY, text)
    if not lab.agents:
        return Reason(QueueKind.NO_AGENT, "no agent has registered")
    nearest = lack_of_gangs(need_of(run), lab.agents) or _nearest(run, lab.agents)
    return Reason(QueueKind.NOT_OFFERED, f"no agent offers {_wanted(run)}{nearest}")


def _not_served(run: Run, offers: Sequence[Seat], lab: Lab, line: Line) -> Reason | None:
    """Why a run waits although slots for it are present and in service."""
    if line.budget_left_hours <= 0:
        return Reason(QueueKind.BUDGET, "its campaign or its owner has used all GPU hours of the budget")
    windows = [window_of(line.windows, agent, lab.now_ms) for agent, _ in offers]
    if all(windows):
        first = min(filter(None, windows), key=lambda window: window.end_ms)
        text = f"every agent with {_wanted(run)} is in maintenance, the first until {first.end}"
        return Reason(QueueKind.MAINTENANCE, text)
    rests = _all_rest(run, offers, lab.resting)
    if rests:
        return Reason(QueueKind.RESTING, rests)
    if run.state is not RunState.WAITING:
        return None
    return _without_room(run, offers, line) or Reason(
        QueueKind.QUEUED, "slots that fit measure other runs, or other campaigns are ahead"
    )


def _without_room(run: Run, offers: Sequence[Seat], line: Line) -> Reason | None:
    """Whether every slot for a run that concerns other slots has to wait for them."""
    exclusive, gang = run.placement.exclusive, run.placement.gang
    has_busy_rivals = (
        any((agent.agent_id, other) in line.busy for other in rivals(exclusive, (slot.slot_id,), agent))
        for agent, slot in offers
    )
    if exclusive and all(has_busy_rivals):
        what = "GPU" if exclusive == "gpu" else "box"
        text = f"it needs a {what} alone, and every {what} that fits still measures other runs"
        return Reason(QueueKind.EXCLUSIVE, text)
    need = need_of(run)
    if gang > 1 and all(idle_together(need, seat, line.busy) < gang for seat in offers):
        text = f"it needs {gang} GPUs of one box at once, and no box that fits has so many idle"
        return Reason(QueueKind.GANG, text)
    return None


def _all_rest(run: Run, offers: Sequence[Seat], resting: Mapping[SlotKey, Rest]) -> str:
    """Why every slot that could make a run rests; "" if one does not."""
    rests = [resting.get(seat.place) for seat in offers]
    if not all(rests):
        return ""
    reasons = [
        f"{rest.slot_id} of agent {rest.agent_name} ({rest.why.cause} [{rest.why.failure_class}]; "
        f"{rest.why.remedy})"
        for rest in rests[:_MOST_NAMED]
        if rest is not None
    ]
    if len(rests) > _MOST_NAMED:
        reasons.append(f"and {len(rests) - _MOST_NAMED:,} more")
    return f"every slot for {_wanted(run)} rests, with a retry now and then: {'; '.join(reasons)}"


def _out_of_service(offers: Sequence[Seat]) -> Iterator[str]:
    """The first few GPUs that are out of service, why, and what to do."""
    for agent, slot in offers[:_MOST_NAMED]:
        name = slot.device_name or "GPU"
        yield f"{name} {slot.slot_id} of agent {agent.name} ({slot.quarantine_reason})"
    if len(offers) > _MOST_NAMED:
        yield f"and {len(offers) - _MOST_NAMED:,} more"
    yield "reset or replace it, then, on its box: assay-agent quarantine clear UUID"


def _wanted(run: Run) -> str:
    if not run.device_key:
        return "the playing of recordings" if run.profiler == "recorded" else run.profiler
    return f"a {_kind_wanted(run)}"


def _kind_wanted(run: Run) -> str:
    mark = "synthetic" if run.synthetic else "measured"
    gang = f" and a gang of {run.placement.gang} such GPUs in one box" if run.placement.gang > 1 else ""
    partitions = " and static partitions of its SMs" if need_of(run).partitions else ""
    bundles = " and bundles" if need_of(run).bundles else ""
    profiler = _PROFILERS.get(run.profiler, run.profiler)
    return f"{mark} {run.device_kind} with {profiler}{partitions}{bundles}{gang}"


def _nearest(run: Run, agents: Sequence[Agent]) -> str:
    """The slot that fits best, and what it lacks."""
    need = need_of(run)
    slots = [(seat.slot, seat.lack(need)) for seat in seats_of(agents)]
    for slot, lacks in slots:
        if lacks in _NOT_OFFERED:
            return f": its {slot.device_name or 'GPU'} has none ({_NOT_OFFERED[lacks]})"
        if run.device_key and lacks is Lack.PROFILER:
            has = ", ".join(name for name in slot.profilers if name not in _PROFILERS) or "no profiler"
            return f": its {slot.device_name or 'GPU'} has {has}"
    for slot, lacks in slots:
        if lacks in _REQUIRED:
            return f": its {slot.device_name or 'slot'} does not meet 'requires: {lacks}'"
    for slot, lacks in slots:
        if lacks is Lack.MARK:
            is_, must = ("synthetic", "measured") if slot.synthetic else ("measured", "synthetic")
            return f": {slot.device_name or 'its GPU'} is {is_} and the campaign {must}"
    names = dict.fromkeys(slot.device_name for slot, _ in slots if slot.device_name)
    if run.device_key:
        return f"; their GPUs are {', '.join(names)}" if names else "; they have no GPU"
    return ""


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


def wait_reasons(
    runs: Iterable[Run],
    lab: Lab,
    line: Line = NO_LINE,
    campaign_paused: bool = False,
    awaiting_light: Collection[str] = (),
) -> dict[str, Reason]:
    """By run: why waiting runs wait, where there is more to say than that others are ahead.

    Runs that have begun are left out if they can continue.
    """
    by_kind: dict[object, Reason | None] = {}
    reasons = {}
    for run in runs:
        kind = (
            need_of(run),
            run.device_kind,
            run.synthetic,
            run.state,
            run.holds and (run.workload, run.holds),
        )
        if kind not in by_kind:
            by_kind[kind] = wait_reason(run, lab, line)
        why = by_kind[kind]
        if run.state is RunState.WAITING or run.paused:
            awaits_light = run.run_id in awaiting_light
            why = held_reason(run, campaign_paused=campaign_paused, awaits_light=awaits_light) or why
        if why is not None and why.kind is not QueueKind.QUEUED:
            reasons[run.run_id] = why
    return reasons


def ahead_of(
    campaign_id: str, seats: Sequence[Seat], candidates: Candidates, ledger: Ledger, now_ms: int
) -> tuple[str, ...]:
    """The campaigns that are given a slot before this one, the next of them first."""
    if not seats:
        return ()
    campaigns: dict[str, None] = {}
    for candidate in candidates.in_order(seats[0].fits, ledger, now_ms):
        if candidate.campaign_id == campaign_id:
            break
        campaigns.setdefault(candidate.campaign_id)
    return tuple(campaigns)


def slots_by_gpu(lab: Lab) -> Counter[str]:
    """How many slots in service of present agents there are, by the key of their GPU; "": every slot."""
    counted: Counter[str] = Counter()
    for _, slot in lab.in_service():
        counted.update({slot.device_key, ""})
    return counted
