"""What an analysis is asked for: a campaign's finished runs with all that is known of them.

Detailed runs that stop short of their window although a light run shows that the workload continues are
flagged. Nsight Compute may profile only one launch of a process (it does so for clients of MPS). Neither its
log nor its exit status tells this from a process that launched once. A light run sees every launch, so the
two are compared. Source: docs/validity.md, ``window_short``.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime

from assay_core.records.campaign import AttemptState, RunState
from assay_core.records.validity_flag import ValidityFlag
from assay_sampling.counters.definitions import COST_COUNTERS
from assay_sampling.errors import StorageError
from assay_sampling.running.attempt_facts import parse_facts
from assay_sampling.running.validity import invalidates
from assay_server.analysis.runs.request import AnalysisRequest, FailedRun, RunData, RunFacts, distinct_texts
from assay_server.store.model import Campaign, Run, Slice
from assay_server.store.record_store import RecordStore
from assay_server.store.sql import SqlTransaction

# What an analysis takes of a run as it is.
_SAME_IN_RUNS = (
    "run_id", "workload", "device_kind", "level", "condition", "repeat", "under_mps", "plan",
)  # fmt: skip
_WINDOW_SHORT = "window_short"
# The alignments' default: below it two runs did not launch the same kernels anyway.
_LEAST_WINDOW_PERCENT = 99.0


def analysis_request(
    store: SqlTransaction, campaign_id: str, records: RecordStore, *, windows_so_far: bool = False
) -> AnalysisRequest:
    """The request for a campaign's analysis: its finished runs in order, and those without data.

    ``windows_so_far``: with detailed runs under way, as far as their slices go without a gap: they are
    shorter windows of the same workloads.
    """
    campaign = store.campaign(campaign_id)
    if campaign is None:
        raise StorageError(campaign_id, "the store lost this campaign")
    runs = store.runs(campaign_id)
    windows = _windows_so_far(store, runs) if windows_so_far else {}
    there = [run for run in runs if run.state is RunState.DONE or run.run_id in windows]
    with_data = {run.run_id for run in there}
    failed_runs = tuple(
        FailedRun(**{each.name: getattr(run, each.name) for each in fields(FailedRun)})
        for run in runs
        if run.run_id not in with_data
    )
    # Attempts' logs, which are long, are read only of runs that are compared with a bare run.
    compared = any(run.level == "bare" for run in runs)
    runs_data = (
        _timed(_run_data(run, campaign, store, records), store)
        if compared and run.command is not None
        else _run_data(run, campaign, store, records, windows.get(run.run_id))
        for run in there
    )
    return AnalysisRequest(
        records=records.place,
        campaign_id=campaign_id,
        campaign_name=campaign.name,
        owner_name=campaign.owner_name,
        project=campaign.project,
        synthetic=campaign.synthetic,
        **vars(campaign.compiled.analysis),
        # Runs of features hold the runs that measured their cycles apart.
        runs=paired(with_short_windows(tuple(runs_data)), failed_runs),
        failed_runs=failed_runs,
    )


def _windows_so_far(store: SqlTransaction, runs: Sequence[Run]) -> dict[str, list[Slice]]:
    """The first published slices of detailed runs under way, up to the first gap, by run."""
    windows = {}
    for run in runs:
        under_way = run.state in (RunState.RUNNING, RunState.WAITING) and run.level == "detailed"
        if not under_way or run.plan is not None:  # chosen slices stand for the workload only together
            continue
        pieces = list(itertools.takewhile(lambda piece: piece.file, _by_launch(store.slices(run.run_id))))
        if any(piece.launches for piece in pieces):
            windows[run.run_id] = pieces
    return windows


def _by_launch(slices: Iterable[Slice]) -> list[Slice]:
    """Slices that were chosen from a light run are measured in another order than that of their launches."""
    return sorted(slices, key=lambda piece: (piece.launch_skip, piece.index))


def _run_data(
    run: Run,
    campaign: Campaign,
    store: SqlTransaction,
    records: RecordStore,
    so_far: list[Slice] | None = None,
) -> RunData:
    """The data of a run; ``so_far``: only these of its slices."""
    slices = so_far or _by_launch(store.slices(run.run_id))
    pieces = [piece for piece in slices if piece.file]  # slices behind the end of the workload have no file
    hashes = [piece.content_hash for piece in pieces]
    # Of a run's only file; of several files, the hash of their hashes in order.
    joined = "+".join(hashes).encode()
    content_hash = hashes[0] if len(hashes) == 1 else hashlib.blake2b(joined, digest_size=32).hexdigest()
    return RunData(
        **{name: getattr(run, name) for name in _SAME_IN_RUNS},
        files=tuple(records.location(piece.file) for piece in pieces),
        file_hashes=tuple(hashes),
        flags=tuple(
            (flag.name, flag.detail, flag.invalidates) for flag in (*run.flags, *capture_flags(slices))
        ),
        synthetic=campaign.synthetic,
        launches=sum(piece.launches for piece in slices),
        content_hash=content_hash,
        live=run.command is not None,
        slice_launches=tuple(piece.launches for piece in slices),
        launches_asked=launches_asked(slices),
        costs_only=run.level == "detailed" and set(run.counters) == set(COST_COUNTERS),
        facts=run_facts(
            store.published_facts(run.run_id), measured=run.command is not None and not campaign.synthetic
        ),
    )


def _timed(run: RunData, store: SqlTransaction) -> RunData:
    """The run with the times of its published attempts."""
    logs = [a.log for a in store.attempts(run.run_id) if a.state is AttemptState.PUBLISHED]
    busy = [(log.telemetry or {}).get("busy_seconds") for log in logs]
    measured = [seconds for seconds in busy if isinstance(seconds, int | float)]
    return replace(
        run,
        executions=len(logs),
        wall_seconds=sum(log.wall_seconds for log in logs),
        busy_seconds=float(sum(measured)) if measured and len(measured) == len(logs) else None,
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


def launches_asked(slices: Sequence[Slice]) -> int:
    """Launches that the slices of a run should have together; 0: to the end of the workload."""
    counts = [piece.launch_count for piece in slices]
    return sum(counts) if all(counts) else 0


def with_short_windows(runs: Sequence[RunData]) -> tuple[RunData, ...]:
    """The runs, with a flag on detailed runs that stopped short of their window."""
    return tuple(_with_short_window(run, runs) for run in runs)


def _with_short_window(run: RunData, runs: Sequence[RunData]) -> RunData:
    if run.level != "detailed" or not (run.live and run.launches):
        return run
    light = [
        other
        for other in runs
        if (other.workload, other.device_kind, other.level) == (run.workload, run.device_kind, "light")
        and other.live
        and other.launches
        and not any(flagged for _, _, flagged in other.flags)
    ]
    if not light:
        return run
    # The shortest light run counts: a workload's number of launches may vary.
    whole = min(light, key=lambda other: other.launches)
    window = min(run.launches_asked or whole.launches, whole.launches)
    if 100.0 * run.launches >= _LEAST_WINDOW_PERCENT * window:
        return run
    detail = (
        f"{run.launches:,} of the first {window:,} launches have counters, and the light run {whole.run_id} "
        f"has {whole.launches:,} launches"
    )
    return replace(run, flags=(*run.flags, (_WINDOW_SHORT, detail, invalidates(_WINDOW_SHORT))))


def paired(runs: Sequence[RunData], failed_runs: Sequence[FailedRun] = ()) -> tuple[RunData, ...]:
    """The runs; each run of features holds the run that measured its cycles in one pass, if any.

    The run of cycles is then no longer in the list; its flags join those of the run of features. If it has
    no data, the run of features keeps its own cycles, with a flag.
    """
    of_cycles = {_identity(run): run for run in runs if run.level == "detailed" and run.costs_only}
    gone = {_identity(run): run.run_id for run in failed_runs if run.level == "detailed"}
    all_runs: list[RunData] = []
    served: set[str] = set()
    for run in runs:
        if run.level != "detailed" or run.costs_only:
            all_runs.append(run)
        elif (cycles := of_cycles.get(_identity(run))) is not None:
            flags = ((name, f"{cycles.run_id}: {detail}", bad) for name, detail, bad in cycles.flags)
            all_runs.append(replace(run, cycles=cycles, flags=(*run.flags, *flags)))
            served.add(cycles.run_id)
        elif (failed := gone.get(_identity(run))) is not None:
            detail = f"run {failed}, which should have measured them in one pass, has no data"
            all_runs.append(replace(run, flags=(*run.flags, ("cycles_of_several_passes", detail, False))))
        else:
            all_runs.append(run)
    return tuple(run for run in all_runs if run.run_id not in served)


def _identity(run: RunData | FailedRun) -> tuple[object, ...]:
    return run.workload, run.device_kind, run.condition, run.repeat


def run_facts(attempts: Iterable[tuple[int, str]], *, measured: bool) -> RunFacts:
    """The facts of a run, from its published attempts.

    Args:
        attempts: for each, when it was leased (Unix time in milliseconds), and its facts as text.
        measured: whether the attempts measured silicon; if not, the days are left out.
    """
    days, texts = set[str](), dict[str, None]()
    for leased_at_ms, text in attempts:
        texts[text] = None
        if measured and leased_at_ms:
            days.add(datetime.fromtimestamp(leased_at_ms / 1000, UTC).date().isoformat())
    attempt_facts = [facts for facts in map(parse_facts, texts) if facts is not None]
    libraries: dict[str, dict[str, str]] = {}
    for library in (library for facts in attempt_facts for library in facts.libraries.found):
        if not library.of_tool:  # the workload itself loaded it
            libraries.setdefault(library.name, {}).setdefault(library.build, library.label)
    return RunFacts(
        gpus=distinct_texts(facts.gpu for facts in attempt_facts),
        drivers=distinct_texts(facts.driver for facts in attempt_facts),
        tools=tuple(
            dict.fromkeys((tool.name, tool.version) for facts in attempt_facts for tool in facts.tools)
        ),
        libraries=libraries,
        library_notes=distinct_texts(facts.libraries.note for facts in attempt_facts),
        bundles=distinct_texts(facts.bundle for facts in attempt_facts),
        programs=distinct_texts(facts.program.sha256 for facts in attempt_facts),
        compile_caches=distinct_texts(facts.compile_cache for facts in attempt_facts),
        days=tuple(sorted(days)),
    )
