"""Group commit: all segments that wait at one moment become durable with one sync and one commit."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from assay_core.records.attempt import AttemptKey, Claim
from assay_sampling.errors import AssayError, StorageError
from assay_server.campaigns.scheduling.attempt_results import SegmentOutcome
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.connections.retry import repeated
from assay_server.store.model import Attempt, Segment

_log = logging.getLogger(__name__)

_MOST_TOGETHER = 64


@dataclass(eq=False)
class PreparedSegment:
    """A checked segment on its way to the disk; ``outcome`` resolves once it is durable or has failed."""

    claim: Claim
    segment: Segment
    names: bytes
    launches: bytes
    outcome: Future[SegmentOutcome] = field(default_factory=Future)

    @property
    def key(self) -> AttemptKey:
        return self.claim.key


class GroupCommit:
    """One thread that writes, syncs and commits.

    ``on_failure`` is called with attempts of which a segment was not stored.
    """

    def __init__(self, coordinator: Coordinator, on_failure: Callable[[AttemptKey], None]) -> None:
        self._coordinator = coordinator
        self._on_failure = on_failure
        self._waiting: queue.SimpleQueue[PreparedSegment | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="assay-ingest-commit", daemon=True)
        self._thread.start()

    def submit(self, segment: PreparedSegment) -> None:
        """Store a segment behind all that were submitted before it."""
        self._waiting.put(segment)

    def close(self) -> None:
        """Finish what was submitted, then stop; nobody submits any more."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while group := self._next_group():
            self._commit(group)

    def _next_group(self) -> list[PreparedSegment]:
        """All that wait, at least one; none if nothing more will come."""
        group: list[PreparedSegment] = []
        while len(group) < _MOST_TOGETHER and not (group and self._waiting.empty()):
            segment = self._waiting.get()
            if segment is None:
                if group:
                    self._waiting.put(None)
                break
            group.append(segment)
        return group

    def _commit(self, group: Sequence[PreparedSegment]) -> None:
        try:
            outcomes = self._store(group)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the futures
            self._fail(group, _storage_error(len(group), error))
            return
        self._forget(
            p for p, outcome in zip(group, outcomes, strict=True) if outcome is not SegmentOutcome.ADDED
        )
        for prepared, outcome in zip(group, outcomes, strict=True):
            prepared.outcome.set_result(outcome)

    def _fail(self, group: Sequence[PreparedSegment], error: AssayError) -> None:
        self._forget(group)
        for prepared in group:
            prepared.outcome.set_exception(error)

    def _forget(self, failed: Iterable[PreparedSegment]) -> None:
        """Before anybody hears of it: whoever does sends again, and that must not be forgotten with it."""
        for key in {prepared.key for prepared in failed}:
            self._on_failure(key)

    @repeated
    def _store(self, group: Sequence[PreparedSegment]) -> list[SegmentOutcome]:
        attempts: dict[AttemptKey, Attempt | None] = {}
        with self._coordinator.snapshot() as store:
            for key in {prepared.key for prepared in group}:
                attempts[key] = store.attempt(key.run_id, key.slice_index, key.attempt)
        outcomes = _before_storing(group, attempts)
        due = [prepared for prepared in group if prepared not in outcomes]
        if not due:
            return [outcomes[prepared] for prepared in group]
        self._coordinator.records.stage([(p.segment, p.names, p.launches) for p in due])
        by_attempt: dict[AttemptKey, list[PreparedSegment]] = {}
        for prepared in due:
            by_attempt.setdefault(prepared.key, []).append(prepared)
        with self._coordinator.schedule() as schedule:
            for key, members in by_attempt.items():
                outcome = schedule.add_segments([prepared.segment for prepared in members], key)
                outcomes |= dict.fromkeys(members, outcome)
        return [outcomes[prepared] for prepared in group]


def _before_storing(
    group: Sequence[PreparedSegment], attempts: Mapping[AttemptKey, Attempt | None]
) -> dict[PreparedSegment, SegmentOutcome]:
    """The outcome of segments that must not reach the disk: those whose sender does not hold the lease
    now, and those that are not next in their attempts (an acknowledged segment is never overwritten)."""
    expected: dict[AttemptKey, int] = {}
    outcomes: dict[PreparedSegment, SegmentOutcome] = {}
    for prepared in group:
        key = prepared.key
        attempt = attempts[key]
        if attempt is None or not attempt.takes_segments_from(prepared.claim):
            outcomes[prepared] = SegmentOutcome.NOT_WANTED
        elif prepared.segment.index == expected.setdefault(key, attempt.segments):
            expected[key] += 1
        else:
            outcomes[prepared] = SegmentOutcome.OUT_OF_ORDER
    return outcomes


def _storage_error(segments: int, error: Exception) -> AssayError:
    """An error as its sender may hear it; a bug goes to the log."""
    if isinstance(error, AssayError):
        return error
    _log.error("storing %d segments failed", segments, exc_info=error)
    return StorageError("segments", f"they could not be stored ({error})", "see the server's log")
