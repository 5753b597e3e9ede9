"""From a campaign's runs to its report.

The report depends only on the request and the runs' records. It contains no attempt numbers, paths or host
names, and no times except the days on which live runs were measured, which are kept with their records; so
a campaign that was interrupted and resumed gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay_report.model.drawn import Drawn
from assay_report.model.report import COMPARISONS, CampaignEntry, Comparisons, Report
from assay_report.model.runs import FailedRunEntry, FailureEntry, RunEntry
from assay_report.model.scores import Row
from assay_report.verdicts.verdicts import judge
from assay_sampling.documents.common import ConditionEntry
from assay_sampling.documents.selection import SelectionInReport
from assay_server.analysis import rows
from assay_server.analysis.by_rank import analyse_by_rank
from assay_server.analysis.cells import cells_by_workload, refuse_mixed_marks
from assay_server.analysis.chosen_slices import chosen_slices_entries
from assay_server.analysis.fair import compare_fairly
from assay_server.analysis.provenance import flag_differences, provenance_entries, with_facts_of_table
from assay_server.analysis.rows import Method
from assay_server.analysis.runs.loading import load_run
from assay_server.analysis.runs.request import AnalysisRequest, FailedRun, RunData
from assay_server.analysis.summary import summarise
from assay_server.analysis.threads import single_threaded
from assay_server.analysis.versions import versions
from assay_server.analysis.workload import WorkloadAnalysis, analyse_workload


def analyse(request: AnalysisRequest) -> Report:
    """The report of a campaign.

    An AssayError about a part of the campaign becomes the status and reason of the rows it concerns.
    Raises RefusedError if synthetic and measured runs meet, MissingExtraError without the analysis extra.
    Any other exception is a bug and is not caught.
    """
    refuse_mixed_marks(request)
    return joined_report(request, [analyse_part(request, name) for name in workloads_of(request)])


def workloads_of(request: AnalysisRequest) -> tuple[str, ...]:
    """The workloads of a campaign that have runs, in order: parts that can be analysed in parallel."""
    return tuple(dict.fromkeys(run.workload for run in request.runs))


def analyse_part(request: AnalysisRequest, workload: str) -> WorkloadAnalysis:
    """The analysis of one workload of a campaign; raises the errors of :func:`analyse`."""
    refuse_mixed_marks(request)
    methods = [
        Method(position, name, parameters, request.seed)
        for position, (name, parameters) in enumerate(request.methods)
    ]
    runs = [run for run in request.runs if run.workload == workload]
    cells = cells_by_workload(runs).get(workload, [])
    with single_threaded():
        if workload in request.ranks:
            return analyse_by_rank(request, runs, methods, load_run)
        return analyse_workload(request, runs, cells, methods, load_run)


def joined_report(request: AnalysisRequest, parts: Sequence[WorkloadAnalysis]) -> Report:
    """The report from the analyses of all workloads, in the order of :func:`workloads_of`."""
    all_rows: list[Row] = []
    selections: dict[str, SelectionInReport] = {}
    drawn: dict[str, Drawn] = {}
    compared = Comparisons()
    for part in parts:
        all_rows += part.rows
        selections.update(part.selections)
        drawn.update(part.drawn)
        compared.add(part.compared)
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
        selections=selections,
        drawn=drawn,
        **({"chosen_slices": chosen} if chosen else {}),
        **{part: entries for part in COMPARISONS if (entries := getattr(compared, part))},
    )
    return judge(report)


def _failed_run(run: FailedRun) -> FailedRunEntry:
    return FailedRunEntry(
        run_id=run.run_id,
        workload=run.workload,
        device=run.device_kind,
        level=run.level,
        condition=ConditionEntry.of(run.condition),
        repeat=run.repeat,
        reason=run.reason,
        failure=None if run.failure is None else FailureEntry.of(run.failure),
    )


def _run(run: RunData) -> RunEntry:
    return RunEntry(
        run_id=run.run_id,
        workload=run.workload,
        device=run.device_kind,
        level=run.level,
        condition=ConditionEntry.of(run.condition),
        repeat=run.repeat,
        under_mps=run.under_mps,
        launches=run.launches,
        content_hash=run.content_hash,
        flags=rows.flags_of(run),
        synthetic=run.synthetic,
    )
