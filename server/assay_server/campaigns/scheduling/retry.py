"""Whether and when to try a slice again after a failure, and which workloads get no further slots.

What agents' policies refuse, another agent may allow. Workloads that harm GPUs, or fail everywhere, are set
aside: of the GPUs that a workload lost, the first may be chance, the second is the workload's fault; it gets
no third. A workload that failed through its own fault in several slots, and never succeeded, is set aside.
All runs of a campaign's workload count together: otherwise each of a hundred runs could break two GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from assay_core.records.failure import Failure
from assay_sampling.running.failures import FailureClass, Fault
from assay_server.store.model import Attempt, Run
from assay_server.store.sql import SqlTransaction

# Nobody's fault: the attempt was lost, not refused. Only many of them end a run.
LOSSES = (FailureClass.LEASE_EXPIRED, FailureClass.AGENT_RESTARTED, FailureClass.SERVER_RESTORED)
# A workload that loses this many different GPUs is assumed to break them.
MOST_GPUS_LOST = 2
# What the server's storage lost or changed.
_DAMAGES = (FailureClass.STAGING_DAMAGED, FailureClass.RECORDS_CHANGED)
LONGEST_DELAY_MS = 60_000
_MOST_NAMED = 5
# A workload that failed in this many slots and never succeeded gets no other slot.
MOST_SLOTS_FAILED = 3


@dataclass(frozen=True)
class RetryPolicy:
    """``most_failures`` attempts may fail before a run does, ``most_losses`` may be lost, and
    ``most_damaged`` may lose segments or their file through the server's disk, which would break any run.

    After a failure the slice rests ``delay_ms``, twice as long after each further one, at most a minute.
    A lost GPU is out of service, so the next try uses another one, and the loss does not count:
    MOST_GPUS_LOST bounds losses for the whole workload. Failures of a box do not count either: its slot
    rests (:mod:`assay_server.campaigns.scheduling.resting`).
    """

    most_failures: int = 3
    most_losses: int = 50
    most_damaged: int = 10
    delay_ms: int = 1000

    def delay_after(self, attempts: Sequence[Attempt], failure: Failure) -> int | None:
        """Milliseconds until the try after ``failure`` of the newest of ``attempts``; None: no more tries."""
        lost = sum(1 for attempt in attempts if is_loss(attempt.failure))
        failed = sum(
            1 for attempt in attempts if attempt.failure and attempt.failure.known_class.fault is Fault.RUN
        )
        if is_loss(failure):
            return 0 if lost < self.most_losses else None
        if lost_gpu(failure):
            return 0
        if _is_damage(failure):
            damaged = sum(1 for attempt in attempts if _is_damage(attempt.failure))
            return self._delay(damaged) if damaged < self.most_damaged else None
        if not failure.retryable or failed >= self.most_failures:
            return None
        return self._delay(failed)

    def _delay(self, failures: int) -> int:
        return min(self.delay_ms << max(0, failures - 1), LONGEST_DELAY_MS)


def is_loss(failure: Failure | None) -> bool:
    """Whether an attempt was lost through nobody's fault."""
    return failure is not None and failure.failure_class in LOSSES


def lost_gpu(failure: Failure | None) -> bool:
    """Whether an attempt ended because it lost its GPU, which is now out of service."""
    return failure is not None and failure.failure_class == FailureClass.GPU_LOST


def is_blameless(failure: Failure | None) -> bool:
    """Whether neither the run nor its slot had to do with a failure: another slot would not help."""
    return is_loss(failure) or _is_damage(failure)


def _is_damage(failure: Failure | None) -> bool:
    return failure is not None and failure.failure_class in _DAMAGES


def is_refusal(why: Failure | None) -> bool:
    """Whether the policy of an agent refused to run an attempt."""
    return why is not None and why.failure_class == FailureClass.REFUSED_BY_POLICY


def refusals(attempts: Iterable[Attempt]) -> dict[str, Attempt]:
    """By agent, its last attempt among these that its policy refused."""
    return {attempt.agent_id: attempt for attempt in attempts if is_refusal(attempt.failure)}


def failure_of_refusals(why: Failure, refused: Mapping[str, Attempt]) -> Failure:
    """The failure of a run that every matching agent refused, with the reasons of the first few of them."""
    if len(refused) < 2:
        return why
    causes = [attempt.failure.cause for attempt in refused.values() if attempt.failure is not None]
    reasons = causes[:_MOST_NAMED]
    if len(causes) > _MOST_NAMED:
        reasons.append(f"and {len(causes) - _MOST_NAMED:,} more agents refuse it")
    return replace(why, cause="; ".join(reasons))


def gpus_lost(store: SqlTransaction, run: Run) -> tuple[str, ...]:
    """UUIDs of the GPUs that attempts of the run's workload in its campaign lost, in the order of loss.

    Of a gang, which then never comes together again, all UUIDs are one entry: it lost one of them.
    """
    return _slots_of_failures(store, run, lost_gpu)


def slots_failed(store: SqlTransaction, run: Run) -> tuple[str, ...]:
    """Slots in which attempts of the run's workload failed through the workload's own fault."""
    return _slots_of_failures(store, run, lambda why: why is not None and why.known_class.fault is Fault.RUN)


def _slots_of_failures(
    store: SqlTransaction, run: Run, counts: Callable[[Failure | None], bool]
) -> tuple[str, ...]:
    failures = store.workload_failures(run.campaign_id, run.workload)
    return tuple(dict.fromkeys(" + ".join(sorted(slots)) for slots, why in failures if counts(why)))


def failure_of_slots(why: Failure, run: Run, slots: Sequence[str]) -> Failure:
    """The failure of a run whose workload failed in several slots; ``why`` is the last failure."""
    text = (
        f"the workload {run.workload} failed in {len(slots)} slots ({', '.join(slots)}) and never succeeded"
    )
    remedy = f"{why.remedy}; then: assay lab retry {run.campaign_id} --workload {run.workload}"
    cause = f"{text}, so its other runs are set aside; the last time: {why.cause}"
    return replace(why, subject=f"run {run.run_id}", cause=cause, remedy=remedy, retryable=False)


def workload_runs(store: SqlTransaction, run: Run) -> list[Run]:
    """All runs of the same workload in the same campaign."""
    return [other for other in store.runs(run.campaign_id) if other.workload == run.workload]


def failure_of_lost_gpus(why: Failure, run: Run, lost: Sequence[str]) -> Failure:
    """The failure of a run whose workload lost too many GPUs; ``why`` is that of the last loss."""
    text = f"the workload {run.workload} has lost {len(lost)} GPUs ({', '.join(lost)}), so it gets no other"
    return replace(
        why,
        subject=f"run {run.run_id}",
        cause=f"{text}; the last time: {why.cause}",
        remedy="find out what breaks them (the kernel logs of their boxes), then submit the campaign again",
        retryable=False,
    )
