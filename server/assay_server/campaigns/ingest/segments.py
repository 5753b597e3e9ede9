"""Segments from agents: checked against everything known about their attempt, then made durable.

The progress of an attempt (schema, names, number of segments) is kept in memory and read back from the
staged segments after a restart. Segments of one attempt are checked one after another, those of different
attempts in parallel.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NoReturn

import pyarrow as pa

from assay_core.records.attempt import AttemptKey, Claim
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import Failure, failure
from assay_sampling.errors import LaunchTableError, StorageError
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.identity import origin_of
from assay_server.campaigns.ingest.group_commit import GroupCommit, PreparedSegment
from assay_server.campaigns.ingest.ordinals import LaunchOrdinals
from assay_server.campaigns.scheduling.attempt_results import SegmentOutcome
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.store.model import Attempt, Run, Segment
from assay_server.store.records import DamagedSegmentError
from assay_server.store.segments import (
    LARGEST_PART_BYTES,
    LARGEST_SEGMENT_LAUNCHES,
    SegmentContent,
    check_named,
    decode_segment,
    part_hash,
)

_MOST_REMEMBERED = 256


@dataclass(frozen=True)
class Upload:
    """A segment as received: the fields of its header and its two compressed parts.

    ``follows``: the segment before it came over the same stream, acknowledged or not.
    """

    claim: Claim
    index: int
    launches: int
    names_hash: bytes
    launches_hash: bytes
    names: bytes
    data: bytes
    follows: bool = False

    @property
    def key(self) -> AttemptKey:
        return self.claim.key

    def __str__(self) -> str:
        return f"{self.key}, segment {self.index}"


@dataclass(frozen=True)
class Answer:
    """The answer to an upload: durable (``duplicate``: it already was), or refused for good."""

    duplicate: bool = False
    refusal: Failure | None = None


@dataclass
class _Progress:
    """The segments that an attempt has sent so far, durable or about to be."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    loaded: bool = False
    next_index: int = 0
    next_offset: int = 0
    schema: pa.Schema | None = None
    names: set[int] = field(default_factory=set)
    ordinals: LaunchOrdinals = field(default_factory=lambda: LaunchOrdinals(may_skip=True))
    pending: dict[int, PreparedSegment] = field(default_factory=dict)


class Ingest:
    """Takes uploads. Thread-safe."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._progress: OrderedDict[AttemptKey, _Progress] = OrderedDict()
        self._commit = GroupCommit(coordinator, self.forget)
        coordinator.listen(self._heard)

    def close(self) -> None:
        self._commit.close()

    def _heard(self, effects: Effects) -> None:
        for key in effects.dead:
            self.forget(key)

    def forget(self, key: AttemptKey) -> None:
        """Read the attempt's progress from the store again: memory may be ahead of it."""
        with self._lock:
            self._progress.pop(key, None)
        self._coordinator.records.forget_ahead(key)

    def take(self, upload: Upload) -> Future[Answer]:
        """Check an upload and write it to disk. The future resolves once it is durable or refused.

        The future, or this call itself, raises StorageError if the disk refused it or an earlier segment:
        send them again later.
        """
        if not self._is_held(upload.claim):  # before anything about the attempt is stored or revealed
            return _answered(Answer(refusal=_not_wanted(upload)))
        progress = self._remembered(upload.key)
        with progress.lock:
            try:
                prepared = self._prepare(upload, progress)
            except _Refused as refused:
                return _answered(Answer(refusal=refused.why))
            if isinstance(prepared, Answer):
                return _answered(prepared)
        return self._answer_when_stored(upload, prepared)

    def _is_held(self, claim: Claim) -> bool:
        key = claim.key
        with self._coordinator.snapshot() as store:
            attempt = store.attempt(key.run_id, key.slice_index, key.attempt)
        return attempt is not None and attempt.is_held_by(claim)

    def _remembered(self, key: AttemptKey) -> _Progress:
        with self._lock:
            progress = self._progress.setdefault(key, _Progress())
            self._progress.move_to_end(key)
            while len(self._progress) > _MOST_REMEMBERED:
                self._progress.popitem(last=False)
            return progress

    def _prepare(self, upload: Upload, progress: _Progress) -> PreparedSegment | Answer:
        """The segment on its way to the disk, or an immediate answer; raises _Refused."""
        key = upload.key
        pending = progress.pending.get(upload.index)
        if pending is not None and not pending.outcome.done():
            self._require_same(upload, pending.segment)
            return pending
        with self._coordinator.snapshot() as store:
            attempt = store.attempt(key.run_id, key.slice_index, key.attempt)
            run = store.run(key.run_id)
            known = store.segment(key, upload.index) if attempt is not None and attempt.key == key else None
        if known is not None:
            self._require_same(upload, known)
            return Answer(duplicate=True)
        if attempt is None or run is None or attempt.key != key or attempt.state not in _MAY_SEND:
            raise _Refused(_not_wanted(upload))
        try:
            return self._hand_over(upload, progress, attempt, run)
        except _ChangedOnTheWayError as error:
            self._refuse_attempt(upload, _refusal(error.cause, upload, retryable=True))
        except LaunchTableError as error:
            self._refuse_attempt(upload, _refusal(error.cause, upload, error.remedy))
        except DamagedSegmentError as error:
            self._refuse_attempt(
                upload, Failure("internal", error.subject, error.cause, error.remedy, retryable=True)
            )

    def _hand_over(self, upload: Upload, progress: _Progress, attempt: Attempt, run: Run) -> PreparedSegment:
        if not progress.loaded:
            self._load(progress, attempt.key, run)
        if upload.index > progress.next_index and upload.follows:
            raise _not_stored(upload)
        if upload.index != progress.next_index:
            cause = f"it came instead of segment {progress.next_index}, which is next"
            self._refuse_attempt(upload, _refusal(cause, upload, retryable=True))
        content = _checked(upload, progress, run)
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
        prepared = PreparedSegment(upload.key, segment, upload.names, upload.data)
        progress.schema = content.schema
        progress.names.update(content.names)
        progress.next_index += 1
        progress.next_offset = segment.end_bytes
        progress.pending = {i: p for i, p in progress.pending.items() if not p.outcome.done()}
        progress.pending[upload.index] = prepared
        self._commit.submit(prepared)
        self._coordinator.records.write_ahead(segment, content)
        return prepared

    def _load(self, progress: _Progress, key: AttemptKey, run: Run) -> None:
        with self._coordinator.snapshot() as store:
            segments = store.segments(key)
        progress.ordinals = LaunchOrdinals(may_skip=run.command is None)
        for segment in segments:
            names, launches = self._coordinator.records.staged(segment)
            content = decode_segment(names, launches, str(key))
            progress.schema = content.schema
            progress.names.update(content.names)
            progress.ordinals.add(content.batches, str(key))
        progress.next_index = len(segments)
        progress.next_offset = segments[-1].end_bytes if segments else 0
        progress.loaded = True

    def _require_same(self, upload: Upload, known: Segment) -> None:
        if (upload.names_hash, upload.launches_hash) != (known.names_hash, known.launches_hash):
            cause = "its hash differs from that of the stored segment with this number"
            self._refuse_attempt(upload, _refusal(cause, upload, retryable=True))

    def _refuse_attempt(self, upload: Upload, why: Failure) -> NoReturn:
        """The segment cannot become the attempt's data, so the attempt has failed."""
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


_MAY_SEND = (AttemptState.LEASED, AttemptState.EXPIRED)


class _Refused(Exception):
    def __init__(self, why: Failure) -> None:
        self.why = why
        super().__init__(why.cause)


class _ChangedOnTheWayError(LaunchTableError):
    """The bytes changed in transit: another attempt may succeed."""


def _checked(upload: Upload, progress: _Progress, run: Run) -> SegmentContent:
    subject = str(upload)
    largest = max(len(upload.names), len(upload.data))
    if largest > LARGEST_PART_BYTES or not 0 < upload.launches <= LARGEST_SEGMENT_LAUNCHES:
        raise LaunchTableError(
            subject,
            f"{upload.launches:,} launches in {largest:,} bytes are out of bounds",
            "send smaller ones",
        )
    names_hash = part_hash(upload.names) if upload.names else b""
    if part_hash(upload.data) != upload.launches_hash or names_hash != upload.names_hash:
        raise _ChangedOnTheWayError(subject, "its bytes do not match the hash in its header")
    content = decode_segment(upload.names, upload.data, subject)
    if content.launches != upload.launches:
        raise LaunchTableError(
            subject, f"it holds {content.launches:,} launches, but its header says {upload.launches:,}"
        )
    _check_table(content, progress, run, subject)
    check_named(content, progress.names, subject)
    progress.ordinals.add(content.batches, subject)  # last, so that a refused segment leaves no trace
    return content


def _check_table(content: SegmentContent, progress: _Progress, run: Run, subject: str) -> None:
    if progress.schema is not None and not content.schema.equals(progress.schema, check_metadata=True):
        raise LaunchTableError(subject, "its schema differs from that of the attempt's first segment")
    planned = origin_of(synthetic=run.synthetic)
    if content.metadata.origin != planned:
        raise LaunchTableError(
            subject,
            f"its data is {content.metadata.origin} and the campaign's is {planned}",
            "the two never mix: set 'synthetic:' in the campaign file to match the data",
        )
    if content.metadata.level != run.level:
        raise LaunchTableError(
            subject,
            f"it holds a {content.metadata.level} recording, but a {run.level} one is expected",
            f"name it under '{content.metadata.level}' in the campaign file",
        )


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
