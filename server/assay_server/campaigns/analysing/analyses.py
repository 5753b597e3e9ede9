"""Analyses of campaigns whose runs have ended: made on an executor, and stored once.

The active server makes them. If it dies, it or its standby makes them again after the next start; the same
request gives the same report.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Literal

from assay_core.program_log import log_about
from assay_core.records.campaign import CampaignState, ChangedFile, FileChange
from assay_core.records.failure import Failure, failure
from assay_sampling.errors import (
    AssayError,
    CounterUnavailableError,
    InputError,
    LaunchTableError,
    StorageError,
)
from assay_sampling.running.failures import FailureClass
from assay_server.analysis.runs.intact import RecordsChangedError, unreadable_copy
from assay_server.analysis.runs.request import AnalysisRequest
from assay_server.campaigns.analysing.executors import ExecutorApart, WorkersAwayError
from assay_server.campaigns.analysing.job import Pages, submit_analysis
from assay_server.campaigns.analysing.request_builder import analysis_request
from assay_server.campaigns.ingest.lost_records import look_again, lose_records
from assay_server.campaigns.planning.repeats import repeats_wanted
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.store.model import AnalysisTry
from assay_server.store.record_store import REPORT_FORMS
from assay_server.threads.repeating import repeated_in_thread

_log = logging.getLogger(__name__)

_TICK_SECONDS = 5.0
# An analysis of which servers died so often in a row is not tried again.
MOST_TRIES = 20
# What a disk refuses, to be read or written, is tried again so often, over about an hour.
_DISK_TRIES = 12
_DISK_PAUSE_SECONDS, _LONGEST_DISK_PAUSE_SECONDS = 5.0, 600.0
# Workers that are away are asked for again as long as it takes.
_AWAY_PAUSE_SECONDS, _LONGEST_AWAY_PAUSE_SECONDS = 2.0, 60.0


Setback = Literal["disk", "bucket", "workers", "death"]


class Analyses:
    """Makes the analysis of each campaign whose runs have ended, and keeps its report.

    ``make_executor`` makes an executor, and a new one after the earlier one broke. ``on_end`` hears of each
    analysis that has ended, and whether it made a report. ``starter`` starts the analyses of campaigns whose
    last run ends, so that the agent of that run need not wait; None: whoever ends the run does.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        make_executor: Callable[[], Executor],
        on_end: Callable[[bool], None] = lambda done: None,
        starter: Executor | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._on_end = on_end
        self._make_executor = make_executor
        self._starter = starter
        self._lock = threading.Lock()
        self._making = threading.Lock()  # held while an executor is made, which may take seconds
        self._ending = threading.RLock()  # held while a result is stored
        self._executor: Executor | None = None
        # The tries under way, by campaign; None: it is about to begin.
        self._running: dict[str, AnalysisTry | None] = {}
        # By campaign: how often in a row a disk refused something, its bucket or workers were away, or a
        # worker died; and what tries again.
        self._setbacks: defaultdict[str, Counter[Setback]] = defaultdict(Counter)
        self._later: dict[str, threading.Timer] = {}
        self._closed = False
        coordinator.listen(self._heard, attrgetter("analyse"))

    @property
    def running(self) -> int:
        """How many campaigns are being analysed."""
        return len(self._running)

    def close(self) -> None:
        """Start and store nothing more; analyses under way do not count as tries."""
        with self._lock:
            self._closed = True
            left = [begun for begun in self._running.values() if begun is not None]
            for timer in self._later.values():
                timer.cancel()
        with self._ending:
            if left:
                with contextlib.suppress(StorageError), self._coordinator.schedule() as schedule:
                    for begun in left:
                        schedule.leave_analysis(begun)

    def look(self) -> None:
        """Begin the analyses that are due and neither under way nor waiting. Raises StorageError."""
        with self._coordinator.snapshot() as store:
            due = store.campaigns_to_analyse()
        for campaign_id in due:
            if campaign_id not in self._later:
                self.start(campaign_id)

    def watching(self) -> AbstractContextManager[None]:
        """A thread that looks again and again while the block runs."""
        return repeated_in_thread("assay-analyses", self.look, _TICK_SECONDS, at_once=False)

    def _heard(self, effects: Effects) -> None:
        for campaign_id in sorted(effects.analyse):
            if self._starter is None:
                self.start(campaign_id)
            else:
                with contextlib.suppress(RuntimeError):  # the server ends, and the next one starts it
                    self._starter.submit(self.start, campaign_id)

    def start(self, campaign_id: str) -> None:
        """Analyse a campaign, unless that is under way, or a person has cancelled or retried it."""
        with self._lock:
            if self._closed or campaign_id in self._running:
                return
            self._running[campaign_id] = None
            self._later.pop(campaign_id, None)
        begun = None
        try:
            with self._coordinator.schedule() as schedule:
                begun = schedule.begin_analysis(campaign_id)
        except StorageError as error:
            _log.warning("the analysis of %s is not begun, and tried again soon: %s", campaign_id, error)
        with self._lock:
            if begun is None:
                self._running.pop(campaign_id, None)
                return
            self._running[campaign_id] = begun
        if begun.attempts > MOST_TRIES:
            self._end(begun, given_up(begun))
            return
        try:
            with self._coordinator.snapshot() as store:
                request = analysis_request(store, campaign_id, self._coordinator.records)
            future = self.submit(request)
        except Exception as error:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._fails(begun, error)
            return
        # It may have waited for something that is there again.
        self._setbacks[campaign_id].pop("workers", None)
        with contextlib.suppress(StorageError), self._coordinator.schedule() as schedule:
            schedule.tell_analysis(campaign_id, None)
        future.add_done_callback(partial(self._done, begun))

    def submit(self, request: AnalysisRequest) -> Future[Pages]:
        """Start an analysis, whose report is not stored, on the executor; a broken one is replaced.

        Raises WorkersAwayError.
        """
        with self._making:
            if self._executor is None:
                self._executor = self._make_executor()
            try:
                return submit_analysis(self._executor, request)
            except (BrokenExecutor, WorkersAwayError):
                self._executor = None
                self._executor = self._make_executor()
                return submit_analysis(self._executor, request)

    def _done(self, begun: AnalysisTry, future: Future[Pages]) -> None:
        with self._ending:
            with self._lock:
                if self._closed or self._running.get(begun.campaign_id) is not begun:
                    return
            try:
                pages = future.result()
                with self._coordinator.snapshot() as store:
                    newest = store.analysis_try(begun.campaign_id)
                if newest != begun:  # a server that stood still may have lost its lead
                    self._forget(begun)
                    return
                # Where nobody sees it.
                forms = dict(zip(REPORT_FORMS, pages, strict=True))
                self._coordinator.records.stage_report(begun.campaign_id, str(begun.token), forms)
            except CancelledError:
                return
            except Exception as error:  # noqa: BLE001 - the campaign must hear of it, whatever it is
                self._fails(begun, error)
                return
            if not self._repeated(begun, pages[0]):
                self._end(begun, None)

    def _fails(self, begun: AnalysisTry, error: Exception) -> None:
        """The analysis waits and is tried again, where that helps; else the campaign fails with the error."""
        setbacks = self._setbacks[begun.campaign_id]
        if isinstance(error, BrokenExecutor) and not setbacks["death"]:
            # A worker died and broke its whole pool: try once more; a second death fails the campaign.
            setbacks["death"] += 1
            self._forget(begun)
            self.start(begun.campaign_id)
        elif isinstance(error, WorkersAwayError):  # nobody can analyse now
            self._wait(begun, error, "workers")
        elif isinstance(error, RecordsChangedError):
            self._measure_again(begun, error)
        elif isinstance(error, StorageError):
            self._wait_for_storage(begun, error)
        else:
            with log_about(campaign=begun.campaign_id):
                self._end(begun, failure_of_analysis(error, begun.campaign_id))

    def _wait_for_storage(self, begun: AnalysisTry, error: StorageError, *, for_ever: bool = False) -> None:
        """Records cannot be read, or the report not written: a campaign of days must not fail for that.

        While a bucket is away, it is tried again without end, and these tries do not count. While a disk
        refuses, it is tried _DISK_TRIES times unless ``for_ever``; then a person mends the disk and retries
        the campaign.
        """
        setbacks = self._setbacks[begun.campaign_id]
        if self._bucket_is_away():
            self._wait(begun, error, "bucket")
        elif setbacks["disk"] >= _DISK_TRIES and not for_ever:
            self._end(begun, failure_of_analysis(error, begun.campaign_id))
        else:
            setbacks.pop("bucket", None)
            self._wait(begun, error, "disk")

    def _bucket_is_away(self) -> bool:
        records = self._coordinator.records
        try:
            if records.place is not None:
                records.probe()
        except StorageError:
            return True
        return False

    def _wait(self, begun: AnalysisTry, error: AssayError, setback: Setback) -> None:
        """The campaign says why its analysis waits, and it is tried again; the pauses grow."""
        campaign_id = begun.campaign_id
        self._forget(begun)
        self._setbacks[campaign_id][setback] += 1
        first, longest = (
            (_AWAY_PAUSE_SECONDS, _LONGEST_AWAY_PAUSE_SECONDS)
            if setback == "workers"
            else (_DISK_PAUSE_SECONDS, _LONGEST_DISK_PAUSE_SECONDS)
        )
        pause = min(first * 2 ** min(self._setbacks[campaign_id][setback] - 1, 10), longest)
        with log_about(campaign=campaign_id):
            _log.warning("the analysis waits, and is tried again in %g s: %s", pause, error)
        why = replace(failure_of_analysis(error, campaign_id), retryable=True)
        with contextlib.suppress(StorageError), self._coordinator.schedule() as schedule:
            if schedule.leave_analysis(begun):
                schedule.tell_analysis(campaign_id, why)
        with self._lock:
            if not self._closed:
                timer = self._later[campaign_id] = threading.Timer(pause, self.start, (campaign_id,))
                timer.daemon = True
                timer.start()

    def _repeated(self, begun: AnalysisTry, document: bytes) -> bool:
        """Plan further repeats if the campaign asks for less noise than the report states."""
        with self._coordinator.snapshot() as store:
            campaign = store.campaign(begun.campaign_id)
        rule = None if campaign is None else campaign.compiled.repeat
        if rule is None:
            return False
        from assay_report.reading import parse_report  # noqa: PLC0415 - few campaigns ask, and it takes 0.2 s

        repeats_by_key = repeats_wanted(parse_report(document).noise, rule)
        if not repeats_by_key:
            return False
        # Before the new runs can end, because they start another analysis.
        self._forget(begun)
        self._setbacks.pop(begun.campaign_id, None)
        with self._coordinator.schedule() as schedule:
            planned = schedule.is_newest(begun) and schedule.repeat(
                begun.campaign_id, repeats_by_key, begun.retried
            )
            if planned:
                schedule.leave_analysis(begun)
            return planned

    def _measure_again(self, begun: AnalysisTry, error: RecordsChangedError) -> None:
        """Files of runs changed since they were published: the campaign measures those runs again whose
        files this server finds so, too, and otherwise waits."""
        campaign_id = begun.campaign_id
        try:
            lost = self._changed_here(campaign_id, error)
            if not lost:
                self._fails(
                    begun, _reads_otherwise(error.files[0], isinstance(self._executor, ExecutorApart))
                )
                return
            self._forget(begun)
            lose_records(self._coordinator, lost)
            self._setbacks.pop(campaign_id, None)
            with self._coordinator.snapshot() as store:
                campaign = store.campaign(campaign_id)
            # If that failed the last of its runs, this does not start a second analysis.
            if campaign is not None and campaign.state is CampaignState.ANALYSING:
                self.start(campaign_id)
        except Exception as refused:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._fails(begun, refused)

    def _changed_here(self, campaign_id: str, error: RecordsChangedError) -> tuple[ChangedFile, ...]:
        """The files to measure again. Raises StorageError if this server's disk does not give one now, and
        none of the others differs."""
        changed = look_again(self._coordinator, error.files)
        differing = tuple(each for each in changed if each.what is not FileChange.UNREADABLE)
        if differing or not changed:
            return differing
        records = self._coordinator.records
        if records.place is not None:
            for copy in changed:
                records.let_go(copy.file)
            raise unreadable_copy(changed[0].file)
        if self._setbacks[campaign_id]["disk"] < _DISK_TRIES:
            raise StorageError(
                f"records/{changed[0].file}",
                "the server's disk does not give it",
                "check the disk; the analysis is tried again for about an hour, "
                "and then the file is measured again",
            )
        return tuple(changed)

    def _end(self, begun: AnalysisTry, why: Failure | None) -> None:
        """``why`` None: its report is staged."""
        campaign_id = begun.campaign_id
        # Before the end is recorded: where the campaign was tried again, this starts its next analysis.
        self._forget(begun)
        try:
            with self._coordinator.schedule() as schedule:
                newest = schedule.leave_analysis(begun)
                if newest:
                    if why is None:
                        self._coordinator.records.put_report(campaign_id, str(begun.token), REPORT_FORMS)
                    schedule.end_analysis(campaign_id, why, begun.retried)
        except StorageError as error:
            self._wait_for_storage(begun, error, for_ever=True)
            return
        self._setbacks.pop(campaign_id, None)
        with self._lock:
            self._later.pop(campaign_id, None)
        if newest:
            self._on_end(why is None)

    def _forget(self, begun: AnalysisTry) -> None:
        """This try is under way no longer, though a later one of the campaign may be."""
        with self._lock:
            if self._running.get(begun.campaign_id) is begun:
                del self._running[begun.campaign_id]


def _reads_otherwise(change: ChangedFile, apart: bool) -> WorkersAwayError | StorageError:
    """This server finds a file as published that the analysis found changed; ``apart``: on other machines."""
    if apart:
        return WorkersAwayError(
            f"run {change.run_id}",
            f"a worker found {change.file} {change.what}, and this server finds it as published",
            "let the workers see the server's records under the same path",
        )
    return StorageError(
        change.file,
        f"the analysis found it {change.what}, and this server then finds it as published",
        "check the server's disk; the analysis is tried again",
    )


def failure_of_analysis(error: BaseException, campaign_id: str) -> Failure:
    """The failure of an analysis, for good or for now."""
    subject = f"analysis of {campaign_id}"
    if isinstance(error, BrokenExecutor):
        return Failure(
            str(FailureClass.INTERNAL),
            subject,
            "its process died, most likely because the system ran out of memory and killed it",
            "lower analysis.memory_limit_bytes in the campaign file, or give the server more memory",
        )
    if isinstance(error, WorkersAwayError):
        return Failure(
            str(FailureClass.ANALYSIS_WORKERS), error.subject, error.explained, error.remedy, retryable=True
        )
    if isinstance(error, AssayError):
        failure_class = (
            FailureClass.DISK_FULL if isinstance(error, StorageError) else FailureClass.SERVER_REFUSED
        )
        if isinstance(error, InputError | LaunchTableError | CounterUnavailableError):
            failure_class = FailureClass.INPUT_UNREADABLE
        return Failure(str(failure_class), error.subject, error.explained, error.remedy)
    _log.error("%s failed", subject, exc_info=error)
    cause = f"{type(error).__name__}: {error}"
    return failure(FailureClass.INTERNAL, subject, cause)


def given_up(begun: AnalysisTry) -> Failure:
    """The failure of an analysis that outlived none of its servers."""
    return Failure(
        str(FailureClass.INTERNAL),
        f"analysis of {begun.campaign_id}",
        f"{begun.attempts - 1} servers in a row died, or stood still, while they made it",
        "look into their logs for memory that ran out; then try it again: assay lab retry",
    )
