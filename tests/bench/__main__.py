"""``make bench``: every case in one run, medians of five, and a page of results.

python -m tests.bench [--runs N] [--scale PERCENT] [--output docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow
import sklearn
from tests.bench.measure import Result, run_case


@dataclass(frozen=True)
class Case:
    """A named case: the title people read, where it is, and launches at full scale."""

    title: str
    module: str
    function: str
    launches: int


INGEST = (
    Case("Assay: agent spool to published Parquet", "tests.bench.ingest", "assay", 1_000_000),
    Case("Arrow Flight do_put to the same Parquet", "tests.bench.peers", "arrow_flight", 1_000_000),
    Case("one launch a gRPC message, one fsync", "tests.bench.peers", "one_launch_per_message", 20_000),
)
CLASSIFY = (
    Case("Assay, 3,000 distinct", "tests.bench.classify", "assay_few", 5_300_000),
    Case("scikit-learn predict, 3,000 distinct", "tests.bench.classify", "scikit_learn_few", 100_000),
    Case("Assay, 500,000 distinct", "tests.bench.classify", "assay_many", 5_300_000),
    Case("scikit-learn predict, 500,000 distinct", "tests.bench.classify", "scikit_learn_many", 100_000),
)
SELECTION = (
    Case("STEM+ROOT, columns to weights", "tests.bench.selection", "stem", 5_300_000),
    Case("STEM+ROOT, scored and hashed", "tests.bench.selection", "stem_whole", 5_300_000),
    Case("one numpy.lexsort by kernel and duration", "tests.bench.selection", "stem_sort", 5_300_000),
    Case("Sieve, columns to weights", "tests.bench.selection", "sieve", 1_072_246),
    Case("Sieve, scored and hashed", "tests.bench.selection", "sieve_whole", 1_072_246),
    Case("one pyarrow sort by kernel and instructions", "tests.bench.selection", "sieve_sort", 1_072_246),
)


def main() -> None:
    """Measure, print, and write the page where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=100.0, help="percent of the launches of each case")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    lines = [*_machine(arguments.runs)]
    print("\n".join(lines), flush=True)
    for title, cases in (
        ("Ingest", INGEST),
        ("Encode and predict, three shared models", CLASSIFY),
        ("Sieve and STEM+ROOT", SELECTION),
    ):
        for line in _section(title, cases, arguments.runs, arguments.scale / 100):
            print(line, flush=True)
            lines.append(line)
            if arguments.output:
                arguments.output.write_text("\n".join([_PAGE_HEAD, *lines, _PAGE_FOOT]))


def _machine(runs: int) -> Iterator[str]:
    memory = psutil.virtual_memory().total / 2**30
    yield (
        f"Machine: {os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB memory; "
        f"Python {platform.python_version()}, pyarrow {pyarrow.__version__}, "
        f"scikit-learn {sklearn.__version__}; "
        f"OMP_NUM_THREADS=1; medians of {runs} fresh processes."
    )


def _section(title: str, cases: Sequence[Case], runs: int, scale: float) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield "| case | launches | seconds | launches per second | beside the first | peak memory, MiB |"
    yield "|---|---:|---:|---:|---:|---:|"
    results: list[Result] = []
    for case in cases:
        launches = max(1, int(case.launches * scale))
        result = run_case(case.module, case.function, launches, runs)
        results.append(result)
        ratio = result.launches_per_second / results[0].launches_per_second
        yield (
            f"| {case.title} | {result.launches:,} | {result.seconds:.2f} | "
            f"{result.launches_per_second:,.0f} | {ratio:.3g} | {result.peak_bytes / 2**20:,.0f} |"
        )
        if "durable_seconds" in result.extra:
            extra = result.extra
            rate = extra["durable_launches_per_second"]
            yield (
                f"| of that, until every segment is durable and acknowledged "
                f"({extra['durable_segments_per_second']:.1f} segments/s) | {result.launches:,} | "
                f"{extra['durable_seconds']:.2f} | {rate:,.0f} | "
                f"{rate / results[0].launches_per_second:.3g} | |"
            )


_PAGE_HEAD = """\
# Benchmarks

Written by `make bench BENCH_ARGS='--output docs/benchmarks.md'`. Launches are synthetic, from a seeded
generator: these numbers say how fast the program is, nothing about any GPU. There is no target here; peers
are named, run in the same call, and end in the same state.
"""
_PAGE_FOOT = """
## How to read this

- *Ingest* begins with launches on the sender's disk and ends with one fsynced zstd Parquet file in row groups
  of 131,072 launches. We also validate every batch and name, fsync every segment before acknowledging it, and
  keep an attempt's state in SQLite; Flight and the message stream do none of that.
- *Encode and predict* gives every launch a group by SGD, GaussianNB and an MLP that were trained before the
  clock starts. Plain scikit-learn encodes and predicts every launch, 100,000 at a time; only its first chunk
  is run, and its rate is that one's. Ours classifies distinct signatures once and broadcasts.
- *Sieve and STEM+ROOT* are CPU seconds, the best of three in each process. To weights: from the columns to
  representatives and weights; scored and hashed: `select(...)`. One sort of the same columns stands beside.
- Peak memory is of the whole process, the generated launches included.
"""


if __name__ == "__main__":
    main()
