"""Whether and when a slice is tried again after an attempt of it has failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay_sampling.failures import Failure, FailureClass, Fault, failure_class_named
from assay_server.store.model import Attempt, FailureRecord

# Nobody's fault: the attempt was lost, not refused by anything. Only a crowd of them ends a run.
LOSSES = (FailureClass.LEASE_EXPIRED, FailureClass.AGENT_RESTARTED)
# A workload that loses so many different GPUs is taken to be what breaks them.
MOST_GPUS_LOST = 2
LONGEST_DELAY_MS = 60_000


@dataclass(frozen=True)
class RetryPolicy:
    """``most_failures`` attempts may fail before a run does, ``most_losses`` may be lost.

    After a failure the slice rests ``delay_ms``, twice as long after each further one, at most a minute.
    A GPU that was lost is out of service, so the next try is on another one, and the loss does not count:
    what bounds it is MOST_GPUS_LOST for the whole workload (:mod:`assay_server.campaigns.lost_gpus`). Nor
    does what was the fault of a box: its slot rests (:mod:`assay_server.campaigns.resting`).
    """

    most_failures: int = 3
    most_losses: int = 50
    delay_ms: int = 1000

    def delay_after(self, attempts: Sequence[Attempt], failure: FailureRecord) -> int | None:
        """Milliseconds until the next try after the newest of ``attempts`` ended so; None: no more tries."""
        lost = sum(1 for attempt in attempts if is_loss(attempt.failure))
        failed = sum(1 for attempt in attempts if attempt.failure and _counts(attempt.failure))
        if is_loss(failure):
            return 0 if lost < self.most_losses else None
        if lost_gpu(failure):
            return 0
        if not failure.retryable or failed >= self.most_failures:
            return None
        return min(self.delay_ms << max(0, failed - 1), LONGEST_DELAY_MS)


def is_loss(failure: FailureRecord | None) -> bool:
    """Whether an attempt was lost, by nobody's fault."""
    return failure is not None and failure.failure_class in LOSSES


def lost_gpu(failure: FailureRecord | None) -> bool:
    """Whether an attempt ended because it lost its GPU, which is out of service since."""
    return failure is not None and failure.failure_class == FailureClass.GPU_LOST


def _counts(failure: FailureRecord) -> bool:
    return not is_loss(failure) and failure_class_named(failure.failure_class).fault is not Fault.BOX


def failure_record(failure: Failure) -> FailureRecord:
    """A classified failure as the store keeps it."""
    return FailureRecord(
        str(failure.failure_class), failure.subject, failure.cause, failure.remedy, failure.retryable
    )
