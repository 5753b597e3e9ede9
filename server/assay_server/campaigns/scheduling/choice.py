"""Chooses the slice for a free slot: the first that waits, unless another slot suits it better."""

from __future__ import annotations

from assay_core.records.campaign import AttemptState
from assay_core.records.machine import Slot
from assay_sampling.running.failures import Fault, failure_class_named
from assay_server.campaigns.scheduling.places import elsewhere
from assay_server.campaigns.scheduling.resting import RestingSlots
from assay_server.campaigns.scheduling.retry import is_loss
from assay_server.store.model import Agent, Attempt, Run, Slice
from assay_server.store.protocols import MetadataReader

# A slice that failed in a slot is left to others for this long: they may have to end a long run first.
_LEFT_TO_OTHERS_MS = 600_000
_MOST_PASSED = 16


def choose(
    store: MetadataReader, resting: RestingSlots, agent: Agent, slot: Slot, now_ms: int
) -> tuple[Run, Slice] | None:
    """The first slice for a slot; None if there is none, or the slot rests.

    A slice that failed in the slot is left to another slot for a while. A slot that has done no run since a
    failure of its box first gets slices that have not failed there.
    """
    place = (agent.agent_id, slot.slot_id)
    if resting.at(*place, now_ms) is not None:
        return None
    if resting.last(*place) is not None:
        # Such a slice shows whether the slot is at fault. Otherwise a run that breaks every box would be
        # tried for ever, ahead of all other runs.
        found = _first(store, resting, agent, slot, now_ms, untried=True)
        if found is not None:
            return found
    return _first(store, resting, agent, slot, now_ms, untried=False)


def _first(
    store: MetadataReader, resting: RestingSlots, agent: Agent, slot: Slot, now_ms: int, *, untried: bool
) -> tuple[Run, Slice] | None:
    place = (agent.agent_id, slot.slot_id)
    passed: list[tuple[str, int]] = []
    while len(passed) <= _MOST_PASSED:
        found = store.waiting_slice(slot, now_ms, passed, untried_by=agent.agent_id if untried else "")
        if found is None or not _is_for_another(store, resting, found, place, now_ms):
            return found
        passed.append((found[0].run_id, found[1].index))
    return None


def _is_for_another(
    store: MetadataReader,
    resting: RestingSlots,
    found: tuple[Run, Slice],
    place: tuple[str, str],
    now_ms: int,
) -> bool:
    """Whether the last try of a slice failed in this place, and a place where it has not failed is there."""
    run, piece = found
    failed = [a for a in store.attempts(run.run_id, piece.index) if a.state is AttemptState.FAILED]
    if not failed or (failed[-1].agent_id, failed[-1].slot_id) != place:
        return False
    if not _is_worth_another_slot(failed[-1]) or now_ms - failed[-1].ended_at_ms > _LEFT_TO_OTHERS_MS:
        return False
    tried = {(a.agent_id, a.slot_id) for a in failed}
    others = elsewhere(run, failed[-1], store.agents(), now_ms)
    return any(other not in tried and resting.at(*other, now_ms) is None for other in others)


def _is_worth_another_slot(attempt: Attempt) -> bool:
    """Whether an attempt's failure may be due to its slot."""
    why = attempt.failure
    if why is None or is_loss(why):
        return False
    failure_class = failure_class_named(why.failure_class)
    return failure_class.retryable or failure_class.fault is Fault.BOX
