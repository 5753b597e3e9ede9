"""Analyses: 40 workloads in a process, in a pool of two processes, and by two workers of a Dask scheduler."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path

from assay_server.analysis.runs.request import AnalysisRequest
from assay_server.campaigns.analysing.executors.dask_workers import DaskWorkers
from assay_server.campaigns.analysing.executors.pool import WorkerPool
from assay_server.campaigns.analysing.executors.seam import Executors, WorkersAwayError
from assay_server.campaigns.analysing.job import Pages
from assay_server.campaigns.analysing.parts import submit_analysis
from tests.bench.lab.goals import Goal
from tests.bench.scale.sections import ScaleSize
from tests.services.dask_cluster import OwnDask
from tests.support.server.workloads_to_analyse import made_request

_WORKLOADS, _LAUNCHES = 40, 4_000
_WORKERS = 2
_SECONDS = 1_800
_METHODS: tuple[tuple[str, dict[str, object]], ...] = (("pks", {}), ("random", {}), ("systematic", {}))


def analyses_page(size: ScaleSize, goals: list[Goal]) -> Iterator[str]:
    """The section's lines. Each executor has loaded its libraries before it is measured."""
    workloads = size.of(_WORKLOADS, 2)
    yield f"\n## Analyses: {workloads} workloads of {_LAUNCHES:,} launches by PKS, random and systematic\n"
    yield "| executor | wall, s | tasks side by side | efficiency | load while it ran |"
    yield "|---|---:|---:|---:|---:|"
    rounds: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="assay-scale-") as folder, ExitStack() as stack:
        request = made_request(Path(folder), workloads, _LAUNCHES, methods=_METHODS)
        small = made_request(Path(folder) / "small", 2 * _WORKERS, 400, methods=_METHODS)
        cases: dict[str, tuple[int, Executors]] = {
            "a pool of 1 process": (1, WorkerPool(1)),
            f"a pool of {_WORKERS} processes": (_WORKERS, WorkerPool(_WORKERS)),
            f"Dask with {_WORKERS} workers": (_WORKERS, DaskWorkers(stack.enter_context(OwnDask()).place)),
        }
        reports: set[Pages] = set()
        for _ in range(size.rounds):
            for name, (_, executors) in cases.items():
                rounds.setdefault(name, []).append(_round(executors, small, request, reports))
    alone = rounds["a pool of 1 process"]
    for name, (side_by_side, _) in cases.items():
        found = rounds[name]
        ratios = [one[0] / (side_by_side * mine[0]) for one, mine in zip(alone, found, strict=True)]
        yield (
            f"| {name} | {statistics.median(each[0] for each in found):.1f} | {side_by_side} | "
            f"{100 * statistics.median(ratios):.0f} % | {statistics.median(each[1] for each in found):.1f} |"
        )
    goals.append(Goal("different reports of the same runs", f"{len(reports) - 1}", "0", len(reports) == 1))
    yield "\nEfficiency: the seconds of one process, shared out evenly, beside the seconds measured."


def _round(
    executors: Executors, small: AnalysisRequest, request: AnalysisRequest, reports: set[Pages]
) -> tuple[float, float]:
    executor = _when_there(executors)
    submit_analysis(executor, small).result(_SECONDS)
    started = time.perf_counter()
    reports.add(submit_analysis(executor, request).result(_SECONDS))
    took = time.perf_counter() - started
    load = os.getloadavg()[0]
    executors.end()
    return took, load


def _when_there(executors: Executors) -> Executor:
    deadline = time.monotonic() + 120
    while True:
        try:
            return executors()
        except WorkersAwayError:
            if time.monotonic() > deadline:
                raise
