"""Runs a case in a fresh process, several times, and keeps the medians.

A case is a module-level function ``case(scale) -> Measurement``; a fresh process gives each run cold caches
of our own and its own peak of resident memory.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_CLOCK_RESOLUTION_SECONDS = time.get_clock_info("perf_counter").resolution


@dataclass(frozen=True)
class Measurement:
    """One run of a case: launches handled, the seconds that took, and extra figures by name."""

    launches: int
    seconds: float
    extra: dict[str, float]


@dataclass(frozen=True)
class Result:
    """Medians over the runs of a case. Peak memory is of the whole process, set-up included.

    ``each_seconds``: of each run, in order.
    """

    name: str
    runs: int
    launches: int
    seconds: float
    peak_bytes: int
    extra: dict[str, float]
    each_seconds: tuple[float, ...] = ()

    @property
    def launches_per_second(self) -> float:
        # A clock that did not advance means: faster than its resolution.
        return self.launches / max(self.seconds, _CLOCK_RESOLUTION_SECONDS)


def run_case(module: str, name: str, scale: int, runs: int) -> Result:
    """Run ``module.name(scale)`` in ``runs`` fresh processes; medians of every figure."""
    return _medians(name, [_one_run(module, name, scale) for _ in range(runs)])


def run_alternating(cases: Sequence[tuple[str, str, int]], runs: int) -> list[Result]:
    """As :func:`run_case` for several cases (module, name, scale), a run of each in turn.

    What else the machine does meanwhile then slows all of them, and runs of one round may be compared.
    """
    documents: list[list[dict]] = [[] for _ in cases]
    for _ in range(runs):
        for case, found in zip(cases, documents, strict=True):
            found.append(_one_run(*case))
    return [_medians(case[1], found) for case, found in zip(cases, documents, strict=True)]


def _medians(name: str, documents: list[dict]) -> Result:
    each = tuple(d["seconds"] for d in documents)
    peak = statistics.median(d["peak_bytes"] for d in documents)
    keys = documents[0]["extra"]
    extra = {k: statistics.median(d["extra"][k] for d in documents) for k in keys}
    launches = documents[0]["launches"]
    return Result(name, len(documents), launches, statistics.median(each), int(peak), extra, each)


def _one_run(module: str, name: str, scale: int) -> dict:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.measure", module, name, str(scale)],
        cwd=Path(__file__).resolve().parents[2],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def peak_bytes() -> int:
    """Peak resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Entry of the fresh process: run one case and print its measurement as JSON."""
    module, name, scale = sys.argv[1], sys.argv[2], int(sys.argv[3])
    measurement = getattr(importlib.import_module(module), name)(scale)
    print(json.dumps({**asdict(measurement), "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main()
