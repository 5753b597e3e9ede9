"""Why a run waits: what the registered agents lack for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from assay_core.records.campaign import RunState
from assay_core.records.machine import Slot
from assay_server.campaigns.scheduling.places import AWAY_AFTER_MS, Lack, lacking
from assay_server.campaigns.scheduling.resting import NO_RESTS, Row
from assay_server.store.model import OPEN_RUNS, Agent, Run, need_of

# Requested names that are not a profiler themselves.
_PROFILERS = {"auto": "nsight_systems or cupti"}
_MOST_NAMED = 3
_PARTITIONS_NEED = "they need Ampere or newer, NVIDIA's MPS of CUDA 13.1, and an agent of this release"


def waiting_for(
    runs: Iterable[Run], agents: Sequence[Agent], now_ms: int, resting: Row = NO_RESTS
) -> dict[str, str]:
    """By run: what a waiting run needs and no present agent offers. Other runs are left out.

    A run that has begun also waits if every slot that could continue it is out of service, or rests.
    """
    told: dict[tuple[str, ...], str] = {}
    found = {}
    for run in runs:
        if run.state not in OPEN_RUNS:
            continue
        need = (
            run.profiler, run.device_key, run.device_kind, str(run.synthetic), run.state,
            run.condition.sm_share,
        )  # fmt: skip
        if need not in told:
            told[need] = _told(run, agents, now_ms, resting)
        if told[need]:
            found[run.run_id] = told[need]
    return found


def _told(run: Run, agents: Sequence[Agent], now_ms: int, resting: Row) -> str:
    need = need_of(run)
    offers = [(agent, slot) for agent in agents for slot in agent.slots if not lacking(need, slot, agent)]
    present = [(agent, slot) for agent, slot in offers if now_ms - agent.seen_at_ms <= AWAY_AFTER_MS]
    in_service = [(agent, slot) for agent, slot in present if not slot.quarantine_reason]
    if in_service:
        return _all_rest(run, in_service, resting)
    if present:
        return f"every {_kind_wanted(run)} is out of service: {'; '.join(_out_of_service(present))}"
    if run.state is not RunState.WAITING:
        return ""
    if offers:
        agent = max((agent for agent, _ in offers), key=lambda agent: agent.seen_at_ms)
        minutes = (now_ms - agent.seen_at_ms) // 60_000
        return f"agent {agent.name}, which offers {_wanted(run)}, was last seen {minutes:,} min ago"
    if not agents:
        return "no agent has registered"
    return f"no agent offers {_wanted(run)}{_nearest(run, agents)}"


def _all_rest(run: Run, offers: Sequence[tuple[Agent, Slot]], resting: Row) -> str:
    """Why every slot that could make a run rests; "" if one does not."""
    rests = [resting.at(agent.agent_id, slot.slot_id) for agent, slot in offers]
    if not all(rests):
        return ""
    told = [
        f"{rest.slot_id} of agent {rest.agent_name} ({rest.why.cause} [{rest.why.failure_class}]; "
        f"{rest.why.remedy})"
        for rest in rests[:_MOST_NAMED]
        if rest is not None
    ]
    if len(rests) > _MOST_NAMED:
        told.append(f"and {len(rests) - _MOST_NAMED:,} more")
    return f"every slot for {_wanted(run)} rests, with a retry now and then: {'; '.join(told)}"


def _out_of_service(offers: Sequence[tuple[Agent, Slot]]) -> Iterator[str]:
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
    partitions = " and static partitions of its SMs" if need_of(run).partitions else ""
    return f"{mark} {run.device_kind} with {_in_words(run.profiler)}{partitions}"


def _in_words(profiler: str) -> str:
    return _PROFILERS.get(profiler, profiler)


def _nearest(run: Run, agents: Sequence[Agent]) -> str:
    """The slot that fits best, and what it lacks."""
    need = need_of(run)
    slots = [(slot, lacking(need, slot, agent)) for agent in agents for slot in agent.slots]
    for slot, lacks in slots:
        if lacks is Lack.PARTITIONS:
            return f": its {slot.device_name or 'GPU'} has none ({_PARTITIONS_NEED})"
        if run.device_key and lacks is Lack.PROFILER:
            has = ", ".join(name for name in slot.profilers if name not in _PROFILERS) or "no profiler"
            return f": its {slot.device_name or 'GPU'} has {has}"
    for slot, lacks in slots:
        if lacks is Lack.MARK:
            is_, must = ("synthetic", "measured") if slot.synthetic else ("measured", "synthetic")
            return f": {slot.device_name or 'its GPU'} is {is_} and the campaign {must}"
    names = list(dict.fromkeys(_names(agents)))
    if run.device_key:
        return f"; their GPUs are {', '.join(names)}" if names else "; they have no GPU"
    return ""


def _names(agents: Sequence[Agent]) -> Iterator[str]:
    for agent in agents:
        for slot in agent.slots:
            if slot.device_name:
                yield slot.device_name
