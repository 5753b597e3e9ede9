"""Why a run waits although nothing runs: what the registered agents lack for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from assay_server.store.model import OPEN_RUNS, Agent, Run, RunState, Slot

# An agent gives a sign of life every few seconds; one that was away so long is no promise.
AWAY_AFTER_MS = 120_000
# What a slot is asked for that is no profiler by itself.
_PROFILERS = {"auto": "nsight_systems or cupti"}
_MOST_NAMED = 3


def waiting_for(runs: Iterable[Run], agents: Sequence[Agent], now_ms: int) -> dict[str, str]:
    """By run: what a waiting run needs and no agent that is there offers. Other runs are left out.

    A run that has begun waits too where all that could go on with it is out of service.
    """
    told: dict[tuple[str, ...], str] = {}
    found = {}
    for run in runs:
        if run.state not in OPEN_RUNS:
            continue
        need = (run.profiler, run.device_key, run.device_kind, str(run.synthetic), run.state)
        if need not in told:
            told[need] = _told(run, agents, now_ms)
        if told[need]:
            found[run.run_id] = told[need]
    return found


def _told(run: Run, agents: Sequence[Agent], now_ms: int) -> str:
    offers = [(agent, slot) for agent in agents for slot in agent.slots if _lacking(run, slot) is None]
    present = [(agent, slot) for agent, slot in offers if now_ms - agent.seen_at_ms <= AWAY_AFTER_MS]
    if any(not slot.quarantine_reason for _, slot in present):
        return ""
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


def _out_of_service(offers: Sequence[tuple[Agent, Slot]]) -> Iterator[str]:
    """The first few GPUs that are, why, and what to do."""
    for agent, slot in offers[:_MOST_NAMED]:
        name = slot.device.get("name", "GPU")
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
    return f"{mark} {run.device_kind} with {_in_words(run.profiler)}"


def _in_words(profiler: str) -> str:
    return _PROFILERS.get(profiler, profiler)


def _lacking(run: Run, slot: Slot) -> str | None:
    """What a slot lacks for a run: "GPU", "mark" or "profiler"; None where it fits."""
    if run.device_key and slot.device_key != run.device_key:
        return "GPU"
    if run.device_key and slot.synthetic != run.synthetic:
        return "mark"
    return None if run.profiler in slot.profilers else "profiler"


def _nearest(run: Run, agents: Sequence[Agent]) -> str:
    """The slot that comes nearest, and what is the matter with it."""
    slots = [(slot, _lacking(run, slot)) for agent in agents for slot in agent.slots]
    for slot, lacking in slots:
        if run.device_key and lacking == "profiler":
            has = ", ".join(name for name in slot.profilers if name not in _PROFILERS) or "no profiler"
            return f": its {slot.device.get('name', 'GPU')} has {has}"
    for slot, lacking in slots:
        if lacking == "mark":
            is_, must = ("synthetic", "measured") if slot.synthetic else ("measured", "synthetic")
            return f": {slot.device.get('name', 'its GPU')} is {is_} and the campaign {must}"
    names = list(dict.fromkeys(_names(agents)))
    if run.device_key:
        return f"; their GPUs are {', '.join(names)}" if names else "; they have no GPU"
    return ""


def _names(agents: Sequence[Agent]) -> Iterator[str]:
    for agent in agents:
        for slot in agent.slots:
            if slot.device.get("name"):
                yield str(slot.device["name"])
