"""``make bench``: every case in one run, medians of five, the ratios we promise, and a page of results.

python -m tests.bench [--runs N] [--scale PERCENT] [--only SECTION ...] [--output docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pyarrow
import sklearn

from tests.bench.cases import PROMISES, SECTIONS, Case, Promise, Section
from tests.bench.grouping import recording
from tests.bench.lab.measuring import LabSize, lab_page
from tests.bench.measure import Result, run_case

_LAB = "lab"
Results = dict[tuple[str, int], Result]
# Inertias are sums of 20,000 squares, added in other orders.
_SAME_INERTIA = 1 + 1e-9


def main() -> None:
    """Measure, print, and write the page where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=100.0, help="percent of the launches of each case")
    parser.add_argument("--only", nargs="*", choices=[*(section.name for section in SECTIONS), _LAB])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    lines, results = [], Results()
    for line in _page(arguments.runs, arguments.scale / 100, arguments.only, results):
        print(line, flush=True)
        lines.append(line)
        if arguments.output:
            arguments.output.write_text("\n".join([_PAGE_HEAD, *lines, _PAGE_FOOT]))


def _page(runs: int, scale: float, only: list[str] | None, results: Results) -> Iterator[str]:
    yield _machine(runs)
    for section in SECTIONS:
        if not only or section.name in only:
            yield from _table(section, runs, scale, results)
    if not only or _LAB in only:
        yield from lab_page(LabSize().scaled(scale))
    yield from _promises(results)


def _machine(runs: int) -> str:
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"Machine: {os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB memory; "
        f"Python {platform.python_version()}, pyarrow {pyarrow.__version__}, "
        f"scikit-learn {sklearn.__version__}; "
        f"OMP_NUM_THREADS=1; medians of {runs} fresh processes."
    )


def _table(section: Section, runs: int, scale: float, results: Results) -> Iterator[str]:
    yield f"\n## {section.title}\n"
    yield "| case | launches | seconds | launches per second | relative to the first | peak memory, MiB |"
    yield "|---|---:|---:|---:|---:|---:|"
    first: Result | None = None
    for case in section.cases:
        if case.needs_recording and not recording().is_file():
            yield f"| {case.title} | left out: no recording at {recording().name} | | | | |"
            continue
        result = run_case(case.module, case.function, max(1, int(case.launches * scale)), runs)
        results[case.key] = result
        first = first or result
        yield from _rows(case, result, first)


def _rows(case: Case, result: Result, first: Result) -> Iterator[str]:
    ratio = result.launches_per_second / first.launches_per_second
    yield (
        f"| {case.title} | {result.launches:,} | {result.seconds:.3g} | "
        f"{result.launches_per_second:,.0f} | {ratio:.3g} | {result.peak_bytes / 2**20:,.0f} |"
    )
    if "durable_seconds" in result.extra:
        extra = result.extra
        rate = extra["durable_launches_per_second"]
        yield (
            f"| of that, until every segment is durable and acknowledged "
            f"({extra['durable_segments_per_second']:.1f} segments/s) | {result.launches:,} | "
            f"{extra['durable_seconds']:.2f} | {rate:,.0f} | "
            f"{rate / first.launches_per_second:.3g} | |"
        )


def _promises(results: Mapping[tuple[str, int], Result]) -> Iterator[str]:
    """The ratios of the cases that were run, each beside its bound."""
    kept = [p for p in PROMISES if p.above.key in results and p.below.key in results]
    if not kept:
        return
    yield "\n## What we promise\n"
    yield "| ratio | measured | bound | holds |"
    yield "|---|---:|---:|---|"
    for promise in kept:
        above, below = results[promise.above.key], results[promise.below.key]
        measured, bound, holds = _judged(promise, above, below)
        yield f"| {promise.text} | {measured} | {bound} | {'yes' if holds else '**no**'} |"


def _judged(promise: Promise, above: Result, below: Result) -> tuple[str, str, bool]:
    if promise.figure == "inertia":
        worst = max(below.extra[name] / above.extra[name] for name in below.extra if "inertia" in name)
        return f"{worst:.6f}", "at most 1", worst <= _SAME_INERTIA
    figures = {
        "seconds_per_launch": lambda result: 1 / result.launches_per_second,
        "seconds": lambda result: result.seconds,
        "peak_bytes": lambda result: float(result.peak_bytes),
    }
    ratio = figures[promise.figure](above) / figures[promise.figure](below)
    if promise.at_least is not None:
        return f"{ratio:.3g}", f"at least {promise.at_least:g}", ratio >= promise.at_least
    assert promise.at_most is not None
    return f"{ratio:.3g}", f"at most {promise.at_most:g}", ratio <= promise.at_most


_PAGE_HEAD = """\
# Benchmarks

Written by `make bench BENCH_ARGS='--output docs/benchmarks.md'`. Launches are synthetic, from a seeded
generator: these numbers say how fast the program is, nothing about any GPU. Peers are named, run in the same
call, and end in the same state.
"""
_PAGE_FOOT = """
## How to read this

- *Ingest* begins with launches on the sender's disk and ends with one fsynced zstd Parquet file in row groups
  of 131,072 launches. We also validate every batch and name, fsync every segment before acknowledging it, and
  keep an attempt's state in SQLite; Flight and the message stream do none of that.
- *PKS* groups the same standardised, projected rows as the peer, which runs `KMeans(n_init=10)` for each K on
  all of them. The peer's time is that of one seed; its inertias are medians of the seeds 0 to 9. The
  recording is the synthetic raw page of 5,000 launches that the tests also read.
- *Encode and predict* gives every launch a group by SGD, GaussianNB and an MLP that were trained before the
  clock starts. Plain scikit-learn encodes and predicts every launch, 100,000 at a time; only its first chunk
  runs, and gives the rate. Ours classifies distinct signatures once and broadcasts.
- *Sieve and STEM+ROOT* are CPU seconds, the best of three in each process. "To weights" goes from the columns
  to representatives and weights; "scored and hashed" is `select(...)`. Compare them with one sort of the same
  columns.
- *Streams* never hold all launches, so their memory must not grow with the launches.
- *A lab*: simulated agents, each with a connection of its own, in one process; heartbeats are timed from the
  moment they are due. Runs of 0 s show the most that server and machine finish together.
- Peak memory is that of the whole process, including the generated launches.
"""


if __name__ == "__main__":
    main()
