"""A workload of 24 launches, its traces and a selection, for the stand-in of the simulator."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.sampling import accel_sim_logs as logs
from tests.support.sampling.accel_sim_traces import Listed, write_listed
from tests.support.sampling.stand_in_simulator import write_stand_in

Assay = Callable[..., Any]
BLOCKS = (8, 16, 8, 24, 16, 8, 40, 8) * 3


@dataclass(frozen=True)
class Bench:
    """A workload of 24 launches of two kernels: its traces, a selection, and the stand-in simulator."""

    selection: Path
    traces: Path
    simulator: Path
    output: Path
    weights: dict[int, float]

    def command(self, *more: object) -> list[object]:
        places = ("--traces", self.traces, "--accel-sim", self.simulator, "-o", self.output)
        return ["simulate", self.selection, *places, "--jobs", 2, *more]

    def miss_launch(self, missed: int) -> None:
        """The tracer missed a launch, so that each later one has the number of the one before."""
        for number in range(missed + 1, len(BLOCKS) + 1):
            (trace,) = self.traces.glob(f"kernel-{number}.traceg*")
            text = trace.read_text().replace(f"-kernel id = {number}\n", f"-kernel id = {number - 1}\n")
            trace.with_name(trace.name.replace(f"-{number}.", f"-{number - 1}.")).write_text(text)
        (listed,) = self.traces.glob("kernelslist.g")
        listed.write_text(listed.read_text().replace(f"kernel-{len(BLOCKS)}.traceg\n", ""))


def made_bench(tmp_path: Path, assay: Assay, method: str, parameter: str) -> Bench:
    kernels = ["_Z4evenPf" if number % 2 else "_Z3oddPf" for number in range(len(BLOCKS))]
    recorded = [
        logs.Launch(name=kernel, traced_id=number, grid=(blocks, 1, 1), cycles=100 * blocks)
        for number, (kernel, blocks) in enumerate(zip(kernels, BLOCKS, strict=True), start=1)
    ]
    recording = tmp_path / "recorded.out"
    recording.write_text(logs.output(recorded))
    listed = [Listed(each.traced_id, each.name, each.grid, each.block) for each in recorded]
    traces = write_listed(tmp_path / "traces with blanks", listed).parent
    selection = tmp_path / "selection.json"
    ended = assay("select", method, recording, "-p", parameter, "--seed", 3, "-o", selection)
    assert ended.code == 0, ended.stderr
    chosen = [r for g in json.loads(selection.read_text())["groups"] for r in g["representatives"]]
    simulator = write_stand_in(tmp_path / "accel-sim")
    weights = {each["sim_id"]: each["weight"] for each in chosen}
    return Bench(selection, traces, simulator, tmp_path / "sim", weights)


def processes_in(folder: Path) -> list[str]:
    """The processes whose working directory lies in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").resolve().is_relative_to(folder):
                found.append(process.name)
    return found
