"""A profiler of a made-up GPU, with tools that fail as they are told."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from assay_agent.daemon.places import Place
from assay_agent.execution.errors import ProfilerError
from assay_agent.profilers.seam import Measurement
from assay_core.records.work import CommandSource, Work
from tests.support.agent.assignments import WORK

WORKLOAD = """\
workload = "small"
seed = 3
[buffers]
x = "1 MiB"
[kernels.scale]
name = "void scale<float>(float*, int)"
block = [128, 1, 1]
instructions = 4000
global_loads = 4
global_stores = 2
reads = { x = 1.0 }
writes = { x = 1.0 }
[[phases]]
repeat = 60
steps = [{ kernel = "scale", grid = [4096, 1, 1] }]
"""
COMPUTE, SYSTEMS = "nsight_compute", "nsight_systems"


@dataclass(frozen=True)
class Bench:
    """A virtual V100 and a folder with a workload."""

    place: Place
    folder: Path

    def work(self, profiler: str, fault: str = "", **changes: Any) -> Work:
        variables = {"ASSAY_VIRTUAL_FAULTS": fault} if fault else {}
        command = CommandSource(("small.toml",), variables, str(self.folder), 30.0)
        detailed = profiler == COMPUTE
        made = replace(
            WORK,
            level="detailed" if detailed else "light",
            profiler=profiler,
            command=command,
            synthetic=True,
            launch_count=20 if detailed else 0,
            counters=("cycles_gpc_avg", "global_load_sectors", "global_atomic_instructions")
            if detailed
            else (),
        )
        return replace(made, **changes)

    def measure(self, work: Work, cancelled: threading.Event | None = None) -> tuple[pa.Table, Measurement]:
        profiler = self.place.profilers[work.profiler]
        profiler.plan(work)
        with profiler.run(work, cancelled or threading.Event()) as measurement:
            batches = [batch.records for batch in measurement.batches()]
        return pa.Table.from_batches(batches) if batches else pa.table({}), measurement


def failed(bench: Bench, work: Work) -> ProfilerError:
    with pytest.raises(ProfilerError) as caught:
        bench.measure(work)
    return caught.value
