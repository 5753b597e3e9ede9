"""Which slice a free slot is given: the first that waits for it, unless it is better made in another slot."""

from __future__ import annotations

from assay_sampling.failures import Fault, failure_class_named
from assay_server.campaigns.places import elsewhere
from assay_server.campaigns.resting import RestingSlots
from assay_server.campaigns.retry import is_loss
from assay_server.store.model import Agent, Attempt, AttemptState, Run, Slice, Slot
from assay_server.store.protocols import MetadataReader

# So long a slice that failed in a slot is left to another one, which may have a long run before it.
_LEFT_TO_OTHERS_MS = 600_000
_MOST_PASSED = 16


def choose(
    store: MetadataReader, resting: RestingSlots, agent: Agent, slot: Slot, now_ms: int
) -> tuple[Run, Slice] | None:
    """The first slice for a slot; None where there is none, or the slot rests.

    A slice that failed there is left to another slot for a while; a slot that has done nothing since it last
    failed by the fault of its box is given what has not failed there first.
    """
    place = (agent.agent_id, slot.slot_id)
    if resting.at(*place, now_ms) is not None:
        return None
    if resting.last(*place) is not None:
        # What has not failed here tells whether it is the slot: a run that breaks every box would else be
        # tried for ever, before all that others wait for.
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
    """Whether the last try of a slice failed in this place, and one is there that has not failed it."""
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
    """Whether what failed an attempt may be the matter with its slot."""
    why = attempt.failure
    if why is None or is_loss(why):
        return False
    failure_class = failure_class_named(why.failure_class)
    return failure_class.retryable or failure_class.fault is Fault.BOX
