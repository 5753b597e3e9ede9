"""Internal errors in a row: the first is taken for the run's, that of the next run for the slot's."""

from __future__ import annotations

from assay_core.records.attempt import AttemptKey
from assay_core.records.failure import Failure, failure
from assay_sampling.running.failures import FailureClass


class InternalErrors:
    """Those of one slot. For its worker's thread."""

    def __init__(self) -> None:
        self._run_id = ""

    def judged(self, key: AttemptKey, problem: Failure | None) -> Failure | None:
        """How an attempt failed (None: it did not), after comparing it with the one before in this slot.

        A run that fails so twice itself is at fault, or Assay is: it ends instead of waiting for a repair.
        """
        before = self._run_id
        internal = problem is not None and problem.failure_class == FailureClass.INTERNAL
        self._run_id = key.run_id if internal else ""
        if problem is None or not internal or before in ("", key.run_id):
            return problem
        cause = f"Assay failed unexpectedly with two runs in a row on this slot, now with: {problem.cause}"
        return failure(FailureClass.SLOT_BROKEN, problem.subject, cause)
