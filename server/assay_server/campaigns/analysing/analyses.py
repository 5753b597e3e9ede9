"""Analyses of campaigns whose runs have ended: leased from the database, made on an executor, kept once.

Any server may take any analysis. It renews the lease while the analysis is made; if it dies, another server
goes on when the lease has ended, with the workloads that are not finished. The same request gives the same
report.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

from assay_core.program_log import log_about
from assay_core.records.campaign import CampaignState, ChangedFile
from assay_core.records.failure import Failure
from assay_report.reading import parse_report
from assay_sampling.errors import AssayError, StorageError
from assay_server.analysis.runs.intact import RecordsChangedError, unreadable_copy
from assay_server.analysis.runs.request import AnalysisRequest
from assay_server.campaigns.analysing.executors.interface import ExecutorApart, WorkersAwayError
from assay_server.campaigns.analysing.failing import failure_of_analysis, given_up
from assay_server.campaigns.analysing.job import Pages
from assay_server.campaigns.analysing.parts import submit_analysis
from assay_server.campaigns.analysing.request_builder import analysis_request
from assay_server.campaigns.analysing.revalidate import look_again
from assay_server.campaigns.ingest.lost_records import lose_records
from assay_server.campaigns.planning.repeats import repeats_wanted
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.store.model import Analysis
from assay_server.threads.repeating import repeated_in_thread

_log = logging.getLogger(__name__)

LEASE_MS = 30_000
_TICK_SECONDS = 5.0
# An analysis whose servers died so often in a row is not given to a further one.
MOST_LEASES = 20
# What a disk refuses, to be read or written, is tried again so often, over about an hour.
_DISK_TRIES = 12
_DISK_PAUSE_SECONDS, _LONGEST_DISK_PAUSE_SECONDS = 5.0, 600.0
# Workers that are away are asked for again as long as it takes.
_AWAY_PAUSE_SECONDS, _LONGEST_AWAY_PAUSE_SECONDS = 2.0, 60.0


class Analyses:
    """Makes the analysis of each campaign whose runs have ended, and keeps its report.

    ``make_executor`` makes an executor, and a new one after the earlier one broke. ``on_end`` hears of each
    analysis that has ended, and whether it made a report. ``starter`` starts the analyses of campaigns whose
    last run ends, so that the agent of that run need not wait; None: whoever ends the run does. ``holder``
    names this process in leases.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        make_executor: Callable[[], Executor],
        on_end: Callable[[bool], None] = lambda done: None,
        starter: Executor | None = None,
        *,
        holder: str = "",
    ) -> None:
        self._coordinator = coordinator
        self._on_end = on_end
        self._make_executor = make_executor
        self._starter = starter
        self._holder = holder or f"{socket.gethostname()}-{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._making = threading.Lock()  # held while an executor is made, which may take seconds
        self._ending = threading.RLock()  # held while a result is stored
        self._executor: Executor | None = None
        # The analyses that are made here, with their leases; None: the lease is being asked for.
        self._running: dict[str, Analysis | None] = {}
        self._broken: set[str] = set()
        # Campaigns of which a disk refused something, or whose bucket or workers were away: how often in a
        # row, and what tries again.
        self._refused: Counter[str] = Counter()
        self._bucket_away: Counter[str] = Counter()
        self._away: Counter[str] = Counter()
        self._later: dict[str, threading.Timer] = {}
        self._closed = False
        coordinator.listen(self._heard)

    @property
    def running(self) -> int:
        """How many campaigns are being analysed here."""
        return len(self._running)

    def close(self) -> None:
        """Start and store nothing more; the next server may take the analyses at once."""
        with self._lock:
            self._closed = True
            held = [lease for lease in self._running.values() if lease is not None]
            for timer in self._later.values():
                timer.cancel()
        with self._ending:
            if held:
                with contextlib.suppress(StorageError), self._coordinator.schedule() as schedule:
                    for lease in held:
                        schedule.leave_analysis(lease)

    def resume(self) -> None:
        """Take the analyses that an earlier server did not finish."""
        with self._coordinator.schedule() as schedule:
            schedule.store.free_analyses()
        self.look()

    def look(self) -> None:
        """Renew the leases that are held here, and take what nobody holds. Raises StorageError."""
        with self._lock:
            held = [lease for lease in self._running.values() if lease is not None]
        if held:
            with self._coordinator.schedule() as schedule:
                taken = [lease for lease in held if not schedule.renew_analysis(lease, LEASE_MS)]
            for lease in taken:
                self._lost(lease)
        with self._coordinator.snapshot() as store:
            due = store.due_analyses(self._coordinator.clock.now_ms())
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
        """Analyse a campaign, unless somebody does already, or a person has cancelled or retried it."""
        with self._lock:
            if self._closed or campaign_id in self._running:
                return
            self._running[campaign_id] = None
            self._later.pop(campaign_id, None)
        lease = self._leased(campaign_id)
        with self._lock:
            if lease is None:
                self._running.pop(campaign_id, None)
                return
            self._running[campaign_id] = lease
        if lease.attempts > MOST_LEASES:
            self._end(lease, given_up(lease))
            return
        try:
            with self._coordinator.snapshot() as store:
                request = analysis_request(store, campaign_id, self._coordinator.records)
            future = self.submit(request)
        except WorkersAwayError as error:
            self._wait_for_workers(lease, error)
        except StorageError as error:
            self._wait_for_storage(lease, error)
        except Exception as error:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._end(lease, failure_of_analysis(error, campaign_id))
        else:
            self._goes_on(lease)
            future.add_done_callback(partial(self._done, lease))

    def _leased(self, campaign_id: str) -> Analysis | None:
        try:
            with self._coordinator.schedule() as schedule:
                return schedule.lease_analysis(campaign_id, self._holder, LEASE_MS)
        except StorageError as error:
            _log.warning("the analysis of %s is not begun, and tried again soon: %s", campaign_id, error)
            return None

    def _goes_on(self, lease: Analysis) -> None:
        """It waited for something that is there again."""
        self._away.pop(lease.campaign_id, None)
        if lease.failure is not None:
            with contextlib.suppress(StorageError), self._coordinator.schedule() as schedule:
                schedule.tell_analysis(lease, None)

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

    def _done(self, lease: Analysis, future: Future[Pages]) -> None:
        with self._ending:
            with self._lock:
                if self._closed or self._running.get(lease.campaign_id) is not lease:
                    return
            self._keep(lease, future)

    def _keep(self, lease: Analysis, future: Future[Pages]) -> None:
        try:
            pages = future.result()
            if not self._has(lease):
                return
            # Where nobody sees it.
            forms = dict(zip(_FORMS, pages, strict=True))
            self._coordinator.records.stage_report(lease.campaign_id, str(lease.token), forms)
        except CancelledError:
            return
        except BrokenExecutor as error:
            self._again_or_end(lease, error)
        except WorkersAwayError as error:
            self._wait_for_workers(lease, error)
        except RecordsChangedError as error:
            self._measure_again(lease, error)
        except StorageError as error:
            self._wait_for_storage(lease, error)
        except Exception as error:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._end(lease, failure_of_analysis(error, lease.campaign_id))
        else:
            if not self._repeated(lease, pages[0]):
                self._end(lease, None)

    def _has(self, lease: Analysis) -> bool:
        """Whether nobody has taken the analysis from this server; after that, its report is of no use."""
        with self._coordinator.snapshot() as store:
            known = store.analysis(lease.campaign_id)
        if known is not None and known.token == lease.token:
            return True
        self._lost(lease)
        return False

    def _lost(self, lease: Analysis) -> None:
        if self._forget(lease):
            _log.warning("another server took the analysis of %s from this one", lease.campaign_id)

    def _wait_for_storage(self, lease: Analysis, error: StorageError) -> None:
        """Records cannot be read, or the report not written: a campaign of days must not fail for that.

        While a bucket is away, it is tried again without end, and these tries do not count. While a disk
        refuses, it is tried _DISK_TRIES times; then a person mends the disk and retries the campaign.
        """
        away = self._records_are_away()
        if not away and self._refused[lease.campaign_id] >= _DISK_TRIES:
            self._end(lease, failure_of_analysis(error, lease.campaign_id))
        else:
            self._start_after_refusal(lease, error, away=away)

    def _records_are_away(self) -> bool:
        records = self._coordinator.records
        if records.place is None:
            return False
        try:
            records.probe()
        except StorageError:
            return True
        return False

    def _start_after_refusal(self, lease: Analysis, error: StorageError, *, away: bool) -> None:
        """The campaign says why its analysis waits; the pauses grow. ``away``: the bucket is."""
        self._forget(lease)
        if not away:
            self._bucket_away.pop(lease.campaign_id, None)
        counted = self._bucket_away if away else self._refused
        counted[lease.campaign_id] += 1
        pause = _DISK_PAUSE_SECONDS * 2 ** min(counted[lease.campaign_id] - 1, 10)
        pause = min(pause, _LONGEST_DISK_PAUSE_SECONDS)
        self._pause(lease, pause, error)

    def _forget_refusals(self, campaign_id: str) -> None:
        """What storage refused until now does not count against the next analysis."""
        self._refused.pop(campaign_id, None)
        self._bucket_away.pop(campaign_id, None)

    def _wait_for_workers(self, lease: Analysis, error: WorkersAwayError) -> None:
        """Nobody can analyse now: the campaign says why, and it is tried again until somebody can."""
        self._forget(lease)
        self._away[lease.campaign_id] += 1
        pause = _AWAY_PAUSE_SECONDS * 2 ** min(self._away[lease.campaign_id] - 1, 10)
        pause = min(pause, _LONGEST_AWAY_PAUSE_SECONDS)
        self._pause(lease, pause, error)

    def _pause(self, lease: Analysis, pause: float, error: AssayError) -> None:
        with log_about(campaign=lease.campaign_id):
            _log.warning("the analysis waits, and is tried again in %g s: %s", pause, error)
        why = replace(failure_of_analysis(error, lease.campaign_id), retryable=True)
        with contextlib.suppress(StorageError), self._coordinator.schedule() as schedule:
            if schedule.leave_analysis(lease, why=why, wait_ms=int(pause * 1000)):
                schedule.tell_analysis(lease, why)
        self._start_later(lease, pause)

    def _start_later(self, lease: Analysis, pause: float) -> None:
        with self._lock:
            if self._closed:
                return
            timer = self._later[lease.campaign_id] = threading.Timer(pause, self.start, (lease.campaign_id,))
            timer.daemon = True
            timer.start()

    def _repeated(self, lease: Analysis, document: bytes) -> bool:
        """Plan further repeats if the campaign asks for less noise than the report states."""
        with self._coordinator.snapshot() as store:
            campaign = store.campaign(lease.campaign_id)
        rule = None if campaign is None else campaign.compiled.repeat
        wanted = {} if rule is None else repeats_wanted(parse_report(document).noise, rule)
        if not wanted:
            return False
        # Before the new runs can end, because they start another analysis.
        self._forget(lease)
        self._forget_refusals(lease.campaign_id)
        with self._coordinator.schedule() as schedule:
            return schedule.repeat(lease.campaign_id, wanted, lease.retried, lease)

    def _measure_again(self, lease: Analysis, error: RecordsChangedError) -> None:
        """Files of runs changed since they were published: the campaign measures those runs again whose
        files this server finds so, too, and otherwise waits."""
        campaign_id = lease.campaign_id
        try:
            lost = self._changed_here(campaign_id, error)
            if not lost:
                if isinstance(self._executor, ExecutorApart):
                    self._wait_for_workers(lease, _reads_otherwise(error))
                else:
                    self._wait_for_storage(lease, _given_again(error))
                return
            self._forget(lease)
            lose_records(self._coordinator, lost)
            self._forget_refusals(campaign_id)
            with self._coordinator.snapshot() as store:
                campaign = store.campaign(campaign_id)
            # If that failed the last of its runs, this does not start a second analysis.
            if campaign is not None and campaign.state is CampaignState.ANALYSING:
                self.start(campaign_id)
        except StorageError as refused:
            self._wait_for_storage(lease, refused)
        except Exception as refused:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._end(lease, failure_of_analysis(refused, campaign_id))

    def _changed_here(self, campaign_id: str, error: RecordsChangedError) -> tuple[ChangedFile, ...]:
        """The files to measure again. Raises StorageError if this server's disk does not give one now, and
        none of the others differs."""
        seen = look_again(self._coordinator, error.files)
        if seen.differing or not seen.unreadable:
            return seen.differing
        records = self._coordinator.records
        if records.place is not None:
            for copy in seen.unreadable:
                records.let_go(copy.file)
            raise unreadable_copy(seen.unreadable[0].file)
        if self._refused[campaign_id] < _DISK_TRIES:
            raise _unreadable_now(seen.unreadable[0])
        return seen.unreadable

    def _again_or_end(self, lease: Analysis, error: BrokenExecutor) -> None:
        """A worker died and broke its whole pool: try once more; a second death fails the campaign."""
        with self._lock:
            first = lease.campaign_id not in self._broken
            self._broken.add(lease.campaign_id)
        with log_about(campaign=lease.campaign_id):
            if first:
                self._forget(lease)
                self.start(lease.campaign_id)
            else:
                self._end(lease, failure_of_analysis(error, lease.campaign_id))

    def _end(self, lease: Analysis, why: Failure | None) -> None:
        """``why`` None: its report is staged."""
        campaign_id = lease.campaign_id
        # Before the end is recorded: where the campaign was tried again, this starts its next analysis.
        self._forget(lease)
        try:
            with self._coordinator.schedule() as schedule:
                held = schedule.holds_analysis(lease)
                if why is None and held:
                    # Here, while nobody else can take the analysis.
                    self._coordinator.records.put_report(campaign_id, str(lease.token), _FORMS)
                schedule.end_analysis(campaign_id, why, lease.retried, lease)
        except StorageError as error:
            self._start_after_refusal(lease, error, away=self._records_are_away())
            return
        self._forget_refusals(campaign_id)
        with self._lock:
            self._later.pop(campaign_id, None)
        if held:
            self._on_end(why is None)

    def _forget(self, lease: Analysis) -> bool:
        """This analysis is made here no longer, though a later one of the campaign may be; whether it was."""
        with self._lock:
            found = self._running.get(lease.campaign_id) is lease
            if found:
                del self._running[lease.campaign_id]
            return found


_FORMS = ("json", "html")


def _reads_otherwise(error: RecordsChangedError) -> WorkersAwayError:
    return WorkersAwayError(
        error.subject,
        f"a worker found {error.files[0].file} {error.files[0].what}, and this server finds it as published",
        "let the workers see the server's records under the same path",
    )


def _given_again(error: RecordsChangedError) -> StorageError:
    found = error.files[0]
    return StorageError(
        found.file,
        f"the analysis found it {found.what}, and this server then finds it as published",
        "check the server's disk; the analysis is tried again",
    )


def _unreadable_now(found: ChangedFile) -> StorageError:
    return StorageError(
        f"records/{found.file}",
        "the server's disk does not give it",
        "check the disk; the analysis is tried again for about an hour, and then the file is measured again",
    )
