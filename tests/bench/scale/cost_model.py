"""The cost model of docs/scale.md: what selections beyond memory cost by the number of launches, fitted.

python -m tests.bench.scale.cost_model measure FOLDER --launches 1000000 10000000 [--methods sieve,stem]
python -m tests.bench.scale.cost_model measure FOLDER --recording light --launches 1000000000
python -m tests.bench.scale.cost_model fit

``measure`` makes recordings in FOLDER (49 bytes a launch; with 100 million a method takes five minutes of a
core) and adds a line for each selection to the measured points. Those with ``release`` are of an earlier one.
A light recording has names and times without counters: 4 bytes a launch, and 1,000 million launches take half
an hour of a core and 40 GB of disk.
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
# What selects from a recording with counters, and from one of names and times.
METHODS_OF = {"counted": METHODS, "light": ("stem",)}
_LIMIT_BYTES = 2 << 30
_MILLION = 1_000_000
# Of one recording, what the model says of more launches than most have.
_BEYOND = {"counted": (100 * _MILLION, 1_000 * _MILLION), "light": (1_000 * _MILLION,)}
# Ten billion launches as so many recordings of so many launches.
_TEN_BILLION = {
    "counted": ((1_000, 10 * _MILLION),),
    "light": ((1_000, 10 * _MILLION), (10, 1_000 * _MILLION)),
}


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


@dataclass(frozen=True)
class Model:
    """What was measured with recordings of one kind, and the lines through it, by step and by method."""

    recording: str
    found: Sequence[dict[str, Any]]
    steps: dict[str, list[Point]]
    lines: dict[str, Line]
    space: dict[str, Line]

    @classmethod
    def of(cls, found: Sequence[dict[str, Any]], recording: str) -> Model:
        """The model of the selections from this kind of recording; a point that names none has counters."""
        own = [each for each in found if each.get("recording", "counted") == recording]
        steps = {step: points for step, points in cpu_points(own).items() if points}
        return cls(
            recording,
            own,
            steps,
            {step: Line.through(points) for step, points in steps.items()},
            {method: Line.of_largest(points) for method, points in scratch_points(own).items() if points},
        )

    def name(self, step: str) -> str:
        """A step as the page calls it."""
        return ("" if self.recording == "counted" else f"{self.recording}: ") + _STEPS[step]

    def at_smaller(self, step: str) -> Line:
        """The line of a step fitted without its largest size."""
        largest = max(point.launches for point in self.steps[step])
        return Line.through([point for point in self.steps[step] if point.launches < largest])


_STEPS = {"read": "reading, checking, and writing", "pks": "PKS", "sieve": "Sieve", "stem": "STEM"}


def page(found: Sequence[dict[str, Any]]) -> str:
    """The tables of the model: its lines, how far each is off at each point, and what it says of more."""
    models = [model for kind in METHODS_OF if (model := Model.of(found, kind)).found]
    return "\n".join(
        [
            "| the model | CPU s, fixed | CPU s a million launches | bytes of scratch a launch |",
            "|---|---:|---:|---:|",
            *(row for model in models for row in _lines_rows(model)),
            "",
            "| step | launches | CPU s measured | model off by | fitted to the smaller ones | peak, MiB |",
            "|---|---:|---:|---:|---:|---:|",
            *(row for model in models for row in _points_rows(model)),
            "",
            "| by the model | CPU hours | scratch, GB |",
            "|---|---:|---:|",
            *(row for model in models for row in _beyond_rows(model)),
            *(row for model in models for row in _ten_billion_rows(model)),
        ]
    )


def _lines_rows(model: Model) -> Iterator[str]:
    for step, line in model.lines.items():
        space = f"{model.space[step].each / _MILLION:.0f}" if step in model.space else ""
        yield f"| {model.name(step)} | {line.fixed:.1f} | {line.each:.2f} | {space} |"


def _points_rows(model: Model) -> Iterator[str]:
    for step, points in model.steps.items():
        sizes = sorted({point.launches for point in points})
        for launches in sizes:
            here = [point for point in points if point.launches == launches]
            mean = Point(launches, float(np.mean([point.cost for point in here])))
            ahead = f"{off_percent(model.at_smaller(step), mean):+.0f} %" if launches == sizes[-1] else ""
            off = f"{off_percent(model.lines[step], mean):+.0f} %"
            peak = _peak(model.found, step, launches)
            yield f"| {model.name(step)} | {launches:,} | {mean.cost:,.1f} | {off} | {ahead} | {peak} |"


def _peak(found: Sequence[dict[str, Any]], step: str, launches: int) -> str:
    peaks = [each["peak"] for each in found if each["method"] == step and each["launches"] == launches]
    return f"{max(peaks) >> 20:,}" if peaks else ""


def _beyond_rows(model: Model) -> Iterator[str]:
    for launches in _BEYOND[model.recording]:
        for method in METHODS_OF[model.recording]:
            hours = (model.lines["read"].at(launches) + model.lines[method].at(launches)) / 3600
            space = model.space[method].at(launches) / 1e9
            what = f"{model.name(method)}, {launches:,} launches in one recording"
            yield f"| {what} | {hours:.2f} | {space:,.0f} |"


def _ten_billion_rows(model: Model) -> Iterator[str]:
    what = "all three methods" if model.recording == "counted" else model.name("stem")
    for recordings, launches in _TEN_BILLION[model.recording]:
        cpu = recordings * sum(line.at(launches) for line in model.lines.values()) / 3600
        space = max(line.at(launches) for line in model.space.values()) / 1e9
        each = f"{recordings:,} recordings of {launches:,}, each read once"
        yield f"| {what}, {each} | {cpu:,.1f} | {space:.1f} a worker |"


def measure(folder: Path, recording: str, sizes: Sequence[int], methods: Sequence[str], output: Path) -> None:
    """Measure each method with each size in a process of its own, and add the lines to ``output``."""
    for launches in sizes:
        path = folder / f"{recording}-{launches}.parquet"
        if not path.exists():
            _make(path, recording, launches)
        for method in methods:
            with tempfile.TemporaryDirectory(prefix="assay-scale-", dir=folder) as scratch:
                line = _one(method, path, scratch)
            if recording != "counted":
                line["recording"] = recording
            with output.open("a") as file:
                file.write(json.dumps(line) + "\n")


def _make(path: Path, recording: str, launches: int) -> None:
    from tests.bench.scale.made_files import counted_file, light_file  # noqa: PLC0415 - it takes its time

    # Under another name at first: a recording that was interrupted is not taken for a whole one.
    made = path.with_suffix(".part")
    if recording == "light":
        light_file(made, launches, 0)
    else:
        counted_file(made, launches)
    made.rename(path)


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
    line = {name: found[name] for name in ("method", "launches", "read_cpu", "seconds", "peak", "scratch")}
    return line | {"select_cpu": found["cpu"] - found["read_cpu"], "load": psutil.getloadavg()[0]}


def main() -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("fit")
    measures = verbs.add_parser("measure")
    measures.add_argument("folder", type=Path)
    measures.add_argument("--launches", type=int, nargs="+", default=[_MILLION, 10 * _MILLION])
    measures.add_argument("--recording", choices=list(METHODS_OF), default="counted")
    measures.add_argument("--methods", help="by default all that select from such a recording")
    measures.add_argument("--output", type=Path, default=MEASURED)
    given = parser.parse_args()
    if given.verb == "measure":
        methods = given.methods.split(",") if given.methods else METHODS_OF[given.recording]
        measure(given.folder, given.recording, given.launches, methods, given.output)
    print(page(measured(MEASURED.read_text().splitlines())))


if __name__ == "__main__":
    main()
