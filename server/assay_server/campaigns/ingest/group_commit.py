"""Group commit: all segments that wait at one moment become durable with one sync and one commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from assay_core.records.attempt import AttemptKey, Claim
from assay_sampling.errors import AssayError, StorageError
from assay_server.campaigns.scheduling.attempt_results import SegmentOutcome
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.connections.retry import repeated
from assay_server.store.model import Attempt, Segment
from assay_server.store.sql import SqlTransaction
from assay_server.threads.grouping import GroupingThread

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


class Unchecked(Protocol):
    """A segment that is checked in the thread that commits: a hand-over would cost more than its check."""

    @property
    def key(self) -> AttemptKey:
        """Its attempt."""

    def look(self, store: SqlTransaction) -> None:
        """Read what its check needs, in the look at the store that the whole group shares."""

    def look_again(self) -> None:
        """Forget what was read: its attempt may have changed since."""

    def checked(self) -> PreparedSegment | None:
        """The segment, if it is to be stored; else whoever waits for it has been told."""

    def refuse(self, error: AssayError) -> None:
        """Tell whoever waits for it that it could not be checked."""


class GroupCommit:
    """One thread that checks small segments, writes, syncs and commits.

    ``on_failure`` is called with attempts of which a segment was not stored. ``more_come``: whether segments
    are being checked now: a transaction costs as much for several as for one, so it waits for them a little.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        on_failure: Callable[[AttemptKey], None],
        more_come: Callable[[], bool] = lambda: False,
    ) -> None:
        self._coordinator = coordinator
        self._on_failure = on_failure
        self._thread: GroupingThread[PreparedSegment | Unchecked] = GroupingThread(
            "assay-ingest-commit", self._take, _MOST_TOGETHER, more_come
        )

    def submit(self, segment: PreparedSegment | Unchecked) -> None:
        """Store a segment behind all that were submitted before it."""
        self._thread.put(segment)

    def close(self) -> None:
        """Finish what was submitted, then stop."""
        self._thread.close()

    def _take(self, group: list[PreparedSegment | Unchecked]) -> None:
        unchecked = [each for each in group if not isinstance(each, PreparedSegment)]
        try:
            attempts = self._look(group)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the futures
            why = _told("looking up", len(group), error)
            for each in unchecked:
                each.refuse(why)
            self._fail([each for each in group if isinstance(each, PreparedSegment)], why)
            return
        self._commit(_all_checked(group), attempts)

    def _look(self, group: Sequence[PreparedSegment | Unchecked]) -> dict[AttemptKey, Attempt | None]:
        """The attempts of a group as they are now; whoever stores looks at them again."""
        attempts: dict[AttemptKey, Attempt | None] = {}
        with self._coordinator.snapshot() as store:
            for each in group:
                key = each.key
                if key not in attempts:
                    attempts[key] = store.attempt(key.run_id, key.slice_index, key.attempt)
                if not isinstance(each, PreparedSegment):
                    each.look(store)  # which knows the attempt by now
        return attempts

    def _commit(
        self, group: Sequence[PreparedSegment], attempts: Mapping[AttemptKey, Attempt | None]
    ) -> None:
        try:
            outcomes = self._store(group, attempts)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the futures
            self._fail(group, _told("storing", len(group), error))
            return
        for prepared, outcome in zip(group, outcomes, strict=True):
            if outcome is not SegmentOutcome.ADDED:
                self._on_failure(prepared.key)
            prepared.outcome.set_result(outcome)

    def _fail(self, group: Sequence[PreparedSegment], error: AssayError) -> None:
        for prepared in group:
            self._on_failure(prepared.key)
            prepared.outcome.set_exception(error)

    @repeated
    def _store(
        self, group: Sequence[PreparedSegment], attempts: Mapping[AttemptKey, Attempt | None]
    ) -> list[SegmentOutcome]:
        found = _before_storing(group, attempts)
        due = [prepared for prepared in group if prepared not in found]
        if not due:
            return [found[prepared] for prepared in group]
        self._coordinator.records.stage([(p.segment, p.names, p.launches) for p in due])
        by_attempt: dict[AttemptKey, list[PreparedSegment]] = {}
        for prepared in due:
            by_attempt.setdefault(prepared.key, []).append(prepared)
        with self._coordinator.schedule() as schedule:
            for key, members in by_attempt.items():
                outcome = schedule.add_segments([prepared.segment for prepared in members], key)
                found |= dict.fromkeys(members, outcome)
        return [found[prepared] for prepared in group]


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


def _all_checked(group: Sequence[PreparedSegment | Unchecked]) -> list[PreparedSegment]:
    prepared: list[PreparedSegment] = []
    changed: set[AttemptKey] = set()  # attempts that may have been refused since the store was looked at
    for each in group:
        if isinstance(each, PreparedSegment):
            prepared.append(each)
            continue
        if each.key in changed:
            each.look_again()
        found = _checked(each)
        if found is None:
            changed.add(each.key)
        else:
            prepared.append(found)
    return prepared


def _checked(unchecked: Unchecked) -> PreparedSegment | None:
    try:
        return unchecked.checked()
    except Exception as error:  # noqa: BLE001 - the others of its group must not suffer
        unchecked.refuse(_told("checking", 1, error))
        return None


def _told(what: str, segments: int, error: Exception) -> AssayError:
    """An error as its sender may hear it; a bug goes to the log."""
    if isinstance(error, AssayError):
        return error
    _log.error("%s %d segments failed", what, segments, exc_info=error)
    return StorageError("segments", f"they could not be stored ({error})", "see the server's log")
