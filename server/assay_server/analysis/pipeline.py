"""From a campaign's runs to its report.

The report depends only on the request and the runs' records. It contains no attempt numbers, paths or host
names, and no times except the days on which live runs were measured, which are kept with their records; so
a campaign that was interrupted and resumed gives the same bytes. Numeric libraries use one thread, because
sums in another order differ in their last digits; the report names the versions of the programs that compute
its numbers, as labels may change with them.

Where the ranks of a workload of several processes are evaluated each alone, every rank is a workload of its
own. What is about the command and not about a rank, such as noise and overhead, is compared over all of them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np

from assay_report.model.report import COMPARISONS, CampaignEntry, Comparisons, Report
from assay_report.model.runs import FailedRunEntry, FailureEntry, RunEntry
from assay_report.verdicts.verdicts import judge
from assay_sampling.documents.common import ConditionEntry
from assay_sampling.errors import AssayError, MissingExtraError
from assay_sampling.methods.registry import package_of
from assay_sampling.readers.opening import open_recording
from assay_server.analysis import rows
from assay_server.analysis.provenance import (
    chosen_slices_entries,
    flag_differences,
    provenance_entries,
    with_facts_of_table,
)
from assay_server.analysis.rows import cells_of, refuse_mixed_marks
from assay_server.analysis.run_memory import RunMemory
from assay_server.analysis.runs.request import AnalysisRequest, FailedRun, RunData
from assay_server.analysis.summary import compare_fairly, summarise
from assay_server.analysis.workload import WorkloadAnalysis, analyse_workload, compare_runs
from assay_server.campaign_file.compiled import rank_name


def analyse(request: AnalysisRequest) -> Report:
    """The report of a campaign.

    An AssayError about a part of the campaign becomes the status and reason of the rows it concerns.
    Raises RefusedError if synthetic and measured runs meet, MissingExtraError without the analysis extra.
    Any other exception is a bug and is not caught.
    """
    refuse_mixed_marks(request)
    return joined_report(request, [analyse_part(request, name) for name in request.workloads])


def analyse_part(request: AnalysisRequest, workload: str) -> WorkloadAnalysis:
    """The analysis of one workload of a campaign; raises the errors of :func:`analyse`."""
    refuse_mixed_marks(request)
    runs = [run for run in request.runs if run.workload == workload]
    with single_threaded():
        return (analyse_by_rank if workload in request.ranks else analyse_workload)(request, runs)


def joined_report(request: AnalysisRequest, parts: Sequence[WorkloadAnalysis]) -> Report:
    """The report from the analyses of all workloads, in the order of the request's."""
    whole = WorkloadAnalysis()
    for part in parts:
        whole.add(part)
    all_rows, compared = whole.rows, whole.compared
    recommendations = compare_fairly(all_rows)
    # Also those whose cycles are used by the next run.
    all_runs = [each for run in request.runs for each in (run.cycles, run) if each is not None]
    every_run = [with_facts_of_table(run) for run in all_runs]
    flag_differences([*all_rows, *compared.entries()], every_run)
    chosen = chosen_slices_entries(every_run)
    report = Report(
        campaign=CampaignEntry(
            id=request.campaign_id,
            name=request.campaign_name,
            owner_name=request.owner_name,
            project=request.project,
            synthetic=request.synthetic,
            seed=request.seed,
        ),
        versions=versions(row.method for row in all_rows),
        runs=[_run(run) for run in every_run],
        provenance=provenance_entries(every_run),
        failed_runs=[_failed_run(run) for run in request.failed_runs],
        summary=summarise(all_rows, compared),
        rows=all_rows,
        recommendations=recommendations,
        selections=whole.selections,
        drawn=whole.drawn,
        **({"chosen_slices": chosen} if chosen else {}),
        **{part: entries for part in COMPARISONS if (entries := getattr(compared, part))},
    )
    return judge(report)


def _failed_run(run: FailedRun) -> FailedRunEntry:
    failure = None if run.failure is None else FailureEntry.of(run.failure)
    return FailedRunEntry(**_place(run), reason=run.reason, failure=failure)


def _run(run: RunData) -> RunEntry:
    return RunEntry(
        **_place(run),
        under_mps=run.under_mps,
        launches=run.launches,
        content_hash=run.content_hash,
        flags=rows.flags_of(run),
        synthetic=run.synthetic,
    )


def _place(run: RunData | FailedRun) -> dict[str, Any]:
    """What identifies a run in a report."""
    return {
        "run_id": run.run_id,
        "workload": run.workload,
        "device": run.device_kind,
        "level": run.level,
        "condition": ConditionEntry.of(run.condition),
        "repeat": run.repeat,
    }


def analyse_by_rank(request: AnalysisRequest, runs: Sequence[RunData]) -> WorkloadAnalysis:
    """Rows, selections and comparisons of selections for each rank; the other comparisons over all ranks.

    Where the runs cannot be read, the rows are those of the whole workload, which say why.
    """
    choice = request.ranks[runs[0].workload]
    try:
        ranks = _ranks_of([cell.whole for cell in cells_of(runs)]) if choice == "each" else choice
    except AssayError:
        return analyse_workload(request, runs)
    analysis = WorkloadAnalysis(compared=compare_runs(runs, RunMemory(request)))
    analysis.compared.sm_share, analysis.compared.cold_start = [], []
    for rank in ranks:
        analysis.add(_analyse_rank(request, runs, rank))
    return analysis


def _analyse_rank(request: AnalysisRequest, runs: Sequence[RunData], rank: int) -> WorkloadAnalysis:
    workload = runs[0].workload
    name = rank_name(workload, rank)
    failed = tuple(
        replace(run, workload=name) if run.workload == workload else run for run in request.failed_runs
    )
    of_rank = [_of_rank(run, name, rank) for run in runs if run.level != "bare"]
    analysis = analyse_workload(replace(request, failed_runs=failed), of_rank)
    compared = analysis.compared
    analysis.compared = Comparisons(sm_share=compared.sm_share, cold_start=compared.cold_start)
    return analysis


def _of_rank(run: RunData, name: str, rank: int) -> RunData:
    cycles = None if run.cycles is None else _of_rank(run.cycles, name, rank)
    return replace(run, workload=name, rank=rank, cycles=cycles)


def _ranks_of(runs: Sequence[RunData]) -> tuple[int, ...]:
    """The ordinals of all processes that launched kernels; raises the errors of reading records."""
    ordinals: set[int] = set()
    for path in (path for run in runs for path in run.files):
        with open_recording(path) as recording:
            for batch in recording.batches():
                ordinals.update(np.unique(batch.records["process"].to_numpy()).tolist())
    return tuple(sorted(ordinals))


try:
    from threadpoolctl import threadpool_limits
except ImportError as missing:
    raise MissingExtraError("analysis", "threadpoolctl", "analysis") from missing

# OpenMP and the BLAS libraries read these when they are loaded.
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


@contextmanager
def single_threaded() -> Iterator[None]:
    """Inside, BLAS and OpenMP use one thread, so that the same input gives the same bytes.

    This also holds for libraries that are loaded inside, which keep one thread afterwards: scikit-learn costs
    a second to load, and most analyses do not need it.
    """
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_OURS = "assay"
_DISTRIBUTIONS = {
    _OURS: "assay-gpu",
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "scikit-learn": "scikit-learn",
}


def versions(methods: Iterable[str] = ()) -> dict[str, str]:
    """Versions by program, and by package of those ``methods`` that other packages bring.

    Raises MissingExtraError where the analysis extra is not installed.
    """
    programs = {}
    for name, distribution in _DISTRIBUTIONS.items():
        try:
            programs[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            if name == _OURS:  # running from a checkout that was never installed
                programs[name] = "checkout"
                continue
            raise MissingExtraError("analysis", name, "analysis") from None
    packages = dict(package for name in methods if (package := package_of(name)) is not None)
    return {**programs, "python": platform.python_version(), **packages}
