"""From staged segments to the one file of a slice: repeatable until the metadata record it as done.

Staged segments that the server's disk changed or lost are kept for a look, told, and measured again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from weakref import WeakValueDictionary

from assay_core.program_log import log_about
from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import failure
from assay_core.records.lease import FinishedAttempt
from assay_sampling.errors import AssayError, LaunchTableError, StorageError
from assay_sampling.running.failures import FailureClass
from assay_server.analysis.runs.intact import RecordsChangedError
from assay_server.campaign_file.compiled import SlicePlan
from assay_server.campaigns.ingest.content import AttemptContent
from assay_server.campaigns.ingest.lost_records import lose_records
from assay_server.campaigns.scheduling.attempt_results import FinishOutcome, server_refused
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.slicing.by_light import plan_from
from assay_server.campaigns.slicing.published import LaunchKinds
from assay_server.campaigns.slicing.reslice import decides_slices, slicing_of
from assay_server.store.model import Attempt, PublishedFile, Run, Segment, Slice
from assay_server.store.quarantine_files import warn_of
from assay_server.store.records import DamagedSegmentError
from assay_server.store.sql import SqlTransaction
from assay_server.store.transactions import repeated

_log = logging.getLogger(__name__)

# A slice behind the end of its workload is published without a file.
_NO_FILE = PublishedFile("", 0, 0, "")


_Finished = tuple[Attempt | None, list[Segment], Run | None]


def _finished(store: SqlTransaction, key: AttemptKey) -> _Finished:
    """What is published of an attempt, and its run."""
    attempt = store.attempt(key.run_id, key.slice_index, key.attempt)
    return attempt, store.segments(key), store.run(key.run_id)


class Publisher:
    """Publishes finished attempts. Thread-safe; one thread at a time per slice."""

    def __init__(self, coordinator: Coordinator, seconds: Callable[[], float] = time.monotonic) -> None:
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._slices: WeakValueDictionary[tuple[str, int], threading.Lock] = WeakValueDictionary()
        self._kinds = LaunchKinds(coordinator.records, seconds)

    @repeated
    def finish(self, attempt: FinishedAttempt) -> bool:
        """Publish a complete attempt; True if it is the published one, False if the agent must drop it.

        An agent that does not hold its lease must always drop it.
        Raises StorageError if the disk refused: ask again later, the attempt stays finished.
        """
        key = attempt.claim.key
        with self._slice_lock(key):
            with self._coordinator.schedule() as schedule:
                if not schedule.is_held(attempt.claim):
                    return False
                outcome = schedule.begin_publish(
                    key, attempt.segments, attempt.launches, attempt.flags, attempt.log
                )
                if outcome is not FinishOutcome.PUBLISH:
                    return outcome is FinishOutcome.ALREADY_PUBLISHED
                finished = _finished(schedule.store, key)
            return self._publish(key, finished)

    def resume(self) -> None:
        """Publish the attempts that finished before a restart or while the disk was full."""
        with self._coordinator.snapshot() as store:
            waiting = store.attempts_in((AttemptState.PUBLISHING,))
        for attempt in waiting:
            if self._slice_lock(attempt.key).locked():
                continue  # its agent waits in this lock
            try:
                with self._slice_lock(attempt.key):
                    with self._coordinator.snapshot() as store:
                        finished = _finished(store, attempt.key)
                    self._publish(attempt.key, finished)
            except AssayError as error:
                with log_about(**attempt.key.log_fields):
                    _log.warning("finished but not published yet: %s", error)
            except Exception:  # noqa: BLE001 - a defect with one attempt must not keep the others waiting
                with log_about(**attempt.key.log_fields):
                    _log.exception("finished but not published yet: an error that nobody expected")

    def _publish(self, key: AttemptKey, finished: _Finished) -> bool:
        """In the lock of its slice."""
        attempt, segments, run = finished
        if run is None or attempt is None or attempt.state is not AttemptState.PUBLISHING:
            return attempt is not None and attempt.state is AttemptState.PUBLISHED
        try:
            empty = not segments and not attempt.segments
            check = AttemptContent(may_skip=run.command is None)
            file = _NO_FILE if empty else self._coordinator.records.publish(key, segments, check)
        except (DamagedSegmentError, LaunchTableError) as error:
            return self._give_up(key, error)
        plan = self._look_at(run, key, file)
        is_published = self._ended(key, file, plan)
        if not is_published and file.file:
            self._coordinator.records.withdraw(file.file)
        return is_published

    @repeated
    def _ended(self, key: AttemptKey, file: PublishedFile, plan: SlicePlan | None) -> bool:
        """End the publication; first, other slices of the run whose files have changed wait again."""
        while True:
            try:
                with self._coordinator.schedule() as schedule:
                    return schedule.end_publish(key, file, self._kinds, plan)
            except RecordsChangedError as error:
                lose_records(self._coordinator, [f for f in error.files if f.run_id == key.run_id])

    def _look_at(self, run: Run, key: AttemptKey, file: PublishedFile) -> SlicePlan | None:
        """Read the file before the transaction if its launches decide how runs continue: the plan for the
        detailed runs that wait for this light run, or the new kinds of launches in this slice."""
        is_open = run.in_windows and run.plan is None
        if not file.file or not (is_open or decides_slices(run)):
            return None
        with self._coordinator.snapshot() as store:
            if not is_open:
                with self._coordinator.records.reading(file.file) as path:
                    return plan_from(store, run, path)
            slicing = slicing_of(store, run)
        if slicing is not None and slicing.is_open:
            self._kinds.of(Slice(key.run_id, key.slice_index, file=file.file, content_hash=file.content_hash))
        return None

    def _give_up(self, key: AttemptKey, error: AssayError) -> bool:
        """Acknowledged data is gone, or makes no launch table: the attempt has failed (unless it was
        cancelled)."""
        # It may have been published meanwhile, which removes its segments.
        with self._coordinator.snapshot() as store:
            attempt = store.attempt(key.run_id, key.slice_index, key.attempt)
        if attempt is None or attempt.state is not AttemptState.PUBLISHING:
            return attempt is not None and attempt.state is AttemptState.PUBLISHED
        # The database may be older than the records: an existing file is not this attempt's.
        warn_of(self._coordinator.records.make_way(key))
        if isinstance(error, DamagedSegmentError):
            self._set_aside_staged(key)
            why = failure(FailureClass.STAGING_DAMAGED, error.subject, error.cause)
        else:
            why = server_refused(error.subject, error.cause, error.remedy)
        with self._coordinator.schedule() as schedule:
            schedule.fail(key, why)
        return False

    def _set_aside_staged(self, key: AttemptKey) -> None:
        """What is left of an attempt's damaged segments is kept for a look, which the status tells."""
        try:
            warn_of(self._coordinator.records.set_aside_staged(key))
        except StorageError as refused:  # the disk is ill: the attempt must end nevertheless
            with log_about(**key.log_fields):
                _log.warning("the damaged segments cannot be set aside: %s", refused)

    def _slice_lock(self, key: AttemptKey) -> threading.Lock:
        """To be used in a ``with`` statement, which keeps the lock, and so its entry, alive."""
        with self._lock:
            return self._slices.setdefault((key.run_id, key.slice_index), threading.Lock())
