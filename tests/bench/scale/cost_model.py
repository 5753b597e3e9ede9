"""The cost model of docs/scale.md: what selections beyond memory cost by the number of launches, fitted.

python -m tests.bench.scale.cost_model measure FOLDER --launches 1000000 10000000 [--methods sieve,stem]
python -m tests.bench.scale.cost_model fit

``measure`` makes recordings in FOLDER (49 bytes a launch; with 100 million a method takes five minutes of a
core) and adds a line for each selection to the measured points. Those with ``release`` are of an earlier one.
``fit`` prints the tables that the page has from these points (``make docs`` writes them there).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy.optimize import nnls

MEASURED = Path(__file__).with_name("measured_selections.jsonl")
METHODS = ("pks", "sieve", "stem")
_LIMIT_BYTES = 2 << 30
_MILLION = 1_000_000
# Ten billion launches as so many recordings of so many launches.
_RECORDINGS, _LAUNCHES_OF_EACH = 1_000, 10 * _MILLION


@dataclass(frozen=True)
class Point:
    """What a step took for this many launches: CPU seconds, or bytes of scratch space."""

    launches: int
    cost: float


@dataclass(frozen=True)
class Line:
    """``fixed`` + ``each`` for every million launches."""

    fixed: float
    each: float

    @classmethod
    def through(cls, points: Sequence[Point]) -> Line:
        """The line of least squared relative errors, neither part negative; of fewer than two sizes, the
        one through the origin."""
        millions = np.array([point.launches / _MILLION for point in points])
        costs = np.array([point.cost for point in points])
        if len(set(millions.tolist())) < 2:
            return cls(0.0, float(np.mean(costs / millions)))
        columns = np.stack([np.ones_like(costs), millions], axis=1) / costs[:, None]
        fixed, each = nnls(columns, np.ones_like(costs))[0]
        return cls(float(fixed), float(each))

    @classmethod
    def of_largest(cls, points: Sequence[Point]) -> Line:
        """What each launch of the largest costs, for costs that grow a little with the size (a launch in a
        file): a line through all would be above the small and below the large."""
        largest = max(point.launches for point in points)
        return cls.through([point for point in points if point.launches == largest])

    def at(self, launches: int) -> float:
        """The cost of this many launches."""
        return self.fixed + self.each * launches / _MILLION


def measured(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The selections that were measured, one a line of JSON."""
    return [json.loads(line) for line in lines if line.strip()]


def cpu_points(found: Sequence[dict[str, Any]]) -> dict[str, list[Point]]:
    """CPU seconds by step: "read", which all methods share, and each method after it."""
    steps = {"read": [Point(each["launches"], each["read_cpu"]) for each in found if each["read_cpu"]]}
    for method in METHODS:
        steps[method] = [
            Point(each["launches"], each["select_cpu"]) for each in found if each["method"] == method
        ]
    return steps


def scratch_points(found: Sequence[dict[str, Any]]) -> dict[str, list[Point]]:
    """Bytes of scratch space by method, where a process selected by that method alone."""
    return {
        method: [
            Point(each["launches"], each["scratch"])
            for each in found
            if each["method"] == method and each["scratch"] is not None
        ]
        for method in METHODS
    }


def off_percent(line: Line, point: Point) -> float:
    """How far the line is off at a point, in percent of what was measured."""
    return 100.0 * (line.at(point.launches) / point.cost - 1.0)


def page(found: Sequence[dict[str, Any]]) -> str:
    """The tables of the model: its lines, how far each is off at each point, and what it says of more."""
    steps, scratch = cpu_points(found), scratch_points(found)
    lines = {step: Line.through(points) for step, points in steps.items()}
    space = {method: Line.of_largest(points) for method, points in scratch.items()}
    return "\n".join(
        [
            *_lines_table(lines, space),
            "",
            *_points_table(steps, lines, found),
            "",
            *_beyond_table(lines, space),
        ]
    )


_STEPS = {"read": "reading, checking, and writing", "pks": "PKS", "sieve": "Sieve", "stem": "STEM"}


def _lines_table(lines: dict[str, Line], scratch: dict[str, Line]) -> Iterator[str]:
    yield "| the model | CPU s, fixed | CPU s a million launches | bytes of scratch a launch |"
    yield "|---|---:|---:|---:|"
    for step, line in lines.items():
        space = f"{scratch[step].each / _MILLION:.0f}" if step in scratch else ""
        yield f"| {_STEPS[step]} | {line.fixed:.1f} | {line.each:.2f} | {space} |"


def _points_table(
    steps: dict[str, list[Point]], lines: dict[str, Line], found: Sequence[dict[str, Any]]
) -> Iterator[str]:
    yield "| step | launches | CPU s measured | model off by | fitted to the smaller ones | peak, MiB |"
    yield "|---|---:|---:|---:|---:|---:|"
    for step, points in steps.items():
        largest = max(point.launches for point in points)
        smaller = Line.through([point for point in points if point.launches < largest])
        for launches in sorted({point.launches for point in points}):
            here = [point for point in points if point.launches == launches]
            mean = Point(launches, float(np.mean([point.cost for point in here])))
            ahead = f"{off_percent(smaller, mean):+.0f} %" if launches == largest else ""
            off = f"{off_percent(lines[step], mean):+.0f} %"
            peak = _peak(found, step, launches)
            yield f"| {_STEPS[step]} | {launches:,} | {mean.cost:,.1f} | {off} | {ahead} | {peak} |"


def _peak(found: Sequence[dict[str, Any]], step: str, launches: int) -> str:
    peaks = [each["peak"] for each in found if each["method"] == step and each["launches"] == launches]
    return f"{max(peaks) >> 20:,}" if peaks else ""


def _beyond_table(lines: dict[str, Line], scratch: dict[str, Line]) -> Iterator[str]:
    yield "| by the model | CPU hours | scratch, GB |"
    yield "|---|---:|---:|"
    for launches in (100 * _MILLION, 1_000 * _MILLION):
        for method in METHODS:
            hours = (lines["read"].at(launches) + lines[method].at(launches)) / 3600
            space = scratch[method].at(launches) / 1e9
            yield f"| {_STEPS[method]}, {launches:,} launches in one recording | {hours:.2f} | {space:,.0f} |"
    cpu = _RECORDINGS * sum(line.at(_LAUNCHES_OF_EACH) for line in lines.values()) / 3600
    space = max(line.at(_LAUNCHES_OF_EACH) for line in scratch.values()) / 1e9
    what = f"all three methods, {_RECORDINGS:,} recordings of {_LAUNCHES_OF_EACH:,}, each read once"
    yield f"| {what} | {cpu:.0f} | {space:.1f} a worker |"


def measure(folder: Path, sizes: Sequence[int], methods: Sequence[str], output: Path) -> None:
    """Measure each method with each size in a process of its own, and add the lines to ``output``."""
    from tests.bench.scale.made_files import counted_file  # noqa: PLC0415 - it takes its time

    for launches in sizes:
        path = folder / f"counted-{launches}.parquet"
        if not path.exists():
            counted_file(path, launches)
        for method in methods:
            with tempfile.TemporaryDirectory(prefix="assay-scale-", dir=folder) as scratch:
                line = _one(method, path, scratch)
            with output.open("a") as file:
                file.write(json.dumps(line) + "\n")


def _one(method: str, path: Path, scratch: str) -> dict[str, Any]:
    work = [sys.executable, "-m", "tests.bench.scale.engine_work", "select-on-disk"]
    done = subprocess.run(
        [*work, method, str(path), str(_LIMIT_BYTES), scratch],
        cwd=Path(__file__).resolve().parents[3],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    line = {name: found[name] for name in ("method", "launches", "read_cpu", "peak", "scratch")}
    return line | {"select_cpu": found["cpu"] - found["read_cpu"], "load": psutil.getloadavg()[0]}


def main() -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("fit")
    measures = verbs.add_parser("measure")
    measures.add_argument("folder", type=Path)
    measures.add_argument("--launches", type=int, nargs="+", default=[_MILLION, 10 * _MILLION])
    measures.add_argument("--methods", default=",".join(METHODS))
    measures.add_argument("--output", type=Path, default=MEASURED)
    given = parser.parse_args()
    if given.verb == "measure":
        measure(given.folder, given.launches, given.methods.split(","), given.output)
    print(page(measured(MEASURED.read_text().splitlines())))


if __name__ == "__main__":
    main()
