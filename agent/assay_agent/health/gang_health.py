"""The health of a box's GPUs for a run over several of them: each is judged by its own sensors."""

from __future__ import annotations

from collections.abc import Mapping

from assay_agent.execution.errors import ProfilerError
from assay_agent.health.slot_health import SlotHealth
from assay_core.records.attempt import AttemptLog
from assay_core.records.failure import Failure
from assay_core.records.work import Work
from assay_sampling.running.failures import FailureClass

# By slot. Filled once, before any slot takes runs.
BoxHealth = Mapping[str, SlotHealth]


def require_healthy(work: Work, box: BoxHealth) -> None:
    """Raises ProfilerError if another GPU of a gang takes no runs, which the server may not know yet."""
    for slot_id in work.gang:
        health = box.get(slot_id)
        if health is None or not health.takes_runs():
            why = "the agent has no such GPU" if health is None else health.reason
            raise ProfilerError(
                FailureClass.GPU_UNHEALTHY, str(work.key), f"GPU {slot_id} of the gang takes no runs: {why}"
            )


def judged(
    health: SlotHealth, box: BoxHealth, work: Work, problem: Failure | None, log: AttemptLog
) -> Failure | None:
    """How an attempt failed (None: it did not), after checking whether it lost one of its GPUs.

    ``health``: of the slot that leads. See :meth:`SlotHealth.judged`.
    """
    if not work.gang:
        return health.judged(work, problem, log)
    telemetry = log.telemetry or {}
    outcome = health.judged(work, problem, log, telemetry)
    summaries = {summary.get("gpu"): summary for summary in telemetry.get("gang", ())}
    for slot_id in work.gang:
        if slot_id in box:
            judged = box[slot_id].judged(work, problem, log, summaries.get(slot_id, {}))
            outcome = outcome if outcome is not problem else judged
    return outcome
