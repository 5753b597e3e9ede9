"""Segments from agents: intact as they arrive, then durable, then acknowledged.

What needs nothing but a segment's bytes is checked as it arrives, and the schema of an attempt's first one:
data of the wrong kind is refused before hours of it are measured. Most of the content is checked when the
attempt is published (:mod:`assay_server.campaigns.ingest.content`).

All that wait at one moment become durable with one sync and one commit. Nothing of an attempt is kept in
memory: the store alone knows how far it has come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Self

from assay_core.records.attempt import AttemptKey, Claim
from assay_core.records.failure import Failure
from assay_core.records.upload import SegmentHeader
from assay_sampling.errors import LaunchTableError, StorageError
from assay_sampling.launches.table import TableMetadata
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.identity import origin_of
from assay_server.campaigns.scheduling.attempt_results import (
    SegmentOutcome,
    server_refused,
    server_restored,
)
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.model import Attempt, Segment
from assay_server.store.segments import (
    LARGEST_PART_BYTES,
    LARGEST_SEGMENT_LAUNCHES,
    leading_metadata,
    part_hash,
)
from assay_server.store.sql import SqlTransaction
from assay_server.store.transactions import repeated
from assay_server.threads.grouped import Grouped

_MOST_TOGETHER = 64


@dataclass(frozen=True)
class Upload:
    """A segment as received: its sender, its header and its two compressed parts, of the header's sizes.

    ``follows``: the segment before it came over the same stream, acknowledged or not.
    """

    claim: Claim
    header: SegmentHeader
    names: bytes
    data: bytes
    follows: bool = False

    @property
    def key(self) -> AttemptKey:
        return self.claim.key

    @property
    def index(self) -> int:
        return self.header.index

    @property
    def hashes(self) -> tuple[bytes, bytes]:
        return self.header.names_hash, self.header.launches_hash

    def __str__(self) -> str:
        return f"{self.key}, segment {self.index}"


@dataclass(frozen=True)
class Answer:
    """The answer to an upload: durable (``duplicate``: it already was), or refused for good."""

    duplicate: bool = False
    refusal: Failure | None = None


@dataclass(frozen=True, eq=False)
class Arrival:
    """A segment that arrived.

    ``metadata``: of the launch table, in the first segment of an attempt. ``fault``: why the bytes cannot
    become the attempt's data.
    """

    upload: Upload
    metadata: TableMetadata | None = None
    fault: Failure | None = None

    @classmethod
    def of(cls, upload: Upload) -> Self:
        fault = _size_fault(upload) or _hash_fault(upload)
        if fault is not None or upload.index > 0:
            return cls(upload, fault=fault)
        try:
            return cls(upload, leading_metadata(upload.data, str(upload)))
        except LaunchTableError as error:
            return cls(upload, fault=server_refused(str(upload), error.cause, error.remedy))


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
        return self._group.take(Arrival.of(upload))

    @repeated
    def _store(self, group: Sequence[Arrival]) -> list[Answer | StorageError]:
        by_attempt: defaultdict[AttemptKey, list[Arrival]] = defaultdict(list)
        for arrival in group:
            by_attempt[arrival.upload.key].append(arrival)
        with self._coordinator.snapshot() as store:
            orders = [_ArrivalOrder.of(store, arrivals) for arrivals in by_attempt.values()]
        due = [each for order in orders for each in order.due.values()]
        if due:
            self._coordinator.records.stage(
                [(segment, arrivals[0].upload.names, arrivals[0].upload.data) for segment, arrivals in due]
            )
        if any(order.due or order.failure for order in orders):
            self._record(orders)
        answers = {arrival: answer for order in orders for arrival, answer in order.answers.items()}
        return [answers[arrival] for arrival in group]

    def _record(self, orders: Sequence[_ArrivalOrder]) -> None:
        """Commit what is due, which answers its arrivals, and end the attempts that break the rules."""
        with self._coordinator.schedule() as schedule:
            for order in orders:
                if order.due:
                    added = schedule.add_segments([segment for segment, _ in order.due.values()], order.key)
                    for _, arrivals in order.due.values():
                        order.answers |= {arrival: _answer_of(arrival, added) for arrival in arrivals}
                if order.failure is not None:
                    schedule.fail(order.key, order.failure)


def _answer_of(arrival: Arrival, outcome: SegmentOutcome) -> Answer | StorageError:
    if outcome is SegmentOutcome.ADDED:
        return Answer()
    return (
        _not_wanted(arrival.upload) if outcome is SegmentOutcome.NOT_WANTED else _not_stored(arrival.upload)
    )


@dataclass
class _ArrivalOrder:
    """The arrivals of one attempt, sorted out in the order in which they came, by what the store has of it.

    ``due``: the segments to be stored, each with the arrivals that it answers. ``answers``: to those that
    change nothing. ``failure``: ends the attempt.
    """

    key: AttemptKey
    store: SqlTransaction
    attempt: Attempt | None
    due: dict[int, tuple[Segment, list[Arrival]]] = field(default_factory=dict)
    answers: dict[Arrival, Answer | StorageError] = field(default_factory=dict)
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
            self.answers[arrival] = _not_wanted(upload)
        elif (same := self._segment(attempt, upload.index)) is not None:
            self._add_again(arrival, same)
        elif not attempt.takes_segments_from(upload.claim):
            self.answers[arrival] = _not_wanted(upload)
        else:
            self._add_new(arrival, attempt)

    def _segment(self, attempt: Attempt, index: int) -> Segment | None:
        if index in self.due:
            return self.due[index][0]
        return self.store.segment(attempt.key, index) if 0 <= index < attempt.segments else None

    def _add_again(self, arrival: Arrival, same: Segment) -> None:
        if arrival.upload.hashes != (same.names_hash, same.launches_hash):
            cause = "its hash differs from that of the stored segment with this number"
            self._refuse(arrival, server_refused(str(arrival.upload), cause, retryable=True))
        elif same.index in self.due:
            self.due[same.index][1].append(arrival)
        else:
            self.answers[arrival] = Answer(duplicate=True)

    def _add_new(self, arrival: Arrival, attempt: Attempt) -> None:
        upload, index = arrival.upload, attempt.segments + len(self.due)
        if upload.index > index and upload.follows:
            self.answers[arrival] = _not_stored(upload)
        elif fault := _order_fault(upload, index) or arrival.fault or self._table_fault(arrival):
            self._refuse(arrival, fault)
        else:
            previous = self._segment(attempt, index - 1)
            self.due[index] = _segment_of(upload, previous.end_bytes if previous else 0), [arrival]

    def _table_fault(self, arrival: Arrival) -> Failure | None:
        """The first segment's launch table is not of the run's kind."""
        upload, metadata = arrival.upload, arrival.metadata
        run = None if metadata is None else self.store.run(self.key.run_id)
        if metadata is None or run is None:
            return None
        origin = origin_of(synthetic=run.synthetic)
        if metadata.origin != origin:
            return server_refused(
                str(upload),
                f"its data is {metadata.origin} and the campaign's is {origin}",
                "the two never mix: set 'synthetic:' in the campaign file to match the data",
            )
        if metadata.level != run.level:
            return server_refused(
                str(upload),
                f"it holds a {metadata.level} recording, but a {run.level} one is expected",
                f"name it under '{metadata.level}' in the campaign file",
            )
        return None

    def _refuse(self, arrival: Arrival, why: Failure) -> None:
        self.failure = why
        self.answers[arrival] = Answer(refusal=why)


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
        return server_refused(str(upload), cause, retryable=True)
    return None


def _segment_of(upload: Upload, offset_bytes: int) -> Segment:
    key = upload.key
    place = (key.run_id, key.slice_index, key.attempt)
    return Segment(*place, offset_bytes=offset_bytes, **vars(upload.header))


def _size_fault(upload: Upload) -> Failure | None:
    largest = max(len(upload.names), len(upload.data))
    launches = upload.header.launches
    if largest <= LARGEST_PART_BYTES and 0 < launches <= LARGEST_SEGMENT_LAUNCHES:
        return None
    cause = f"{launches:,} launches in {largest:,} bytes are out of bounds"
    return server_refused(str(upload), cause, "send smaller ones")


def _hash_fault(upload: Upload) -> Failure | None:
    """The bytes changed in transit: another attempt may succeed."""
    names_hash = part_hash(upload.names) if upload.names else b""
    if (names_hash, part_hash(upload.data)) == upload.hashes:
        return None
    return server_refused(str(upload), "its bytes do not match the hash in its header", retryable=True)
