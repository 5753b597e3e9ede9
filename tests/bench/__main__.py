"""``make bench``: every case in one run, medians of five, the ratios we promise, and a page of results.

python -m tests.bench [--runs N] [--scale PERCENT] [--only SECTION ...] [--output docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil
import pyarrow
import sklearn

from tests.bench.cases import PROMISES, SECTIONS, Case, Promise, Section
from tests.bench.grouping import recording
from tests.bench.lab.goals import Goal
from tests.bench.lab.measuring import LabSize, lab_page
from tests.bench.live_page import live_page
from tests.bench.measure import Result, run_alternating, run_case

_LAB, _WEB = "lab", "web"
Results = dict[tuple[str, int], Result]
# Inertias are sums of 20,000 squares, added in other orders.
_SAME_INERTIA = 1 + 1e-9


def main() -> int:
    """Measure, print, and write the page where one is asked for; 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=100.0, help="percent of the launches of each case")
    parser.add_argument("--only", nargs="*", choices=[*(section.name for section in SECTIONS), _LAB, _WEB])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    lines, results, goals = [], Results(), list[Goal]()
    for line in _page(arguments.runs, arguments.scale / 100, arguments.only, results, goals):
        print(line, flush=True)
        lines.append(line)
        if arguments.output:
            arguments.output.write_text("\n".join([_PAGE_HEAD, *lines, _PAGE_FOOT]))
    return exit_code([*judged_promises(results), *goals])


def exit_code(goals: Iterable[Goal]) -> int:
    """1 if a goal does not hold, and a line on standard error for each such goal."""
    missed = [goal for goal in goals if not goal.holds]
    for goal in missed:
        print(f"missed: {goal.text}: {goal.measured}, {goal.bound}", file=sys.stderr)
    return 1 if missed else 0


def _page(
    runs: int, scale: float, only: list[str] | None, results: Results, goals: list[Goal]
) -> Iterator[str]:
    """The page's lines as they are measured; adds to ``results`` and ``goals``."""
    yield _machine(runs)
    for section in SECTIONS:
        if section.name in only if only else not section.when_named:
            yield from _table(section, runs, scale, results)
    if not only or _LAB in only:
        yield from lab_page(LabSize().scaled(scale), goals)
    if not only or _WEB in only:
        yield from live_page(scale, goals)
    yield from _promises(results, goals)


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
    for case, result in _measured(section, min(runs, section.runs), scale):
        if result is None:
            yield f"| {case.title} | left out: no recording at {recording().name} | | | | |"
            continue
        results.setdefault(case.key, result)  # a section of fewer runs may have the same case
        first = first or result
        yield from _rows(case, result, first)


def _measured(section: Section, runs: int, scale: float) -> Iterator[tuple[Case, Result | None]]:
    """The cases with their results; None for one whose recording is not at hand."""
    asked = [(each.module, each.function, max(1, int(each.launches * scale))) for each in section.cases]
    if section.alternating:
        yield from zip(section.cases, run_alternating(asked, runs), strict=True)
        return
    for case, call in zip(section.cases, asked, strict=True):
        missing = case.needs_recording and not recording().is_file()
        yield case, None if missing else run_case(*call, runs)


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
    if "server_cpu_seconds" in result.extra:
        million = result.launches / 1e6
        peer = "sender" if "sender_cpu_seconds" in result.extra else "receiver"
        ours, server = (result.extra[f"{who}_cpu_seconds"] / million for who in (peer, "server"))
        yield (
            f"| CPU seconds a million launches: {peer} {ours:.2f}, server {server:.2f} | | | | | "
            f"server {result.extra['server_peak_bytes'] / 2**20:,.0f} |"
        )


def judged_promises(results: Mapping[tuple[str, int], Result]) -> Iterator[Goal]:
    """The ratios of the cases that were run, each with its bound."""
    for promise in PROMISES:
        if promise.above.key in results and promise.below.key in results:
            above, below = results[promise.above.key], results[promise.below.key]
            yield Goal(promise.text, *_judged(promise, above, below))


def _promises(results: Mapping[tuple[str, int], Result], goals: list[Goal]) -> Iterator[str]:
    """The ratios of the cases that were run, each beside its bound, and the goals of the lab."""
    judged = [*judged_promises(results), *goals]
    if not judged:
        return
    yield "\n## What we promise\n"
    yield "| ratio | measured | bound | holds |"
    yield "|---|---:|---:|---|"
    for goal in judged:
        holds = "yes" if goal.holds else "**no**"
        yield f"| {goal.text} | {goal.measured} | {goal.bound} | {holds} |"


def _judged(promise: Promise, above: Result, below: Result) -> tuple[str, str, bool]:
    if promise.figure == "inertia":
        worst = max(below.extra[name] / above.extra[name] for name in below.extra if "inertia" in name)
        return f"{worst:.6f}", "at most 1", worst <= _SAME_INERTIA
    if promise.figure == "paired":
        return _bounded(promise, _paired(above, below))
    figures = {
        "server_peak_bytes": lambda result: result.extra["server_peak_bytes"],
        "seconds_per_launch": lambda result: 1 / result.launches_per_second,
        "seconds": lambda result: result.seconds,
        "peak_bytes": lambda result: float(result.peak_bytes),
    }
    return _bounded(promise, figures[promise.figure](above) / figures[promise.figure](below))


def _paired(above: Result, below: Result) -> float:
    """The median of the ratios of seconds a launch, of runs that followed one another."""
    ratios = [a / b for a, b in zip(above.each_seconds, below.each_seconds, strict=True)]
    return statistics.median(ratios) * below.launches / above.launches


def _bounded(promise: Promise, ratio: float) -> tuple[str, str, bool]:
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

- *Ingest* begins with launches on the sender's disk and ends with one fsynced zstd Parquet file for each
  sender, in row groups of 131,072 launches. Only ours validates every batch and name, fsyncs every segment
  before acknowledging it, keeps state in SQLite, writes checksums, and sends segments compressed. Cases
  alternate, and a promise takes the median of each round's ratios.
- *Download* is over a Unix socket. A copy checks nothing; `assay lab fetch` checks each file's hash and makes
  it durable; record batches are decoded, compressed and validated.
- *PKS* groups the same rows as the peer, which runs `KMeans(n_init=10)` for each K: timed with one seed, its
  inertias medians of ten.
- *Encode and predict* gives every launch a group by SGD, GaussianNB and an MLP trained beforehand. Plain
  scikit-learn takes 100,000 launches at a time, and its first chunk gives the rate.
- *Sieve and STEM+ROOT* are CPU seconds, the best of three in each process. "To weights" goes from the columns
  to representatives and weights; "scored and hashed" is `select(...)`.
- *A lab* has simulated agents in one process; heartbeats are timed from the moment they are due. Runs of 0 s
  show the most that server and machine finish together; a lease's ratios are of CPU time.
- *A live page* is drawn anew twice a second; watching is compared with the same changes without watchers.
- The command exits with 1 if a promise is missed. Peak memory includes the generated launches.
"""


if __name__ == "__main__":
    sys.exit(main())
