"""From a campaign's runs to its report document.

The document is a function of the request and of the runs' records alone: no attempt numbers, paths or host
names, and of times only the days on which live runs were measured, which are kept with their records; so a
campaign that was interrupted and resumed ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay_server.analysis import rows
from assay_server.analysis.cells import cells_by_workload, refuse_mixed_marks
from assay_server.analysis.compared import Compared
from assay_server.analysis.loading import load_run
from assay_server.analysis.provenance import flag_differences, provenance_entries, with_facts_of_table
from assay_server.analysis.request import AnalysisRequest, FailedRun, RunData
from assay_server.analysis.rows import Method
from assay_server.analysis.summary import summarise
from assay_server.analysis.threads import single_threaded
from assay_server.analysis.versions import versions
from assay_server.analysis.workload import WorkloadAnalysis, analyse_workload

FORMAT_VERSION = 1


def analyse(request: AnalysisRequest) -> dict[str, Any]:
    """The report document of a campaign, ready for ``json.dumps``.

    An AssayError about a part of the campaign becomes the status and reason of the rows it concerns.
    Raises RefusedError where synthetic and measured runs meet, MissingExtraError without the analysis
    extra; whatever is not an AssayError is a fault of the program and is not caught.
    """
    refuse_mixed_marks(request)
    return report_document(request, [analyse_part(request, name) for name in workloads_of(request)])


def workloads_of(request: AnalysisRequest) -> tuple[str, ...]:
    """The workloads of a campaign that have runs, in order: parts that can be analysed side by side."""
    return tuple(dict.fromkeys(run.workload for run in request.runs))


def analyse_part(request: AnalysisRequest, workload: str) -> WorkloadAnalysis:
    """The analysis of one workload of a campaign; raises as :func:`analyse`."""
    refuse_mixed_marks(request)
    methods = [
        Method(position, name, parameters, request.seed)
        for position, (name, parameters) in enumerate(request.methods)
    ]
    runs = [run for run in request.runs if run.workload == workload]
    cells = cells_by_workload(runs).get(workload, [])
    with single_threaded():
        return analyse_workload(request, runs, cells, methods, load_run)


def report_document(request: AnalysisRequest, parts: Sequence[WorkloadAnalysis]) -> dict[str, Any]:
    """The report document from the analyses of all workloads, in the order of :func:`workloads_of`."""
    all_rows: list[rows.Row] = []
    selections: dict[str, dict[str, Any]] = {}
    drawn: dict[str, dict[str, Any]] = {}
    compared = Compared()
    for part in parts:
        all_rows += part.rows
        selections.update(part.selections)
        drawn.update(part.drawn)
        compared.add(part.compared)
    every_run = [with_facts_of_table(run) for run in _every_run(request)]
    flag_differences([*all_rows, *(each for part in compared.parts().values() for each in part)], every_run)
    return {
        "format_version": FORMAT_VERSION,
        "campaign": {
            "id": request.campaign_id,
            "name": request.campaign_name,
            "synthetic": request.synthetic,
            "seed": request.seed,
        },
        "versions": versions(),
        "runs": [_run(run) for run in every_run],
        "provenance": provenance_entries(every_run),
        "failed_runs": [_failed_run(run) for run in request.failed_runs],
        "summary": summarise(all_rows, compared),
        "rows": all_rows,
        # Where no runs are compared, there is nothing to say about it.
        **{name: entries for name, entries in compared.parts().items() if entries},
        "selections": selections,
        "drawn": drawn,
    }


def _every_run(request: AnalysisRequest) -> list[RunData]:
    """The runs in order, also those whose cycles serve the one behind them."""
    return [each for run in request.runs for each in (run.cycles, run) if each is not None]


def _failed_run(run: FailedRun) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "workload": run.workload,
        "device": run.device_kind,
        "level": run.level,
        "condition": run.condition.to_dict(),
        "repeat": run.repeat,
        "reason": run.reason,
    }


def _run(run: RunData) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "workload": run.workload,
        "device": run.device_kind,
        "level": run.level,
        "condition": run.condition.to_dict(),
        "repeat": run.repeat,
        "under_mps": run.under_mps,
        "launches": run.launches,
        "content_hash": run.content_hash,
        "flags": rows.flags_of(run),
        "synthetic": run.synthetic,
    }
