"""Analyses of campaigns whose runs have ended, on an executor: here a process pool."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import multiprocessing
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

from assay_core.program_log import log_about
from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.failure import Failure, failure
from assay_core.records.validity_flag import ValidityFlag
from assay_report.reading import parse_report
from assay_sampling.counters.definitions import COST_COUNTERS
from assay_sampling.errors import (
    AssayError,
    CounterUnavailableError,
    InputError,
    LaunchTableError,
    StorageError,
)
from assay_sampling.launches.most_unseen import MOST_UNSEEN_TIME_PERCENT
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.validity import invalidates
from assay_server.analysis.runs.facts import run_facts
from assay_server.analysis.runs.intact import RecordsChangedError
from assay_server.analysis.runs.request import AnalysisRequest, FailedRun, RunData
from assay_server.campaigns.analysing.job import end_with_server
from assay_server.campaigns.analysing.parts import submit_analysis
from assay_server.campaigns.analysing.short_windows import launches_asked, with_short_windows
from assay_server.campaigns.ingest.lost_records import lose_records
from assay_server.campaigns.planning.repeats import repeats_wanted
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.store.model import Campaign, Run, Slice
from assay_server.store.protocols import MetadataReader, RecordStore

_log = logging.getLogger(__name__)


class WorkerPool:
    """A process pool (spawn, as fork breaks gRPC) whose workers die with this process, however it dies."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lifeline: Connection | None = None
        self._executor: ProcessPoolExecutor | None = None

    def __call__(self) -> Executor:
        """A new pool; ends the earlier one."""
        self.end()
        context = multiprocessing.get_context("spawn")
        receiver, self._lifeline = context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(
            self._workers, mp_context=context, initializer=end_with_server, initargs=(receiver,)
        )
        return self._executor

    def end(self) -> None:
        """End the workers at once."""
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


# A report that the disk refuses is tried again so often, over about five minutes.
_DISK_TRIES = 6
_DISK_PAUSE_SECONDS, _LONGEST_DISK_PAUSE_SECONDS = 5.0, 600.0


class Analyses:
    """Starts the analysis of each campaign whose runs have ended, and keeps its report.

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
        self._ending = threading.RLock()  # held while a result is stored
        self._executor: Executor | None = None
        # How often each campaign had been tried again by a person when its analysis began.
        self._running: dict[str, int] = {}
        self._broken: set[str] = set()
        # Campaigns whose result the disk refused: how often in a row, and what tries again.
        self._refused: dict[str, int] = {}
        self._later: dict[str, threading.Timer] = {}
        self._closed = False
        coordinator.listen(self._heard)

    @property
    def running(self) -> int:
        """How many campaigns are being analysed."""
        return len(self._running)

    def close(self) -> None:
        """Start and store nothing more; the next server restarts running analyses."""
        with self._lock:
            self._closed = True
            for timer in self._later.values():
                timer.cancel()
        with self._ending:
            pass

    def resume(self) -> None:
        """Restart the analyses that an earlier server did not finish."""
        with self._coordinator.snapshot() as store:
            waiting = [c.campaign_id for c in store.campaigns() if c.state is CampaignState.ANALYSING]
        for campaign_id in waiting:
            self.start(campaign_id)

    def _heard(self, effects: Effects) -> None:
        for campaign_id in sorted(effects.analyse):
            if self._starter is None:
                self.start(campaign_id)
            else:
                with contextlib.suppress(RuntimeError):  # the server ends, and the next one starts it
                    self._starter.submit(self._start_if_due, campaign_id)

    def _start_if_due(self, campaign_id: str) -> None:
        """Start it, unless a person has cancelled or retried the campaign since its last run ended."""
        with contextlib.suppress(StorageError), self._coordinator.snapshot() as store:
            campaign = store.campaign(campaign_id)
            if campaign is None or campaign.state is not CampaignState.ANALYSING:
                return
        self.start(campaign_id)

    def start(self, campaign_id: str) -> None:
        """Analyse a campaign, unless an analysis of it is running."""
        with self._lock:
            if self._closed or campaign_id in self._running:
                return
            self._running[campaign_id] = retried = 0
        try:
            with self._coordinator.snapshot() as store:
                campaign = store.campaign(campaign_id)
                self._running[campaign_id] = retried = 0 if campaign is None else campaign.retried
                request = analysis_request(store, campaign_id, self._coordinator.records)
            future = self.submit(request)
        except Exception as error:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._end(campaign_id, _failure_of(error, campaign_id), retried)
            return
        future.add_done_callback(partial(self._done, campaign_id, retried))

    def submit(self, request: AnalysisRequest) -> Future[tuple[bytes, bytes]]:
        """Start an analysis, whose report is not stored, on the executor; a broken one is replaced."""
        with self._lock:
            if self._executor is None:
                self._executor = self._make_executor()
            try:
                return submit_analysis(self._executor, request)
            except BrokenExecutor:
                self._executor = self._make_executor()
                return submit_analysis(self._executor, request)

    def _done(self, campaign_id: str, retried: int, future: Future[tuple[bytes, bytes]]) -> None:
        with self._ending:
            with self._lock:
                if self._closed:
                    return
            self._keep(campaign_id, retried, future)

    def _keep(self, campaign_id: str, retried: int, future: Future[tuple[bytes, bytes]]) -> None:
        try:
            document, page = future.result()
            if not self._written(campaign_id, retried, document, page):
                return
        except CancelledError:
            return
        except BrokenExecutor as error:
            self._again_or_end(campaign_id, retried, error)
        except RecordsChangedError as error:
            self._measure_again(campaign_id, retried, error)
        except Exception as error:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._end(campaign_id, _failure_of(error, campaign_id), retried)
        else:
            if not self._repeated(campaign_id, retried, document):
                self._end(campaign_id, None, retried)

    def _written(self, campaign_id: str, retried: int, document: bytes, page: bytes) -> bool:
        """Store the report; False if the disk refused it, and the analysis is made again later.

        Raises StorageError if it refused all tries: a person who has freed space tries the campaign again.
        """
        try:
            self._coordinator.records.write_report(campaign_id, "json", document)
            self._coordinator.records.write_report(campaign_id, "html", page)
        except StorageError as error:
            if self._refused.get(campaign_id, 0) >= _DISK_TRIES:
                raise
            self._forget(campaign_id, retried)
            self._start_later(campaign_id, error)
            return False
        return True

    def _start_later(self, campaign_id: str, error: StorageError) -> None:
        """The disk refused a result: a campaign of days must not fail for that. The pauses grow."""
        with self._lock:
            if self._closed:
                return
            refused = self._refused[campaign_id] = self._refused.get(campaign_id, 0) + 1
            pause = min(_DISK_PAUSE_SECONDS * 2 ** (refused - 1), _LONGEST_DISK_PAUSE_SECONDS)
            timer = self._later[campaign_id] = threading.Timer(pause, self.start, (campaign_id,))
            timer.daemon = True
            timer.start()
        _log.warning("the result of %s is not stored, and tried again in %g s: %s", campaign_id, pause, error)

    def _repeated(self, campaign_id: str, retried: int, document: bytes) -> bool:
        """Plan further repeats if the campaign asks for less noise than the report states."""
        with self._coordinator.snapshot() as store:
            campaign = store.campaign(campaign_id)
        rule = None if campaign is None else campaign.compiled.repeat
        wanted = {} if rule is None else repeats_wanted(parse_report(document).noise, rule)
        if not wanted:
            return False
        # Before the new runs can end, because they start another analysis.
        self._forget(campaign_id, retried)
        with self._coordinator.schedule() as schedule:
            return schedule.repeat(campaign_id, wanted, retried)

    def _measure_again(self, campaign_id: str, retried: int, error: RecordsChangedError) -> None:
        """Files of runs changed since they were published, so the campaign measures those runs again."""
        self._forget(campaign_id, retried)
        try:
            lose_records(self._coordinator, error.files)
            with self._coordinator.snapshot() as store:
                campaign = store.campaign(campaign_id)
            # If that failed the last of its runs, this does not start a second analysis.
            if campaign is not None and campaign.state is CampaignState.ANALYSING:
                self.start(campaign_id)
        except Exception as refused:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._end(campaign_id, _failure_of(refused, campaign_id), retried)

    def _again_or_end(self, campaign_id: str, retried: int, error: BrokenExecutor) -> None:
        """A worker died and broke its whole pool: try once more; a second death fails the campaign."""
        with self._lock:
            first = campaign_id not in self._broken
            self._broken.add(campaign_id)
        self._forget(campaign_id, retried)
        with log_about(campaign=campaign_id):
            if first:
                self.start(campaign_id)
            else:
                self._end(campaign_id, _failure_of(error, campaign_id), retried)

    def _end(self, campaign_id: str, why: Failure | None, retried: int) -> None:
        # Before the end is recorded: where the campaign was tried again, this starts its next analysis.
        self._forget(campaign_id, retried)
        try:
            with self._coordinator.schedule() as schedule:
                schedule.end_analysis(campaign_id, why, retried)
        except StorageError as error:
            self._start_later(campaign_id, error)
            return
        with self._lock:
            self._refused.pop(campaign_id, None)
            self._later.pop(campaign_id, None)
        self._on_end(why is None)

    def _forget(self, campaign_id: str, retried: int) -> None:
        """This analysis runs no longer; a later one of the campaign still does."""
        with self._lock:
            if self._running.get(campaign_id) == retried:
                del self._running[campaign_id]


def analysis_request(
    store: MetadataReader, campaign_id: str, records: RecordStore, *, windows_so_far: bool = False
) -> AnalysisRequest:
    """The request for a campaign's analysis: its finished runs in order, and those without data.

    ``windows_so_far``: with detailed runs under way, as far as their slices go without a gap: they are
    shorter windows of the same workloads.
    """
    campaign = store.campaign(campaign_id)
    if campaign is None:
        raise StorageError(campaign_id, "the store lost this campaign")
    runs = store.runs(campaign_id)
    settings = campaign.compiled.analysis
    windows = _windows_so_far(store, runs) if windows_so_far else {}
    there = [run for run in runs if run.state is RunState.DONE or run.run_id in windows]
    known = {run.run_id for run in there}
    failed_runs = tuple(_failed_run(run) for run in runs if run.run_id not in known)
    return AnalysisRequest(
        campaign_id=campaign_id,
        campaign_name=campaign.name,
        owner_name=campaign.owner_name,
        project=campaign.project,
        synthetic=campaign.synthetic,
        seed=settings.seed,
        methods=settings.methods,
        reference=settings.reference,
        memory_limit_bytes=settings.memory_limit_bytes,
        ranks=settings.ranks,
        unseen_percent=_most_unseen(campaign),
        runs=_paired(
            failed_runs,
            (
                _timed(_run_data(run, campaign, store, records), store)
                if _overheads_asked(run, runs)
                else _run_data(run, campaign, store, records, windows.get(run.run_id))
                for run in there
            ),
        ),
        failed_runs=failed_runs,
    )


def _most_unseen(campaign: Campaign) -> float:
    """The share of light time that its windows may leave unseen."""
    slicing = campaign.compiled.slicing
    asked = None if slicing is None else slicing.unseen_percent
    return MOST_UNSEEN_TIME_PERCENT if asked is None else asked


def _paired(failed_runs: Sequence[FailedRun], runs: Iterable[RunData]) -> tuple[RunData, ...]:
    """The runs; those of features hold the runs that measured their cycles apart."""
    from assay_server.analysis.runs.cycles_apart import paired  # noqa: PLC0415 - it loads the analysis

    return paired(with_short_windows(tuple(runs)), failed_runs)


def _windows_so_far(store: MetadataReader, runs: Sequence[Run]) -> dict[str, list[Slice]]:
    """The first published slices of detailed runs under way, up to the first gap, by run."""
    found = {}
    for run in runs:
        under_way = run.state in (RunState.RUNNING, RunState.WAITING) and run.level == "detailed"
        if not under_way or run.plan is not None:  # chosen slices stand for the workload only together
            continue
        pieces = list(itertools.takewhile(lambda piece: piece.file, _by_launch(store.slices(run.run_id))))
        if any(piece.launches for piece in pieces):
            found[run.run_id] = pieces
    return found


def _by_launch(slices: Iterable[Slice]) -> list[Slice]:
    """Slices that were chosen from a light run are measured in another order than that of their launches."""
    return sorted(slices, key=lambda piece: (piece.launch_skip, piece.index))


def _run_data(
    run: Run,
    campaign: Campaign,
    store: MetadataReader,
    records: RecordStore,
    so_far: list[Slice] | None = None,
) -> RunData:
    """The data of a run; ``so_far``: only these of its slices."""
    slices = so_far or _by_launch(store.slices(run.run_id))
    kept = [piece for piece in slices if piece.file]  # slices behind the end of the workload have no file
    return RunData(
        run_id=run.run_id,
        workload=run.workload,
        device_kind=run.device_kind,
        level=run.level,
        condition=run.condition,
        repeat=run.repeat,
        files=tuple(records.location(piece.file) for piece in kept),
        file_hashes=tuple(piece.content_hash for piece in kept),
        flags=tuple(
            (flag.name, flag.detail, flag.invalidates) for flag in (*run.flags, *capture_flags(slices))
        ),
        synthetic=campaign.synthetic,
        launches=sum(piece.launches for piece in slices),
        content_hash=_content_hash([piece.content_hash for piece in kept]),
        live=run.command is not None,
        under_mps=run.under_mps,
        plan=run.plan,
        slice_launches=tuple(piece.launches for piece in slices),
        launches_asked=launches_asked(slices),
        costs_only=run.level == "detailed" and set(run.counters) == set(COST_COUNTERS),
        facts=run_facts(
            store.published_facts(run.run_id), measured=run.command is not None and not campaign.synthetic
        ),
    )


def _overheads_asked(run: Run, runs: Sequence[Run]) -> bool:
    """Whether a run is compared with a bare run. Otherwise attempts' logs, which are long, are not read."""
    return run.command is not None and any(other.level == "bare" for other in runs)


def _timed(run: RunData, store: MetadataReader) -> RunData:
    """The run with the times of its published attempts."""
    logs = [a.log for a in store.attempts(run.run_id) if a.state is AttemptState.PUBLISHED]
    busy = [(log.telemetry or {}).get("busy_seconds") for log in logs]
    known = [seconds for seconds in busy if isinstance(seconds, int | float)]
    return replace(
        run,
        executions=len(logs),
        wall_seconds=sum(log.wall_seconds for log in logs),
        busy_seconds=float(sum(known)) if known and len(known) == len(logs) else None,
    )


def capture_flags(slices: Sequence[Slice]) -> Iterator[ValidityFlag]:
    """Flags that only a run's slices, in the order of their launches, together show: launches are missing
    before later ones.

    Each kind of flag appears once, with the first slice that shows it.
    """
    with_launches = [place for place, piece in enumerate(slices) if piece.launches]
    last = with_launches[-1] if with_launches else -1
    before = slices[: max(last, 0)]
    empty = next((piece.index for piece in before if not piece.launches), None)
    if empty is not None:
        detail = f"slice {empty} has no launches, and slice {slices[last].index} has some"
        yield ValidityFlag("empty_capture", detail, invalidates("empty_capture"))
    short = next((piece for piece in before if 0 < piece.launches < piece.launch_count), None)
    if short is not None:
        had = f"{short.launches:,} of {short.launch_count:,} launches"
        detail = f"slice {short.index} has {had}, and slice {slices[last].index} has some"
        yield ValidityFlag("slice_gap", detail, invalidates("slice_gap"))


def _content_hash(hashes: Sequence[str]) -> str:
    """The hash of a run's only file; for several files, the hash of their hashes in order."""
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.blake2b("+".join(hashes).encode(), digest_size=32).hexdigest()


def _failed_run(run: Run) -> FailedRun:
    return FailedRun(
        run.run_id,
        run.state,
        run.failure,
        run.workload,
        run.device_kind,
        run.level,
        run.condition,
        run.repeat,
    )


def _failure_of(error: BaseException, campaign_id: str) -> Failure:
    """The failure of an analysis."""
    subject = f"analysis of {campaign_id}"
    if isinstance(error, BrokenExecutor):
        return Failure(
            str(FailureClass.INTERNAL),
            subject,
            "its process died, most likely because the system ran out of memory and killed it",
            "lower analysis.memory_limit_bytes in the campaign file, or give the server more memory",
        )
    if isinstance(error, AssayError):
        return Failure(_class_of(error), error.subject, error.explained, error.remedy)
    _log.error("%s failed", subject, exc_info=error)
    cause = f"{type(error).__name__}: {error}"
    return failure(FailureClass.INTERNAL, subject, cause)


def _class_of(error: AssayError) -> str:
    if isinstance(error, InputError | LaunchTableError | CounterUnavailableError):
        return str(FailureClass.INPUT_UNREADABLE)
    if isinstance(error, StorageError):
        return str(FailureClass.DISK_FULL)
    return str(FailureClass.SERVER_REFUSED)
