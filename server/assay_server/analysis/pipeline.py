"""From a campaign's runs to its report document.

The document is a function of the request and of the runs' records alone: no time stamps, attempt
numbers, paths or host names, so that a campaign that was interrupted and resumed ends in the same bytes.
"""

from __future__ import annotations

from typing import Any

from assay_server.analysis import rows
from assay_server.analysis.cells import cells_by_workload, refuse_mixed_marks
from assay_server.analysis.loading import load_run
from assay_server.analysis.request import AnalysisRequest, RunData
from assay_server.analysis.rows import Method
from assay_server.analysis.summary import summarise
from assay_server.analysis.threads import single_threaded
from assay_server.analysis.versions import versions
from assay_server.analysis.workload import analyse_workload

FORMAT_VERSION = 1


def analyse(request: AnalysisRequest) -> dict[str, Any]:
    """The report document of a campaign, ready for ``json.dumps``.

    An AssayError about a part of the campaign becomes the status and reason of the rows it concerns.
    Raises RefusedError where synthetic and measured runs meet, MissingExtraError without the analysis
    extra; whatever is not an AssayError is a fault of the program and is not caught.
    """
    refuse_mixed_marks(request)
    methods = [
        Method(position, name, parameters, request.seed)
        for position, (name, parameters) in enumerate(request.methods)
    ]
    all_rows: list[rows.Row] = []
    selections: dict[str, dict[str, Any]] = {}
    with single_threaded():
        for cells in cells_by_workload(request.runs).values():
            analysis = analyse_workload(request, cells, methods, load_run)
            all_rows += analysis.rows
            selections.update(analysis.selections)
    return {
        "format_version": FORMAT_VERSION,
        "campaign": {
            "id": request.campaign_id,
            "name": request.campaign_name,
            "synthetic": request.synthetic,
            "seed": request.seed,
        },
        "versions": versions(),
        "runs": [_run(run) for run in request.runs],
        "failed_runs": [{"run_id": run_id, "reason": reason} for run_id, reason in request.failed_runs],
        "summary": summarise(all_rows),
        "rows": all_rows,
        "selections": selections,
    }


def _run(run: RunData) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "workload": run.workload,
        "device": run.device_kind,
        "level": run.level,
        "condition": run.condition.to_dict(),
        "repeat": run.repeat,
        "launches": run.launches,
        "content_hash": run.content_hash,
        "flags": rows.flags_of(run),
        "synthetic": run.synthetic,
    }
