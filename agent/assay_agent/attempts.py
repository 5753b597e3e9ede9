"""One attempt from its lease to its end: measure, spool, wait until the server holds it, finish or fail."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Mapping

from assay_agent.connection import Connection, ServerRefusedError
from assay_agent.policy import Gate
from assay_agent.profilers.base import Measurement, Profiler, ProfilerError
from assay_agent.profilers.environment import without_secrets
from assay_agent.provenance.facts import Collected
from assay_agent.records import AttemptLog
from assay_agent.session import Identity
from assay_agent.slot_health import SlotHealth
from assay_agent.spool import AttemptEnded, Spool, SpooledAttempt
from assay_agent.work import Assignment, AttemptKey, failure_to_proto
from assay_protos import agent_pb2
from assay_sampling.errors import AssayError, ServerUnreachableError, StorageError
from assay_sampling.failures import Failure, FailureClass, failure, failure_of

_log = logging.getLogger(__name__)

_OF_THE_BOX = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS), FailureClass.DISK_FULL),
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE), FailureClass.BOX_MEMORY),
}


class AttemptRunner:
    """Makes attempts, one at a time for each caller; safe to use from several threads.

    Nothing is raised to the caller: every way an attempt can end is told to the server, or is the server's
    own doing. ``gate`` judges what the server asks for before anything is started. ``give_up`` ends the
    waiting for a server that does not answer; ``on_begin`` is called when the spool holds a new attempt.
    ``health`` judges after each attempt whether it lost the GPU; None: there is none to lose.
    """

    def __init__(
        self,
        identity: Identity,
        spool: Spool,
        connection: Connection,
        profilers: Mapping[str, Profiler],
        give_up: threading.Event,
        *,
        gate: Gate,
        on_begin: Callable[[], None] = lambda: None,
        health: SlotHealth | None = None,
    ) -> None:
        self._identity = identity
        self._spool = spool
        self._connection = connection
        self._profilers = profilers
        self._give_up = give_up
        self._gate = gate
        self._on_begin = on_begin
        self._health = health

    def run(self, work: Assignment) -> None:
        """Make the attempt and see it to its end."""
        _log.info("%s: %s of %s begins", work.key, work.level, work.workload)
        try:
            attempt = self._spool.create(work)
        except StorageError as error:
            problem = failure_of(error, FailureClass.DISK_FULL)
            self.report(work.key, work.write_secret, problem, AttemptLog())
            return
        self._on_begin()
        log = _LogHolder()
        self._see_through(attempt, lambda: self._measured(work, attempt, log), log)

    def resume(self, attempt: SpooledAttempt) -> None:
        """See an attempt to its end that an earlier process measured and sealed."""
        _log.info("%s: sending goes on", attempt.key)
        log = _LogHolder(attempt.seal_record.log if attempt.seal_record else AttemptLog())
        self._see_through(attempt, lambda: None, log)

    def _measured(self, work: Assignment, attempt: SpooledAttempt, log: _LogHolder) -> None:
        """Measure and seal; raises what ended the measurement, or _GpuLost where it cost the GPU."""
        try:
            self._measure(work, attempt, log)
        except _GpuLost:
            raise
        except AttemptEnded as ended:
            # The server need not hear of it, but whether the GPU still works counts for the next run.
            self._require_gpu(work, ended.failure, log)
            raise
        except AssayError as error:
            # It may quote what a program said, which was given the campaign's secrets.
            error.cause = without_secrets(error.cause, _given(work))
            self._require_gpu(work, _classified(error), log)
            raise

    def _require_gpu(self, work: Assignment, problem: Failure | None, log: _LogHolder) -> None:
        """Raises _GpuLost."""
        judged = self._health.judged(work, problem, log.log) if self._health is not None else problem
        if judged is not None and judged is not problem:
            raise _GpuLost(judged)

    def _measure(self, work: Assignment, attempt: SpooledAttempt, log: _LogHolder) -> None:
        work = self._gate.admit(work)
        profiler = self._profilers.get(work.profiler)
        if profiler is None:
            raise ProfilerError(
                FailureClass.SERVER_REFUSED,
                str(work.key),
                f"this agent has no profiler {work.profiler!r}, only {', '.join(self._profilers)}",
                "run the same release of Assay on agent and server",
            )
        command = profiler.plan(work)
        log.log = AttemptLog(command=tuple(without_secrets(word, _given(work)) for word in command or ()))
        collected = Collected(work.counters)
        with contextlib.ExitStack() as undone, profiler.run(work, attempt.cancelled) as measurement:
            # Undoing the conditions says something too, and may set a flag.
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
                _log.info("%s is kept for the next start", attempt.key)
                return
            problem = ended.failure
            if problem is None:
                _log.info("%s is not wanted any more", attempt.key)
        except AssayError as error:
            problem = _classified(error)
        except Exception as error:  # noqa: BLE001 - whatever a profiler raises must end in a classified failure
            _log.exception("%s failed in a way nobody foresaw", attempt.key)
            problem = failure(_class_of(error), str(attempt.key), f"{type(error).__name__}: {error}")
        self._remove(attempt)
        if problem is not None:
            _log.warning("%s failed: %s", attempt.key, problem)
            self.report(attempt.key, attempt.write_secret, problem, log.log)

    def _finish(self, attempt: SpooledAttempt) -> Failure | None:
        seal = attempt.wait_acknowledged()
        request = agent_pb2.FinishAttemptRequest(
            agent_id=self._identity.agent_id,
            session_id=self._identity.session_id,
            write_secret=attempt.write_secret,
            key=attempt.key.to_proto(),
            segments=seal.segments,
            launches=seal.launches,
            flags=[flag.to_proto() for flag in seal.flags],
            log=seal.log.to_proto(),
        )
        try:
            response = self._connection.finish(request, attempt.cancelled)
        except ServerUnreachableError:
            attempt.check()
            raise
        except ServerRefusedError as error:
            return failure_of(error, FailureClass.SERVER_REFUSED)
        said = "published" if response.published else "not wanted any more"
        _log.info("%s: %d launches in %d segments %s", attempt.key, seal.launches, seal.segments, said)
        return None

    def _remove(self, attempt: SpooledAttempt) -> None:
        try:
            self._spool.remove(attempt)
        except StorageError as error:
            _log.warning("what is left of %s cannot be deleted: %s", attempt.key, error)

    def report(
        self,
        key: AttemptKey,
        write_secret: bytes,
        problem: Failure,
        log: AttemptLog,
        *,
        give_up: threading.Event | None = None,
    ) -> None:
        """Tell the server why an attempt failed, until it has heard it or the agent ends."""
        request = agent_pb2.FailAttemptRequest(
            agent_id=self._identity.agent_id,
            session_id=self._identity.session_id,
            write_secret=write_secret,
            key=key.to_proto(),
            failure=failure_to_proto(problem),
            log=log.to_proto(),
        )
        try:
            self._connection.fail(request, give_up or self._give_up)
        except (ServerUnreachableError, ServerRefusedError) as error:
            _log.warning("the failure of %s was not taken: %s", key, error)


class _LogHolder:
    """The newest log of an attempt, also where its measurement raised."""

    def __init__(self, log: AttemptLog | None = None) -> None:
        self.log = log or AttemptLog()

    def take(self, collected: Collected, measurement: Measurement) -> None:
        """What a measurement tells by now."""
        self.log = collected.told(measurement.log)


class _GpuLost(AssayError):
    """The attempt cost its GPU, which is out of service by now."""

    def __init__(self, problem: Failure) -> None:
        self.failure = problem
        super().__init__(problem.subject, problem.cause, problem.remedy)


def _given(work: Assignment) -> Mapping[str, str]:
    """Variables that the campaign gives the command."""
    return work.command.environment if work.command is not None else {}


def _class_of(error: Exception) -> FailureClass:
    """What an error that nobody foresaw comes from: the box where it has no room left, else Assay."""
    if isinstance(error, MemoryError):
        return FailureClass.BOX_MEMORY
    number = error.errno if isinstance(error, OSError) else None
    return _OF_THE_BOX.get(number or 0, FailureClass.INTERNAL)


def _classified(error: AssayError) -> Failure:
    if isinstance(error, ProfilerError | _GpuLost):
        return error.failure
    if isinstance(error, StorageError):
        return failure_of(error, FailureClass.DISK_FULL)
    return failure_of(error, FailureClass.INTERNAL)
