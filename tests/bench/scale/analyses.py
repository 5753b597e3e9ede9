"""Analyses: 40 workloads in a process, in a pool of two processes, and by two workers of a Dask scheduler."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from assay_server.analysis.runs.request import AnalysisRequest
from assay_server.campaigns.analysing.dask_workers import DaskWorkers
from assay_server.campaigns.analysing.executors import Executors, WorkerPool, WorkersAwayError
from assay_server.campaigns.analysing.job import Pages, submit_analysis
from tests.bench.lab.goals import Goal
from tests.bench.scale.sections import ScaleSize
from tests.services.dask_cluster import OwnDask
from tests.support.server.workloads_to_analyse import made_request

_WORKLOADS, _LAUNCHES = 40, 4_000
_WORKERS = 2
_SECONDS = 1_800
_DASK = f"Dask with {_WORKERS} workers"
_MOST_CPU = 1.2
_METHODS: tuple[tuple[str, dict[str, object]], ...] = (("pks", {}), ("random", {}), ("systematic", {}))


def analyses_page(size: ScaleSize, goals: list[Goal]) -> Iterator[str]:
    """The section's lines. Each executor has loaded its libraries before it is measured."""
    workloads = size.of(_WORKLOADS, 4)
    yield f"\n## Analyses: {workloads} workloads of {_LAUNCHES:,} launches by PKS, random and systematic\n"
    yield "| executor | wall, s | tasks side by side | efficiency | CPU, s | CPU / pool's | load |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    rounds: dict[str, list[_Round]] = {}
    with tempfile.TemporaryDirectory(prefix="assay-scale-") as folder, ExitStack() as stack:
        request = made_request(Path(folder), workloads, _LAUNCHES, methods=_METHODS)
        small = made_request(Path(folder) / "small", 2 * _WORKERS, 400, methods=_METHODS)
        cases: dict[str, tuple[int, Executors]] = {
            "a pool of 1 process": (1, WorkerPool(1)),
            f"a pool of {_WORKERS} processes": (_WORKERS, WorkerPool(_WORKERS)),
            _DASK: (_WORKERS, DaskWorkers(stack.enter_context(OwnDask()).place)),
        }
        reports: set[Pages] = set()
        for _ in range(size.rounds):
            for name, (_, executors) in cases.items():
                rounds.setdefault(name, []).append(_round(executors, small, request, reports))
    cpu: dict[str, float] = {}
    alone, pool = rounds["a pool of 1 process"], rounds[f"a pool of {_WORKERS} processes"]
    for name, (side_by_side, _) in cases.items():
        found = rounds[name]
        wall = [one.wall_s / (side_by_side * mine.wall_s) for one, mine in zip(alone, found, strict=True)]
        cpu[name] = statistics.median(m.cpu_s / two.cpu_s for m, two in zip(found, pool, strict=True))
        seconds = statistics.median(each.wall_s for each in found)
        cpu_s = statistics.median(each.cpu_s for each in found)
        yield (
            f"| {name} | {seconds:.1f} | {side_by_side} | {100 * statistics.median(wall):.0f} % | "
            f"{cpu_s:.1f} | {cpu[name]:.2f} | {statistics.median(each.load for each in found):.1f} |"
        )
    goals.append(Goal("different reports of the same runs", f"{len(reports) - 1}", "0", len(reports) == 1))
    ratio = cpu[_DASK]
    goals.append(
        Goal("CPU of Dask beside the pool's", f"{ratio:.2f}", f"at most {_MOST_CPU}", ratio <= _MOST_CPU)
    )
    yield "\nEfficiency: the seconds of one process, shared out evenly, beside the seconds measured."
    yield "CPU: of all processes, also Dask's scheduler and nanny, which take some in every second."


@dataclass(frozen=True)
class _Round:
    wall_s: float
    cpu_s: float
    load: float


def _round(
    executors: Executors, small: AnalysisRequest, request: AnalysisRequest, reports: set[Pages]
) -> _Round:
    executor = _when_there(executors)
    submit_analysis(executor, small).result(_SECONDS)
    began, started = _cpu_of_all(), time.perf_counter()
    reports.add(submit_analysis(executor, request).result(_SECONDS))
    found = _Round(time.perf_counter() - started, _cpu_of_all() - began, os.getloadavg()[0])
    executors.end()
    return found


def _cpu_of_all() -> float:
    """CPU seconds so far of this process and those below it, none of which ends while it is measured."""
    own = psutil.Process()
    times = [each.cpu_times() for each in (own, *own.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def _when_there(executors: Executors) -> Executor:
    deadline = time.monotonic() + 120
    while True:
        try:
            return executors()
        except WorkersAwayError:
            if time.monotonic() > deadline:
                raise
