"""A workload of several processes whose ranks are evaluated each alone: every rank as a workload of its own.

What is about the command and not about a rank, such as noise and overhead, is compared over all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from assay_report.model.report import Comparisons
from assay_sampling.errors import AssayError
from assay_sampling.readers.opening import open_recording
from assay_server.analysis.cells import cells_by_workload
from assay_server.analysis.rows import Method
from assay_server.analysis.runs.held import Load
from assay_server.analysis.runs.request import AnalysisRequest, RunData
from assay_server.analysis.workload import WorkloadAnalysis, analyse_workload
from assay_server.campaign_file.compiled import rank_name


def analyse_by_rank(
    request: AnalysisRequest,
    runs: Sequence[RunData],
    methods: Sequence[Method],
    load: Load,
) -> WorkloadAnalysis:
    """Rows, selections and comparisons of selections for each rank; the other comparisons over all ranks.

    Where the runs cannot be read, the rows are those of the whole workload, which say why.
    """
    [workload] = {run.workload for run in runs}
    choice = request.ranks[workload]
    cells = cells_by_workload(runs).get(workload, [])
    try:
        ranks = _ranks_of([cell.whole for cell in cells]) if choice == "each" else choice
    except AssayError:
        return analyse_workload(request, runs, cells, methods, load)
    together = analyse_workload(request, runs, (), (), load).compared
    analysis = WorkloadAnalysis(
        compared=Comparisons(
            locked_clock=together.locked_clock,
            noise=together.noise,
            overhead=together.overhead,
            sequences=together.sequences,
        )
    )
    for rank in ranks:
        _add(analysis, _analyse_rank(request, runs, rank, methods, load))
    return analysis


def _analyse_rank(
    request: AnalysisRequest,
    runs: Sequence[RunData],
    rank: int,
    methods: Sequence[Method],
    load: Load,
) -> WorkloadAnalysis:
    workload = runs[0].workload
    name = rank_name(workload, rank)
    failed = tuple(
        replace(run, workload=name) if run.workload == workload else run for run in request.failed_runs
    )
    of_rank = [_of_rank(run, name, rank) for run in runs if run.level != "bare"]
    cells = cells_by_workload(of_rank).get(name, [])
    return analyse_workload(replace(request, failed_runs=failed), of_rank, cells, methods, load)


def _of_rank(run: RunData, name: str, rank: int) -> RunData:
    cycles = None if run.cycles is None else _of_rank(run.cycles, name, rank)
    return replace(run, workload=name, rank=rank, cycles=cycles)


def _add(whole: WorkloadAnalysis, part: WorkloadAnalysis) -> None:
    whole.rows += part.rows
    whole.selections.update(part.selections)
    whole.drawn.update(part.drawn)
    whole.compared.sm_share += part.compared.sm_share
    whole.compared.cold_start += part.compared.cold_start


def _ranks_of(runs: Sequence[RunData]) -> tuple[int, ...]:
    """The ordinals of all processes that launched kernels; raises the errors of reading records."""
    ordinals: set[int] = set()
    for path in (path for run in runs for path in run.files):
        with open_recording(path) as recording:
            for batch in recording.batches():
                ordinals.update(np.unique(batch.records["process"].to_numpy()).tolist())
    return tuple(sorted(ordinals))
