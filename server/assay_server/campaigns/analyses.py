"""Analyses of campaigns whose runs have ended, on an executor: a process pool here, a cluster at scale."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

from assay_sampling.counters import COST_COUNTERS
from assay_sampling.errors import (
    AssayError,
    CounterUnavailableError,
    InputError,
    LaunchTableError,
    StorageError,
)
from assay_sampling.failures import FailureClass, failure
from assay_sampling.validity import invalidates
from assay_server.analysis.intact import RecordsChangedError
from assay_server.analysis.request import AnalysisRequest, FailedRun, RunData
from assay_server.campaigns.analysis_job import end_with_server
from assay_server.campaigns.analysis_parts import submit_analysis
from assay_server.campaigns.coordinator import Coordinator
from assay_server.campaigns.lost_records import lose_records
from assay_server.campaigns.repeats import repeats_wanted
from assay_server.campaigns.retry import failure_record
from assay_server.campaigns.short_windows import launches_asked, with_short_windows
from assay_server.campaigns.spec import load_campaign
from assay_server.campaigns.transitions import Effects
from assay_server.store.model import (
    AttemptState,
    Campaign,
    CampaignState,
    FailureRecord,
    Flag,
    Run,
    RunState,
    Slice,
)
from assay_server.store.protocols import MetadataReader

_log = logging.getLogger(__name__)


class WorkerPool:
    """A process pool (spawn, never fork under gRPC) whose workers die with this process, however it dies."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lifeline: Connection | None = None
        self._executor: ProcessPoolExecutor | None = None

    def __call__(self) -> Executor:
        """A fresh pool; the one before is ended."""
        self.end()
        context = multiprocessing.get_context("spawn")
        receiver, self._lifeline = context.Pipe(duplex=False)
        self._executor = ProcessPoolExecutor(
            self._workers, mp_context=context, initializer=end_with_server, initargs=(receiver,)
        )
        return self._executor

    def end(self) -> None:
        """End the workers at once, whatever they do."""
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


class Analyses:
    """Starts the analysis of each campaign whose runs have ended, and keeps its report.

    ``make_executor`` gives an executor, and a fresh one when the one before broke.
    """

    def __init__(self, coordinator: Coordinator, make_executor: Callable[[], Executor]) -> None:
        self._coordinator = coordinator
        self._make_executor = make_executor
        self._lock = threading.Lock()
        self._ending = threading.RLock()  # held while a result is stored
        self._executor: Executor | None = None
        self._running: set[str] = set()
        self._broken: set[str] = set()
        self._closed = False
        coordinator.listen(self._heard)

    def close(self) -> None:
        """Start and store nothing more; analyses under way are taken up again by the next server."""
        with self._lock:
            self._closed = True
        with self._ending:
            pass

    def resume(self) -> None:
        """Take up the analyses that an earlier server did not end."""
        with self._coordinator.snapshot() as store:
            waiting = [c.campaign_id for c in store.campaigns() if c.state is CampaignState.ANALYSING]
        for campaign_id in waiting:
            self.start(campaign_id)

    def _heard(self, effects: Effects) -> None:
        for campaign_id in sorted(effects.analyse):
            self.start(campaign_id)

    def start(self, campaign_id: str) -> None:
        """Analyse a campaign, unless that is under way."""
        with self._lock:
            if self._closed or campaign_id in self._running:
                return
            self._running.add(campaign_id)
        try:
            with self._coordinator.snapshot() as store:
                request = analysis_request(store, campaign_id, self._path)
            future = self._submit(request)
        except Exception as error:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._end(campaign_id, _failure_of(error, campaign_id))
            return
        future.add_done_callback(partial(self._done, campaign_id))

    def _path(self, piece: Slice) -> str:
        return str(self._coordinator.records.path(piece.file))

    def _submit(self, request: AnalysisRequest) -> Future[tuple[bytes, bytes]]:
        with self._lock:
            if self._executor is None:
                self._executor = self._make_executor()
            try:
                return submit_analysis(self._executor, request)
            except BrokenExecutor:
                self._executor = self._make_executor()
                return submit_analysis(self._executor, request)

    def _done(self, campaign_id: str, future: Future[tuple[bytes, bytes]]) -> None:
        with self._ending:
            with self._lock:
                if self._closed:
                    return
            self._keep(campaign_id, future)

    def _keep(self, campaign_id: str, future: Future[tuple[bytes, bytes]]) -> None:
        try:
            document, page = future.result()
            self._coordinator.records.write_report(campaign_id, "json", document)
            self._coordinator.records.write_report(campaign_id, "html", page)
        except CancelledError:
            return
        except BrokenExecutor as error:
            self._again_or_end(campaign_id, error)
        except RecordsChangedError as error:
            self._measure_again(campaign_id, error)
        except Exception as error:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._end(campaign_id, _failure_of(error, campaign_id))
        else:
            if not self._repeated(campaign_id, document):
                self._end(campaign_id, None)

    def _repeated(self, campaign_id: str, document: bytes) -> bool:
        """Plan further repeats where the campaign asks for less noise than the report states."""
        with self._coordinator.snapshot() as store:
            campaign = store.campaign(campaign_id)
        if campaign is None or "repeat:" not in campaign.text:  # most campaigns need not be read again
            return False
        spec = load_campaign(campaign.text, campaign.file_name or "campaign file").repeat
        wanted = repeats_wanted(json.loads(document), spec) if spec is not None else {}
        if not wanted:
            return False
        # Before the runs can end: their analysis is another one.
        with self._lock:
            self._running.discard(campaign_id)
        with self._coordinator.schedule() as schedule:
            return schedule.repeat(campaign_id, wanted)

    def _measure_again(self, campaign_id: str, error: RecordsChangedError) -> None:
        """Files of runs are not what was published, so the campaign goes on with measuring those runs."""
        with self._lock:
            self._running.discard(campaign_id)
        try:
            lose_records(self._coordinator, error.files)
            with self._coordinator.snapshot() as store:
                campaign = store.campaign(campaign_id)
            # Where the last of its runs failed with that, this starts nothing that is not under way.
            if campaign is not None and campaign.state is CampaignState.ANALYSING:
                self.start(campaign_id)
        except Exception as refused:  # noqa: BLE001 - the campaign must hear of it, whatever it is
            self._end(campaign_id, _failure_of(refused, campaign_id))

    def _again_or_end(self, campaign_id: str, error: BrokenExecutor) -> None:
        """A worker died, and took along whatever shared its pool: once more, and then it is this campaign."""
        with self._lock:
            first = campaign_id not in self._broken
            self._broken.add(campaign_id)
            self._running.discard(campaign_id)
        if first:
            self.start(campaign_id)
        else:
            self._end(campaign_id, _failure_of(error, campaign_id))

    def _end(self, campaign_id: str, why: FailureRecord | None) -> None:
        try:
            with self._coordinator.schedule() as schedule:
                schedule.end_analysis(campaign_id, why)
        except StorageError as error:
            _log.warning("the analysis of %s ends with the next start of the server: %s", campaign_id, error)
        with self._lock:
            self._running.discard(campaign_id)


def analysis_request(
    store: MetadataReader, campaign_id: str, path: Callable[[Slice], str]
) -> AnalysisRequest:
    """What the analysis of a campaign is asked: its finished runs in order, and those without data."""
    campaign = store.campaign(campaign_id)
    if campaign is None:
        raise StorageError(campaign_id, "the store lost this campaign")
    runs = store.runs(campaign_id)
    settings = campaign.analysis
    failed_runs = tuple(_failed_run(run) for run in runs if run.state is not RunState.DONE)
    return AnalysisRequest(
        campaign_id=campaign_id,
        campaign_name=campaign.name,
        synthetic=campaign.synthetic,
        seed=settings.seed,
        methods=settings.methods,
        reference=settings.reference,
        memory_limit_bytes=settings.memory_limit_bytes,
        runs=_paired(
            failed_runs,
            (
                _timed(_run_data(run, campaign, store, path), store)
                if _overheads_asked(run, runs)
                else _run_data(run, campaign, store, path)
                for run in runs
                if run.state is RunState.DONE
            ),
        ),
        failed_runs=failed_runs,
    )


def _paired(failed_runs: Sequence[FailedRun], runs: Iterable[RunData]) -> tuple[RunData, ...]:
    """The runs, those of features with the cycles that were measured apart."""
    from assay_server.analysis.cycles_apart import paired  # noqa: PLC0415 - it loads the analysis

    return paired(with_short_windows(tuple(runs)), failed_runs)


def _run_data(run: Run, campaign: Campaign, store: MetadataReader, path: Callable[[Slice], str]) -> RunData:
    from assay_server.analysis.provenance import run_facts  # noqa: PLC0415 - it loads the analysis

    slices = store.slices(run.run_id)
    kept = [piece for piece in slices if piece.file]  # not those behind the end of the workload
    return RunData(
        run_id=run.run_id,
        workload=run.workload,
        device_kind=run.device_kind,
        level=run.level,
        condition=run.condition,
        repeat=run.repeat,
        files=tuple(path(piece) for piece in kept),
        file_hashes=tuple(piece.content_hash for piece in kept),
        flags=tuple(
            (flag.name, flag.detail, flag.invalidates) for flag in (*run.flags, *capture_flags(slices))
        ),
        synthetic=campaign.synthetic,
        launches=sum(piece.launches for piece in slices),
        content_hash=_content_hash([piece.content_hash for piece in kept]),
        live=run.command is not None,
        under_mps=run.under_mps,
        slice_launches=tuple(piece.launches for piece in slices),
        launches_asked=launches_asked(slices),
        costs_only=run.level == "detailed" and set(run.counters) == set(COST_COUNTERS),
        facts=run_facts(
            store.published_facts(run.run_id), measured=run.command is not None and not campaign.synthetic
        ),
    )


def _overheads_asked(run: Run, runs: Sequence[Run]) -> bool:
    """Whether a run is to be compared with a bare one: logs of attempts are long, and seldom needed."""
    return run.command is not None and any(other.level == "bare" for other in runs)


def _timed(run: RunData, store: MetadataReader) -> RunData:
    """The run with the times of its published attempts."""
    logs = [a.log for a in store.attempts(run.run_id) if a.state is AttemptState.PUBLISHED]
    busy = [json.loads(log.telemetry).get("busy_seconds") if log.telemetry else None for log in logs]
    known = [seconds for seconds in busy if isinstance(seconds, int | float)]
    return replace(
        run,
        executions=len(logs),
        wall_seconds=sum(log.wall_seconds for log in logs),
        busy_seconds=float(sum(known)) if known and len(known) == len(logs) else None,
    )


def capture_flags(slices: Sequence[Slice]) -> Iterator[Flag]:
    """What the slices of a run tell only together: launches that are missing before later ones.

    Each kind of flag once, with the first slice that shows it.
    """
    last = max((piece.index for piece in slices if piece.launches), default=-1)
    before = [piece for piece in slices if piece.index < last]
    empty = next((piece.index for piece in before if not piece.launches), None)
    if empty is not None:
        detail = f"slice {empty} has no launches, and slice {last} has some"
        yield Flag("empty_capture", detail, invalidates("empty_capture"))
    short = next((piece for piece in before if 0 < piece.launches < piece.launch_count), None)
    if short is not None:
        had = f"{short.launches:,} of {short.launch_count:,} launches"
        detail = f"slice {short.index} has {had}, and slice {last} has some"
        yield Flag("slice_gap", detail, invalidates("slice_gap"))


def _content_hash(hashes: Sequence[str]) -> str:
    """The hash of a run's one file; of several, the hash of theirs in order."""
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.blake2b("+".join(hashes).encode(), digest_size=32).hexdigest()


def _failed_run(run: Run) -> FailedRun:
    return FailedRun(
        run.run_id, _reason(run), run.workload, run.device_kind, run.level, run.condition, run.repeat
    )


def _reason(run: Run) -> str:
    if run.failure is None:
        return str(run.state)
    return f"{run.failure.failure_class}: {run.failure.subject}: {run.failure.cause}"


def _failure_of(error: BaseException, campaign_id: str) -> FailureRecord:
    """Why an analysis could not be made."""
    subject = f"analysis of {campaign_id}"
    if isinstance(error, BrokenExecutor):
        return FailureRecord(
            str(FailureClass.INTERNAL),
            subject,
            "its process died, most likely killed by the system for want of memory",
            "lower analysis.memory_limit_bytes in the campaign file, or give the server more memory",
        )
    if isinstance(error, AssayError):
        return FailureRecord(_class_of(error), error.subject, error.cause, error.remedy)
    _log.error("%s failed", subject, exc_info=error)
    cause = f"{type(error).__name__}: {error}"
    return failure_record(failure(FailureClass.INTERNAL, subject, cause))


def _class_of(error: AssayError) -> str:
    if isinstance(error, InputError | LaunchTableError | CounterUnavailableError):
        return str(FailureClass.INPUT_UNREADABLE)
    if isinstance(error, StorageError):
        return str(FailureClass.DISK_FULL)
    return str(FailureClass.SERVER_REFUSED)
