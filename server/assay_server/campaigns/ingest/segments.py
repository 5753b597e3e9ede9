"""Segments from agents: intact as they arrive, then durable, then acknowledged.

All that wait at one moment become durable with one sync and one commit. Nothing of an attempt is kept in
memory: the store alone knows how far it has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from assay_core.records.attempt import AttemptKey
from assay_core.records.failure import Failure
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.identity import origin_of
from assay_server.campaigns.ingest.upload import Answer, Arrival, Upload, refusal
from assay_server.campaigns.scheduling.attempt_results import SegmentOutcome, server_restored
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.model import Attempt, Segment
from assay_server.store.sql import SqlTransaction
from assay_server.store.transactions import repeated
from assay_server.threads.grouped import Grouped

_MOST_TOGETHER = 64


class Ingest:
    """Takes uploads. Thread-safe."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._group = Grouped(
            self._store,
            name="assay-ingest-commit",
            most=_MOST_TOGETHER,
            fault=("segments", "they could not be stored"),
        )

    def close(self) -> None:
        """Finish what was taken, then stop; nobody uploads any more."""
        self._group.close()

    def take(self, upload: Upload) -> Future[Answer]:
        """Check an upload and write it to disk. The future resolves once it is durable or refused.

        The future raises StorageError if the disk refused it or an earlier segment: send them again later.
        A stream that ends cancels what it waits for; the segment is on its way all the same.
        """
        return self._group.ask(Arrival.of(upload))

    @repeated
    def _store(self, group: Sequence[Arrival]) -> list[Answer | StorageError]:
        by_attempt: dict[AttemptKey, list[Arrival]] = {}
        for arrival in group:
            by_attempt.setdefault(arrival.upload.key, []).append(arrival)
        with self._coordinator.snapshot() as store:
            orders = [_ArrivalOrder.of(store, arrivals) for arrivals in by_attempt.values()]
        due = [each for order in orders for each in order.due.values()]
        if due:
            self._coordinator.records.stage(
                [(each.segment, each.arrivals[0].upload.names, each.arrivals[0].upload.data) for each in due]
            )
        answers = {arrival: answer for order in orders for arrival, answer in order.answers}
        changes = [order for order in orders if order.due or order.failure]
        if changes:
            answers |= self._record(changes)
        return [answers[arrival] for arrival in group]

    def _record(self, orders: Sequence[_ArrivalOrder]) -> dict[Arrival, Answer | StorageError]:
        answers: dict[Arrival, Answer | StorageError] = {}
        with self._coordinator.schedule() as schedule:
            for order in orders:
                due = list(order.due.values())
                if due:
                    added = schedule.add_segments([each.segment for each in due], order.key)
                    answers |= {a: _answer_of(a, added) for each in due for a in each.arrivals}
                if order.failure is not None:
                    schedule.fail(order.key, order.failure)
        return answers


def _answer_of(arrival: Arrival, outcome: SegmentOutcome) -> Answer | StorageError:
    if outcome is SegmentOutcome.ADDED:
        return Answer()
    return (
        _not_wanted(arrival.upload) if outcome is SegmentOutcome.NOT_WANTED else _not_stored(arrival.upload)
    )


@dataclass
class _DueSegment:
    """A segment to be stored next, and the arrivals that it answers."""

    segment: Segment
    arrivals: list[Arrival]


@dataclass
class _ArrivalOrder:
    """The arrivals of one attempt, sorted out in the order in which they came, by what the store has of it.

    ``due``: to be stored. ``answers``: to those that change nothing. ``failure``: ends the attempt.
    """

    key: AttemptKey
    store: SqlTransaction
    attempt: Attempt | None
    due: dict[int, _DueSegment] = field(default_factory=dict)
    answers: list[tuple[Arrival, Answer | StorageError]] = field(default_factory=list)
    failure: Failure | None = None

    @classmethod
    def of(cls, store: SqlTransaction, arrivals: Sequence[Arrival]) -> _ArrivalOrder:
        key = arrivals[0].upload.key
        order = cls(key, store, store.attempt(key.run_id, key.slice_index, key.attempt))
        for arrival in arrivals:
            order._add(arrival)
        return order

    def _add(self, arrival: Arrival) -> None:
        upload, attempt = arrival.upload, self.attempt
        if attempt is None or self.failure or not attempt.is_held_by(upload.claim):
            self.answers.append((arrival, _not_wanted(upload)))
        elif (same := self._segment(attempt, upload.index)) is not None:
            self._add_again(arrival, same)
        elif not attempt.takes_segments_from(upload.claim):
            self.answers.append((arrival, _not_wanted(upload)))
        else:
            self._add_new(arrival, attempt)

    def _segment(self, attempt: Attempt, index: int) -> Segment | None:
        if index in self.due:
            return self.due[index].segment
        return self.store.segment(attempt.key, index) if 0 <= index < attempt.segments else None

    def _add_again(self, arrival: Arrival, same: Segment) -> None:
        if arrival.upload.hashes != (same.names_hash, same.launches_hash):
            cause = "its hash differs from that of the stored segment with this number"
            self._refuse(arrival, refusal(str(arrival.upload), cause, retryable=True))
        elif same.index in self.due:
            self.due[same.index].arrivals.append(arrival)
        else:
            self.answers.append((arrival, Answer(duplicate=True)))

    def _add_new(self, arrival: Arrival, attempt: Attempt) -> None:
        upload, index = arrival.upload, attempt.segments + len(self.due)
        if upload.index > index and upload.follows:
            self.answers.append((arrival, _not_stored(upload)))
        elif fault := _order_fault(upload, index) or arrival.fault or self._table_fault(arrival):
            self._refuse(arrival, fault)
        else:
            previous = self._segment(attempt, index - 1)
            offset_bytes = previous.end_bytes if previous else 0
            self.due[index] = _DueSegment(_segment_of(upload, offset_bytes), [arrival])

    def _table_fault(self, arrival: Arrival) -> Failure | None:
        """The first segment's launch table is not of the run's kind."""
        upload, metadata = arrival.upload, arrival.metadata
        run = None if metadata is None else self.store.run(self.key.run_id)
        if metadata is None or run is None:
            return None
        origin = origin_of(synthetic=run.synthetic)
        if metadata.origin != origin:
            return refusal(
                str(upload),
                f"its data is {metadata.origin} and the campaign's is {origin}",
                "the two never mix: set 'synthetic:' in the campaign file to match the data",
            )
        if metadata.level != run.level:
            return refusal(
                str(upload),
                f"it holds a {metadata.level} recording, but a {run.level} one is expected",
                f"name it under '{metadata.level}' in the campaign file",
            )
        return None

    def _refuse(self, arrival: Arrival, why: Failure) -> None:
        self.failure = why
        self.answers.append((arrival, Answer(refusal=why)))


def _not_wanted(upload: Upload) -> Answer:
    """The answer to a sender whose segment nobody waits for."""
    cause = (
        "the attempt is no longer wanted (it was cancelled, or another agent got its slice), or the sender "
        "does not hold its lease"
    )
    return Answer(refusal=Failure(str(FailureClass.LEASE_EXPIRED), str(upload), cause, "drop it"))


def _not_stored(upload: Upload) -> StorageError:
    """The error of a sender whose segment follows one that did not become durable."""
    return StorageError(str(upload), "an earlier segment was not stored", "send both again")


def _order_fault(upload: Upload, index: int) -> Failure | None:
    if upload.index > index:
        # An agent begins a stream with the first segment that was not acknowledged.
        return server_restored(str(upload), f"it lacks segment {index}, which it acknowledged")
    if upload.index < index:
        cause = f"it came instead of segment {index}, which is next"
        return refusal(str(upload), cause, retryable=True)
    return None


def _segment_of(upload: Upload, offset_bytes: int) -> Segment:
    return Segment(
        upload.key.run_id,
        upload.key.slice_index,
        upload.key.attempt,
        upload.index,
        offset_bytes,
        upload.launches,
        len(upload.names),
        len(upload.data),
        upload.names_hash,
        upload.launches_hash,
    )
