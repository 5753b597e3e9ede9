"""Section ``engine``: group-by and sort beyond memory beside plain DuckDB, and selections within 2 GiB.

A round runs each case once, in a process of its own. A share above 1 (``--scale 1000``) makes the recording
that is selected from larger, 100 million launches, and nothing else.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.lab.goals import Goal
from tests.bench.scale.sections import ScaleSize

GROUP_KEYS = ("kernel_id", "grid_x", "duration_ns")
SORT_KEYS = ("duration_ns", "launch")
# As much of a GiB as leaves room for Python and Arrow.
ENGINE_BYTES = 600_000_000
_ROWS, _FILES, _LAUNCHES = 50_000_000, 40, 10_000_000
_MOST_RATIO = 1.2
_GIB = 1 << 30
_LIMIT_BYTES = 2 * _GIB
# In memory, selections are compared with those on disk up to here: they take 600 bytes a launch.
_MOST_IN_MEMORY, _ENOUGH_BYTES = 10_000_000, 16 * _GIB


def engine_page(size: ScaleSize, goals: list[Goal]) -> Iterator[str]:
    """The section's lines."""
    with tempfile.TemporaryDirectory(prefix="assay-scale-engine-") as made:
        yield from _operations(Path(made), size, goals)
    with tempfile.TemporaryDirectory(prefix="assay-scale-engine-") as made:
        yield from _selections(Path(made), size, goals)


def _operations(folder: Path, size: ScaleSize, goals: list[Goal]) -> Iterator[str]:
    from tests.bench.scale.made_files import light_file  # noqa: PLC0415 - it takes its time

    rows = max(_FILES, round(_ROWS * min(size.share, 1.0)))
    for number in range(_FILES):
        light_file(folder / f"{number:02}.parquet", rows // _FILES, number * (rows // _FILES))
    yield f"\n## Engine: {rows:,} launches in {_FILES} files, in 1 GiB (600 MB for the engine)\n"
    yield "| case | seconds | CPU seconds | beside plain DuckDB, CPU | peak memory, MiB |"
    yield "|---|---:|---:|---:|---:|"
    for what in ("group", "sort"):
        rounds = [(_run(what, folder), _run(f"plain-{what}", folder)) for _ in range(size.rounds)]
        ratio = statistics.median(ours["cpu"] / plain["cpu"] for ours, plain in rounds)
        ours, plain = ([each[side] for each in rounds] for side in (0, 1))
        yield f"| {what}: ours, in a fixed order | {_shown(ours)} | {ratio:.2f} | {_peak(ours)} |"
        yield f"| {what}: plain DuckDB | {_shown(plain)} | 1 | {_peak(plain)} |"
        if rows == _ROWS:  # in fewer, starting a program is most of the time
            goals.append(
                Goal(
                    f"{what} over {rows:,} launches: CPU seconds, ours / plain DuckDB",
                    f"{ratio:.2f}",
                    f"at most {_MOST_RATIO}",
                    ratio <= _MOST_RATIO,
                )
            )
        most = max(each["peak"] for each in ours)
        goals.append(Goal(f"{what}: peak memory, MiB", f"{most >> 20}", "at most 1,024", most <= _GIB))


def _selections(folder: Path, size: ScaleSize, goals: list[Goal]) -> Iterator[str]:
    from tests.bench.scale.made_files import counted_file  # noqa: PLC0415

    launches = size.of(_LAUNCHES, 20_000)
    path = folder / "recording.parquet"
    counted_file(path, launches)
    yield f"\n## Selections from {launches:,} launches, a file of {path.stat().st_size >> 20:,} MiB\n"
    yield "| method | memory limit | on disk | seconds | CPU seconds | reading | groups | peak, MiB |"
    yield "|---|---:|---|---:|---:|---:|---:|---:|"
    for method in ("pks", "sieve", "stem"):
        limits = [_LIMIT_BYTES, *([_ENOUGH_BYTES] if launches <= _MOST_IN_MEMORY else [])]
        found = [_run("select", method, path, limit, folder) for limit in limits]
        for limit, each in zip(limits, found, strict=True):
            yield (
                f"| {method} | {limit // _GIB} GiB | {'yes' if each['on_disk'] else 'no'} | "
                f"{each['seconds']:.1f} | {each['cpu']:.1f} | {each['read_cpu']:.1f} | {each['groups']:,} | "
                f"{each['peak'] >> 20:,} |"
            )
        most = found[0]["peak"]
        goals.append(
            Goal(
                f"{method} from {launches:,} launches: peak memory, MiB",
                f"{most >> 20:,}",
                "at most 2,048",
                most <= _LIMIT_BYTES,
            )
        )
        if len(found) > 1:
            equal = len({each["hash"] for each in found}) == 1
            goals.append(
                Goal(f"{method}: the same document on disk and in memory", str(equal), "True", equal)
            )


def _run(*arguments: object) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.scale.engine_work", *map(str, arguments)],
        cwd=Path(__file__).resolve().parents[3],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict = json.loads(done.stdout.splitlines()[-1])
    return found


def _shown(rounds: list[dict]) -> str:
    medians = (statistics.median(each[what] for each in rounds) for what in ("seconds", "cpu"))
    return " | ".join(f"{each:.1f}" for each in medians)


def _peak(rounds: list[dict]) -> str:
    return f"{max(each['peak'] for each in rounds) >> 20:,}"
