"""Group commit: all segments that wait at one moment become durable with one sync and one commit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from assay_core.records.attempt import AttemptKey, Claim
from assay_sampling.errors import AssayError, StorageError
from assay_server.campaigns.scheduling.attempt_results import SegmentOutcome
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.grouping import GroupingThread
from assay_server.store.ended import repeated
from assay_server.store.model import Attempt, HeldSegment, Segment

_log = logging.getLogger(__name__)

_MOST_TOGETHER = 64
# The first segments of an attempt, up to so many bytes, are kept in the metadata store, in the commit that
# records them: a file of their own would take three more syncs of the disk.
MOST_HELD_BYTES = 64 << 10


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

    ``on_failure`` is called with attempts of which a segment was not stored. ``more_come``: whether segments
    are being checked now: a transaction costs as much for several as for one, so it waits for them a little.
    ``most_held_bytes``: of an attempt, kept in the metadata store.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        on_failure: Callable[[AttemptKey], None],
        more_come: Callable[[], bool] = lambda: False,
        most_held_bytes: int = MOST_HELD_BYTES,
    ) -> None:
        self._most_held_bytes = most_held_bytes
        self._coordinator = coordinator
        self._on_failure = on_failure
        self._thread = GroupingThread("assay-ingest-commit", self._commit, _MOST_TOGETHER, more_come)

    def submit(self, prepared: PreparedSegment) -> None:
        self._thread.put(prepared)

    def close(self) -> None:
        """Finish what was submitted, then stop."""
        self._thread.close()

    def _commit(self, group: list[PreparedSegment]) -> None:
        try:
            outcomes = self._store(group)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the futures
            if not isinstance(error, AssayError):
                _log.exception("storing %d segments failed", len(group))
                error = StorageError(
                    "segments", f"they could not be stored ({error})", "see the server's log"
                )
            for prepared in group:
                self._on_failure(prepared.key)
                prepared.outcome.set_exception(error)
            return
        for prepared, outcome in zip(group, outcomes, strict=True):
            if outcome is not SegmentOutcome.ADDED:
                self._on_failure(prepared.key)
            prepared.outcome.set_result(outcome)

    @repeated
    def _store(self, group: list[PreparedSegment]) -> list[SegmentOutcome]:
        found = self._before_storing(group)
        due = [prepared for prepared in group if prepared not in found]
        if not due:
            return [found[prepared] for prepared in group]
        large = [p for p in due if not self._is_held(p.segment)]
        if large:
            self._coordinator.records.stage([(p.segment, p.names, p.launches) for p in large])
        by_attempt: dict[AttemptKey, list[PreparedSegment]] = {}
        for prepared in due:
            by_attempt.setdefault(prepared.key, []).append(prepared)
        with self._coordinator.schedule() as schedule:
            for key, members in by_attempt.items():
                outcome = schedule.add_segments([prepared.segment for prepared in members], key)
                found |= dict.fromkeys(members, outcome)
                for each in members if outcome is SegmentOutcome.ADDED else ():
                    if self._is_held(each.segment):
                        schedule.store.hold_segment(each.segment, HeldSegment(each.names, each.launches))
        return [found[prepared] for prepared in group]

    def _is_held(self, segment: Segment) -> bool:
        """Whether the metadata store keeps a segment: all before it are small, too."""
        return segment.end_bytes <= self._most_held_bytes

    def _before_storing(self, group: list[PreparedSegment]) -> dict[PreparedSegment, SegmentOutcome]:
        """The outcome of segments that must not reach the disk: those whose sender does not hold the lease
        now, and those that are not next in their attempts (an acknowledged segment is never overwritten)."""
        attempts: dict[AttemptKey, Attempt | None] = {}
        expected: dict[AttemptKey, int] = {}
        outcomes: dict[PreparedSegment, SegmentOutcome] = {}
        with self._coordinator.snapshot() as store:
            for prepared in group:
                key = prepared.key
                if key not in attempts:
                    attempts[key] = store.attempt(key.run_id, key.slice_index, key.attempt)
                attempt = attempts[key]
                if attempt is None or not attempt.takes_segments_from(prepared.claim):
                    outcomes[prepared] = SegmentOutcome.NOT_WANTED
                elif prepared.segment.index == expected.setdefault(key, attempt.segments):
                    expected[key] += 1
                else:
                    outcomes[prepared] = SegmentOutcome.OUT_OF_ORDER
        return outcomes
