"""What policies of agents refuse: a slice goes to other agents that match, until every one refused. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from assay_core.records.failure import Failure
from assay_sampling.running.failures import FailureClass
from assay_server.store.model import Attempt

_MOST_NAMED = 5


def is_refusal(why: Failure | None) -> bool:
    """Whether the policy of an agent refused to run an attempt."""
    return why is not None and why.failure_class == FailureClass.REFUSED_BY_POLICY


def refusals(attempts: Iterable[Attempt]) -> dict[str, Attempt]:
    """By agent, its last attempt among these that its policy refused."""
    return {attempt.agent_id: attempt for attempt in attempts if is_refusal(attempt.failure)}


def refused_everywhere(why: Failure, refused: Mapping[str, Attempt]) -> Failure:
    """The failure of a run that every matching agent refused, with the reasons of the first few of them."""
    if len(refused) < 2:
        return why
    causes = [attempt.failure.cause for attempt in refused.values() if attempt.failure is not None]
    told = causes[:_MOST_NAMED]
    if len(causes) > _MOST_NAMED:
        told.append(f"and {len(causes) - _MOST_NAMED:,} more agents refuse it")
    return replace(why, cause="; ".join(told))
