"""Group commit: all segments that wait at one moment become durable with one sync and one commit."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import AssayError, StorageError
from assay_server.campaigns.ingest.arrival import Arrival
from assay_server.campaigns.ingest.order import ArrivalOrder, not_stored, not_wanted
from assay_server.campaigns.ingest.upload import Answer
from assay_server.campaigns.scheduling.attempt_results import SegmentOutcome
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.transactions import repeated

_log = logging.getLogger(__name__)

_MOST_TOGETHER = 64

Outcome = tuple[Arrival, Answer | StorageError]


class GroupCommit:
    """One thread that writes, syncs and commits."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._waiting: queue.SimpleQueue[Arrival | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="assay-ingest-commit", daemon=True)
        self._thread.start()

    def submit(self, arrival: Arrival) -> None:
        """Store a segment behind all that were submitted before it."""
        self._waiting.put(arrival)

    def close(self) -> None:
        """Finish what was submitted, then stop; nobody submits any more."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while group := self._next_group():
            self._commit(group)

    def _next_group(self) -> list[Arrival]:
        """All that wait, at least one; none if nothing more will come."""
        group: list[Arrival] = []
        while len(group) < _MOST_TOGETHER and not (group and self._waiting.empty()):
            arrival = self._waiting.get()
            if arrival is None:
                if group:
                    self._waiting.put(None)
                break
            group.append(arrival)
        return group

    def _commit(self, group: Sequence[Arrival]) -> None:
        try:
            outcomes = self._store(group)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the futures
            known = _storage_error(len(group), error)
            for arrival in group:
                arrival.answer.set_exception(known)
            return
        for arrival, outcome in outcomes:
            _resolve(arrival.answer, outcome)

    @repeated
    def _store(self, group: Sequence[Arrival]) -> list[Outcome]:
        by_attempt: dict[AttemptKey, list[Arrival]] = {}
        for arrival in group:
            by_attempt.setdefault(arrival.upload.key, []).append(arrival)
        with self._coordinator.snapshot() as store:
            orders = [ArrivalOrder.of(store, arrivals) for arrivals in by_attempt.values()]
        due = [each for order in orders for each in order.due.values()]
        if due:
            self._coordinator.records.stage(
                [(each.segment, each.arrivals[0].upload.names, each.arrivals[0].upload.data) for each in due]
            )
        outcomes = [outcome for order in orders for outcome in order.answers]
        changes = [order for order in orders if order.due or order.failure]
        return outcomes + (self._record(changes) if changes else [])

    def _record(self, orders: Sequence[ArrivalOrder]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        with self._coordinator.schedule() as schedule:
            for order in orders:
                due = list(order.due.values())
                if due:
                    added = schedule.add_segments([each.segment for each in due], order.key)
                    outcomes += [(a, _answer_of(a, added)) for each in due for a in each.arrivals]
                if order.failure is not None:
                    schedule.fail(order.key, order.failure)
        return outcomes


def _answer_of(arrival: Arrival, outcome: SegmentOutcome) -> Answer | StorageError:
    if outcome is SegmentOutcome.ADDED:
        return Answer()
    return not_wanted(arrival.upload) if outcome is SegmentOutcome.NOT_WANTED else not_stored(arrival.upload)


def _resolve(answer: Future[Answer], outcome: Answer | StorageError) -> None:
    if isinstance(outcome, StorageError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def _storage_error(segments: int, error: Exception) -> AssayError:
    """An error as its sender may hear it; a bug goes to the log."""
    if isinstance(error, AssayError):
        return error
    _log.error("storing %d segments failed", segments, exc_info=error)
    return StorageError("segments", f"they could not be stored ({error})", "see the server's log")
