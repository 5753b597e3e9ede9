"""``make bench-scale``: databases, engines and stores of large labs, each beside what it is compared with.

python -m tests.bench.scale [--rounds N] [--scale PERCENT] [--only SECTION ...] [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.bench.__main__ import exit_code
from tests.bench.lab.goals import Goal
from tests.bench.scale.sections import SECTIONS, ScaleSize, page_of


def main() -> int:
    """Measure, print, and write the page where one is asked for; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="medians of so many")
    parser.add_argument("--scale", type=float, default=100.0, help="percent of each size")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    size, goals, lines = ScaleSize(arguments.rounds, arguments.scale / 100), list[Goal](), list[str]()
    for line in _page(size, arguments.only, goals):
        print(line, flush=True)
        lines.append(line)
        if arguments.output:
            arguments.output.write_text("\n".join([*lines, ""]))
    return exit_code(goals)


def _page(size: ScaleSize, names: list[str], goals: list[Goal]) -> Iterator[str]:
    memory = psutil.virtual_memory().total / 2**30
    yield (
        f"Machine: {os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB memory, load "
        f"{psutil.getloadavg()[0]:.1f}; Python {platform.python_version()}; medians of {size.rounds}."
    )
    for name in names:
        yield from page_of(name)(size, goals)
    if goals:
        yield "\n| goal | measured | bound | holds |"
        yield "|---|---:|---:|---|"
        for goal in goals:
            yield f"| {goal.text} | {goal.measured} | {goal.bound} | {'yes' if goal.holds else '**no**'} |"


if __name__ == "__main__":
    sys.exit(main())
