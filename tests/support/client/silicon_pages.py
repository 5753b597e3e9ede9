"""Pages of Nsight Compute for launches that a simulator ran."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

METRICS = ("gpc__cycles_elapsed.avg", "smsp__inst_executed.sum")


def write_silicon(path: Path, launches: list[Any], cycles: list[float]) -> Path:
    """An Nsight Compute page of the launches of a log, with cycles and instructions."""
    lines = [
        ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
         "Grid Size", "Device", "CC", *METRICS],
        [""] * 11 + ["cycle", "inst"],
    ]  # fmt: skip
    for index, (launch, count) in enumerate(zip(launches, cycles, strict=True)):
        block, grid = (f"({', '.join(map(str, axes))})" for axes in (launch.block, launch.grid))
        identity = [str(index), "7", "app", "box", launch.kernel.strip(), "1", "7", block, grid, "0", "7.0"]
        lines.append([*identity, repr(count), str(launch.instructions)])
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(lines)
    return path
