"""One attempt from lease to end: measure, spool, wait until the server holds it, finish or fail."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Mapping

from assay_agent.daemon.bundles import BundleCache
from assay_agent.execution.environment import without_secrets
from assay_agent.execution.errors import ProfilerError
from assay_agent.health import gang_health
from assay_agent.health.gang_health import BoxHealth
from assay_agent.health.held_counters import HeldCounters
from assay_agent.health.internal_errors import InternalErrors
from assay_agent.health.slot_health import SlotHealth
from assay_agent.metrics.meter import Meter
from assay_agent.policy.in_force import PolicyInForce
from assay_agent.profilers.seam import Measurement, Profiler
from assay_agent.provenance.facts import Collected
from assay_agent.spool.attempt import AttemptEnded, SpooledAttempt
from assay_agent.spool.spool import Spool
from assay_agent.uplink.connection import Connection, ServerRefusedError
from assay_agent.uplink.session import Identity
from assay_core.program_log import log_about
from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.failure import Failure, failure, failure_of
from assay_core.records.lease import FailedAttempt, FinishedAttempt
from assay_core.records.work import Work
from assay_sampling.errors import AssayError, ServerUnreachableError, StorageError
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)

# How far apart signals to all processes of a job may reach them on a busy box.
_TOGETHER_SECONDS = 1.0
_OF_THE_BOX = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO), FailureClass.DISK_FULL
    ),
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE), FailureClass.BOX_MEMORY),
}


class AttemptRunner:
    """Makes attempts, one at a time for each caller; thread-safe.

    Never raises: the end of an attempt is reported to the server, unless the server ended it.
    ``gate`` judges what the server asks for before anything is started. ``give_up`` ends the
    waiting for a server that does not answer; ``on_begin`` is called when the spool holds a new attempt.
    ``health`` judges after each attempt whether it lost the GPU; None: the slot has no GPU. ``box``: the
    health of every slot, for runs over several GPUs. ``counters`` judges runs that need these.
    ``meter`` hears how each attempt ended.
    ``bundles``: the files of submitters. ``stopped``: set once the agent was told to stop, if what stops it
    also signals every process that it started, as a batch system does; None: it signals the agent alone.
    """

    def __init__(
        self,
        identity: Identity,
        spool: Spool,
        connection: Connection,
        profilers: Mapping[str, Profiler],
        give_up: threading.Event,
        *,
        gate: PolicyInForce,
        on_begin: Callable[[], None] = lambda: None,
        health: SlotHealth | None = None,
        box: BoxHealth | None = None,
        counters: HeldCounters | None = None,
        meter: Meter | None = None,
        bundles: BundleCache | None = None,
        stopped: threading.Event | None = None,
    ) -> None:
        self._stopped = stopped
        self._box = box or {}
        self._counters = counters or HeldCounters()
        self._meter = meter or Meter()
        self._identity = identity
        self._spool = spool
        self._connection = connection
        self._profilers = profilers
        self._give_up = give_up
        self._gate = gate
        self._on_begin = on_begin
        self._health = health
        self._bundles = bundles
        self._internal_errors = InternalErrors()

    def run(self, work: Work) -> None:
        """Make the attempt and see it to its end."""
        with log_about(campaign=work.campaign_id, **work.key.log_fields):
            self._run(work)

    def _run(self, work: Work) -> None:
        _log.info("%s of %s begins", work.level, work.workload)
        try:
            attempt = self._spool.create(work)
        except StorageError as error:
            problem = failure_of(error, FailureClass.DISK_FULL)
            self._meter.attempt_ended("failed", problem.failure_class)
            self.report(work.key, work.write_secret, problem, AttemptLog())
            return
        self._on_begin()
        log = _LogHolder()
        self._see_through(attempt, lambda: self._measured(work, attempt, log), log)

    def resume(self, attempt: SpooledAttempt) -> None:
        """See an attempt to its end that an earlier process measured and sealed."""
        with log_about(**attempt.key.log_fields):
            self._resume(attempt)

    def _resume(self, attempt: SpooledAttempt) -> None:
        _log.info("sending continues")
        log = _LogHolder(attempt.seal_record.log if attempt.seal_record else AttemptLog())
        self._see_through(attempt, lambda: None, log)

    def _measured(self, work: Work, attempt: SpooledAttempt, log: _LogHolder) -> None:
        """Measure and seal; raises what ended the measurement, or _Judged for what the GPU says about it."""
        refusal = self._counters.refusal(work)
        if refusal is not None:
            raise _Judged(refusal)
        try:
            self._measure(work, attempt, log)
            self._counters.judged(work, None)
        except _Judged:
            raise
        except AttemptEnded as ended:
            # The server need not know, but the next run depends on whether the GPU still works.
            self._require_gpu(work, ended.failure, log)
            raise
        except AssayError as error:
            # It may quote output of a program that was given the campaign's secrets.
            error.cause = without_secrets(error.cause, _variables(work))
            problem = _classified(error)
            self._require_gpu(work, problem, log)
            judged = self._counters.judged(work, problem)
            if judged is not None and judged is not problem:
                raise _Judged(judged) from error
            raise

    def _require_gpu(self, work: Work, problem: Failure | None, log: _LogHolder) -> None:
        """Raises _Judged."""
        judged = problem
        if self._health is not None:
            judged = gang_health.judged(self._health, self._box, work, problem, log.log)
        if judged is not None and judged is not problem:
            raise _Judged(judged)

    def _measure(self, work: Work, attempt: SpooledAttempt, log: _LogHolder) -> None:
        work = self._gate.admit(work)
        profiler = self._profilers.get(work.profiler)
        if profiler is None:
            raise ProfilerError(
                FailureClass.SERVER_REFUSED,
                str(work.key),
                f"this agent does not have the profiler {work.profiler!r}, only {', '.join(self._profilers)}",
                "run the same release of Assay on agent and server",
            )
        gang_health.require_healthy(work, self._box)
        command = profiler.plan(work)
        if self._bundles is not None:
            work = self._bundles.with_files(work, attempt.cancelled)
        log.log = AttemptLog(command=tuple(without_secrets(word, _variables(work)) for word in command or ()))
        collected = Collected(work.counters)
        with contextlib.ExitStack() as undone, profiler.run(work, attempt.cancelled) as measurement:
            # Undoing the conditions also writes to the log, and may set a flag.
            undone.callback(log.take, collected, measurement)
            try:
                for batch in measurement.batches():
                    collected.add(batch.records)
                    attempt.append(batch)
                attempt.check()
            finally:
                log.take(collected, measurement)
            self._require_gpu(work, None, log)
        attempt.seal(measurement.flags, log.log)

    def _see_through(self, attempt: SpooledAttempt, measure: Callable[[], None], log: _LogHolder) -> None:
        try:
            measure()
            problem = self._finish(attempt)
        except AttemptEnded as ended:
            if ended.keep:
                self._meter.attempt_ended("kept")
                _log.info("kept for the next start")
                return
            problem = ended.failure
            if problem is None:
                self._meter.attempt_ended("dropped")
                _log.info("not wanted any more")
        except AssayError as error:
            problem = _classified(error)
        except Exception as error:  # noqa: BLE001 - whatever a profiler raises must end in a classified failure
            _log.exception("failed in a way nobody foresaw")
            problem = failure(_class_of(error), str(attempt.key), f"{type(error).__name__}: {error}")
        self._remove(attempt)
        problem = self._internal_errors.judged(attempt.key, problem)
        if problem is not None:
            problem = self._blamed(problem)
            self._meter.attempt_ended("failed", problem.failure_class)
            _log.warning("failed: %s", problem)
            self.report(attempt.key, attempt.write_secret, problem, log.log)

    def _blamed(self, problem: Failure) -> Failure:
        """The failure, or the stop of the agent that caused it: a workload that was signalled did not fail.

        The signals come together, in no order, so the agent's own may be a moment late.
        """
        if self._stopped is None or not self._stopped.wait(_TOGETHER_SECONDS):
            return problem
        cause = f"the agent's job was told to stop, and every process of it was signalled ({problem.cause})"
        return failure(FailureClass.AGENT_RESTARTED, problem.subject, cause)

    def _finish(self, attempt: SpooledAttempt) -> Failure | None:
        seal = attempt.wait_acknowledged()
        claim = self._identity.claim(attempt.key, attempt.write_secret)
        finished = FinishedAttempt(claim, seal.segments, seal.launches, seal.flags, seal.log)
        try:
            answer = self._connection.finish(finished, attempt.cancelled)
        except ServerUnreachableError:
            attempt.check()
            raise
        except ServerRefusedError as error:
            return failure_of(error, FailureClass.SERVER_REFUSED)
        self._meter.attempt_ended("published" if answer.published else "dropped")
        outcome = "published" if answer.published else "not wanted any more"
        _log.info("%d launches in %d segments %s", seal.launches, seal.segments, outcome)
        return None

    def _remove(self, attempt: SpooledAttempt) -> None:
        try:
            self._spool.remove(attempt)
        except StorageError as error:
            _log.warning("what is left on the disk cannot be deleted: %s", error)

    def report(
        self,
        key: AttemptKey,
        write_secret: bytes,
        problem: Failure,
        log: AttemptLog,
        *,
        give_up: threading.Event | None = None,
    ) -> None:
        """Report why an attempt failed, until the server has answered or the agent ends."""
        failed = FailedAttempt(self._identity.claim(key, write_secret), problem, log)
        try:
            self._connection.fail(failed, give_up or self._give_up)
        except (ServerUnreachableError, ServerRefusedError) as error:
            _log.warning("the server refused the failure of %s: %s", key, error)


class _LogHolder:
    """The newest log of an attempt, even if its measurement raised."""

    def __init__(self, log: AttemptLog | None = None) -> None:
        self.log = log or AttemptLog()

    def take(self, collected: Collected, measurement: Measurement) -> None:
        """The log of a measurement so far."""
        self.log = collected.log_with_facts(measurement.log)


class _Judged(AssayError):
    """What the state of the GPU makes of an attempt; a lost one is already out of service."""

    def __init__(self, problem: Failure) -> None:
        self.failure = problem
        super().__init__(problem.subject, problem.cause, problem.remedy)


def _variables(work: Work) -> Mapping[str, str]:
    """The variables that the campaign gives the command."""
    return work.command.environment if work.command is not None else {}


def _class_of(error: Exception) -> FailureClass:
    """The class of an unexpected error: the disk if it is full, else Assay itself."""
    if isinstance(error, MemoryError):
        return FailureClass.BOX_MEMORY
    number = error.errno if isinstance(error, OSError) else None
    return _OF_THE_BOX.get(number or 0, FailureClass.INTERNAL)


def _classified(error: AssayError) -> Failure:
    if isinstance(error, ProfilerError | _Judged):
        return error.failure
    if isinstance(error, StorageError):
        return failure_of(error, FailureClass.DISK_FULL)
    return failure_of(error, FailureClass.INTERNAL)
