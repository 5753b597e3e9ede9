"""Segments from agents: checked against everything known about their attempt, then made durable.

The progress of an attempt (schema, names, number of segments) is kept in memory. It is read back from the
staged segments after a restart, and where the store has more of the attempt than memory. Segments of
one attempt are checked one after another, those of different attempts in parallel.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from operator import attrgetter
from typing import NoReturn

from assay_core.records.attempt import AttemptKey, Claim
from assay_core.records.failure import Failure, failure
from assay_sampling.errors import LaunchTableError, StorageError
from assay_sampling.running.failures import FailureClass
from assay_server.campaigns.ingest.damaged_staging import staging_damaged
from assay_server.campaigns.ingest.group_commit import GroupCommit, PreparedSegment
from assay_server.campaigns.ingest.progress import ChangedOnTheWayError, Progress
from assay_server.campaigns.ingest.stored import Stored, is_behind
from assay_server.campaigns.ingest.upload import Answer, Upload
from assay_server.campaigns.scheduling.attempt_results import SegmentOutcome, server_restored
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.store.model import Attempt, Segment
from assay_server.store.records import DamagedSegmentError

_MOST_REMEMBERED = 256


class Ingest:
    """Takes uploads. Thread-safe."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._progress: OrderedDict[AttemptKey, Progress] = OrderedDict()
        self._commit = GroupCommit(coordinator, self.forget)
        coordinator.listen(self._heard, attrgetter("dead"))

    def close(self) -> None:
        self._commit.close()

    def _heard(self, effects: Effects) -> None:
        for key in effects.dead:
            self.forget(key)

    def forget(self, key: AttemptKey) -> None:
        """Read the attempt's progress from the store again: memory may be ahead of it."""
        with self._lock:
            self._progress.pop(key, None)

    def take(self, upload: Upload) -> Future[Answer]:
        """Check an upload and write it to disk. The future resolves once it is durable or refused.

        The future, or this call itself, raises StorageError if the disk refused it or an earlier segment:
        send them again later.
        """
        progress = self._known(upload)
        if progress is None:
            attempt = self._attempt(upload.key)
            # Before anything about the attempt is stored or revealed.
            if attempt is None or not attempt.is_held_by(upload.claim):
                return _answered(Answer(refusal=_not_wanted(upload)))
            progress = self._begun(upload.claim)
        with progress.lock:
            try:
                prepared = self._prepare(upload, progress)
            except _Refused as refused:
                return _answered(Answer(refusal=refused.why))
            if isinstance(prepared, Answer):
                return _answered(prepared)
        return self._answer_when_stored(upload, prepared)

    def _attempt(self, key: AttemptKey) -> Attempt | None:
        with self._coordinator.snapshot() as store:
            return store.attempt(key.run_id, key.slice_index, key.attempt)

    def _known(self, upload: Upload) -> Progress | None:
        """The progress that the upload is the next segment of.

        Whether its sender still holds the lease is read before the segment reaches the disk, once for all
        that become durable together.
        """
        with self._lock:
            progress = self._progress.get(upload.key)
            if progress is not None:
                self._progress.move_to_end(upload.key)
        if progress is None or not progress.continues_with(upload):
            return None
        return progress

    def _begun(self, claim: Claim) -> Progress:
        """The progress of an attempt whose lease this process holds: a new one if it was another's."""
        with self._lock:
            progress = self._progress.get(claim.key)
            if progress is None or not progress.is_of(claim):
                progress = self._progress[claim.key] = Progress(claim)
            self._progress.move_to_end(claim.key)
            while len(self._progress) > _MOST_REMEMBERED:
                self._progress.popitem(last=False)
            return progress

    def _prepare(self, upload: Upload, progress: Progress) -> PreparedSegment | Answer:
        """The segment on its way to the disk, or an immediate answer; raises _Refused."""
        try:
            if not progress.continues_with(upload):
                answer = self._look_up(upload, progress)
                if answer is not None:
                    return answer
            return self._hand_over(upload, progress)
        except ChangedOnTheWayError as error:
            self._refuse_attempt(upload, _refusal(error.cause, upload, retryable=True))
        except LaunchTableError as error:
            self._refuse_attempt(upload, _refusal(error.cause, upload, error.remedy))
        except DamagedSegmentError as error:
            self._refuse_attempt(upload, staging_damaged(self._coordinator, upload.key, error))

    def _look_up(self, upload: Upload, progress: Progress) -> PreparedSegment | Answer | None:
        """The first upload after a start, one again, or one out of order; None: it is next."""
        pending = progress.pending.get(upload.index)
        if pending is not None and not pending.outcome.done():
            self._require_same(upload, pending.segment)
            return pending
        with self._coordinator.snapshot() as store:
            stored = Stored.read(store, upload, progress)
        attempt, run = stored.attempt, stored.run
        if attempt is None or run is None or not attempt.is_held_by(upload.claim):
            raise _Refused(_not_wanted(upload))
        if stored.segment is not None:
            self._require_same(upload, stored.segment)
            return Answer(duplicate=True)
        if not attempt.takes_segments_from(upload.claim):
            raise _Refused(_not_wanted(upload))
        if is_behind(progress, attempt):
            progress.load(run, stored.segments or (), self._coordinator.records)
        if upload.index > progress.next_index and upload.follows:
            raise _not_stored(upload)
        if upload.index > progress.next_index:
            # An agent begins a stream with the first segment that was not acknowledged.
            missing = f"it lacks segment {progress.next_index}, which it acknowledged"
            self._refuse_attempt(upload, server_restored(str(upload), missing))
        if upload.index != progress.next_index:
            cause = f"it came instead of segment {progress.next_index}, which is next"
            self._refuse_attempt(upload, _refusal(cause, upload, retryable=True))
        return None

    def _hand_over(self, upload: Upload, progress: Progress) -> PreparedSegment:
        progress.check(upload)
        segment = Segment(
            upload.key.run_id,
            upload.key.slice_index,
            upload.key.attempt,
            upload.index,
            progress.next_offset,
            upload.launches,
            len(upload.names),
            len(upload.data),
            upload.names_hash,
            upload.launches_hash,
        )
        prepared = PreparedSegment(upload.claim, segment, upload.names, upload.data)
        progress.next_index += 1
        progress.next_offset = segment.end_bytes
        progress.pending = {i: p for i, p in progress.pending.items() if not p.outcome.done()}
        progress.pending[upload.index] = prepared
        self._commit.submit(prepared)
        return prepared

    def _require_same(self, upload: Upload, known: Segment) -> None:
        if (upload.names_hash, upload.launches_hash) != (known.names_hash, known.launches_hash):
            cause = "its hash differs from that of the stored segment with this number"
            self._refuse_attempt(upload, _refusal(cause, upload, retryable=True))

    def _refuse_attempt(self, upload: Upload, why: Failure) -> NoReturn:
        """The segment cannot become the attempt's data, so the attempt has failed."""
        attempt = self._attempt(upload.key)
        if attempt is None or not attempt.is_held_by(upload.claim):
            raise _Refused(_not_wanted(upload))
        with self._coordinator.schedule() as schedule:
            schedule.fail(upload.key, why)
        self.forget(upload.key)
        raise _Refused(why)

    def _answer_when_stored(self, upload: Upload, prepared: PreparedSegment) -> Future[Answer]:
        answer: Future[Answer] = Future()
        # A stream that ends cancels what it waits for; the segment is on its way all the same.
        answer.set_running_or_notify_cancel()

        def stored(outcome: Future[SegmentOutcome]) -> None:
            error = outcome.exception()
            if error is not None:
                answer.set_exception(error)
            elif outcome.result() is SegmentOutcome.ADDED:
                answer.set_result(Answer())
            elif outcome.result() is SegmentOutcome.NOT_WANTED:
                answer.set_result(Answer(refusal=_not_wanted(upload)))
            else:
                answer.set_exception(_not_stored(upload))

        prepared.outcome.add_done_callback(stored)
        return answer


class _Refused(Exception):
    def __init__(self, why: Failure) -> None:
        self.why = why
        super().__init__(why.cause)


def _refusal(cause: str, upload: Upload, remedy: str = "", *, retryable: bool = False) -> Failure:
    return failure(FailureClass.SERVER_REFUSED, str(upload), cause, remedy, retryable=retryable)


def _not_wanted(upload: Upload) -> Failure:
    return Failure(
        str(FailureClass.LEASE_EXPIRED),
        str(upload),
        "the attempt is no longer wanted (it was cancelled, or another agent got its slice), or the sender "
        "does not hold its lease",
        "drop it",
    )


def _not_stored(upload: Upload) -> StorageError:
    return StorageError(str(upload), "an earlier segment was not stored", "send both again")


def _answered(answer: Answer) -> Future[Answer]:
    future: Future[Answer] = Future()
    future.set_result(answer)
    return future
