"""Where a run can be made: the slots that fit it, and those of present agents. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from assay_core.records.machine import Slot
from assay_server.store.model import Agent, Attempt, Run

# Agents give a sign of life every few seconds; one that is away longer than this does not count.
AWAY_AFTER_MS = 120_000


def lacking(run: Run, slot: Slot) -> str | None:
    """What a slot lacks for a run: "GPU", "mark", "profiler" or "partitions"; None if it fits."""
    if run.device_key and slot.device_key != run.device_key:
        return "GPU"
    if run.device_key and slot.synthetic != run.synthetic:
        return "mark"
    if run.profiler not in slot.profilers:
        return "profiler"
    return "partitions" if needs_partitions(run) and not slot.sm_partitions else None


def needs_partitions(run: Run) -> bool:
    """Whether a run needs a static partition of the SMs; a recording of one is only played."""
    return bool(run.device_key) and run.condition.sm_share == "partition"


def elsewhere(run: Run, attempt: Attempt, agents: Sequence[Agent], now_ms: int) -> list[tuple[str, str]]:
    """Agent and slot of every place that fits, is present and in service, except the attempt's own."""
    return [
        (agent.agent_id, slot.slot_id)
        for agent in agents
        if now_ms - agent.seen_at_ms <= AWAY_AFTER_MS
        for slot in agent.slots
        if lacking(run, slot) is None
        and not slot.quarantine_reason
        and (agent.agent_id, slot.slot_id) != (attempt.agent_id, attempt.slot_id)
    ]
