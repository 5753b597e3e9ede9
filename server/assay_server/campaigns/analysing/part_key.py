"""What the analysis of one workload depends on: the request for it alone, and the hash that names it.

A part that was kept under another hash is of no use: a run was measured again, the settings are others, or
the server that takes over has another release of something that computes numbers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import metadata

from assay_server.analysis.runs.request import AnalysisRequest, RunData
from assay_server.campaigns.analysing.computing_packages import computing_packages


def request_for(request: AnalysisRequest, workload: str) -> AnalysisRequest:
    """The request without the runs of other workloads."""
    return replace(
        request,
        runs=tuple(run for run in request.runs if run.workload == workload),
        failed_runs=tuple(run for run in request.failed_runs if run.workload == workload),
        ranks={name: ranks for name, ranks in request.ranks.items() if name == workload},
    )


def part_key(request: AnalysisRequest, computed_with: Mapping[str, str]) -> str:
    """The hash of a workload's request, as :func:`request_for` gives it, and of the :func:`releases` in use.

    Where files lie does not count, as long as the request has the hashes of their contents.
    """
    asked = replace(request, records=None, runs=tuple(map(_without_places, request.runs)))
    document = {"request": dataclasses.asdict(asked), "releases": dict(computed_with)}
    return hashlib.blake2b(
        json.dumps(document, sort_keys=True, default=repr).encode(), digest_size=32
    ).hexdigest()


def _without_places(run: RunData) -> RunData:
    cycles = None if run.cycles is None else _without_places(run.cycles)
    return replace(run, files=() if run.file_hashes else run.files, cycles=cycles)


def releases(request: AnalysisRequest) -> Mapping[str, str]:
    """The releases of whatever computes a request's numbers, by package; "": not installed."""
    packages = computing_packages(name for name, _ in request.methods)
    return {"python": platform.python_version(), **{name: _release(name) for name in packages}}


@cache
def _release(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
