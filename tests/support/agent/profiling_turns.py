"""One detailed run by an agent that takes its turn; as a program, by an agent that is a process of its own.

python -m tests.support.agent.profiling_turns FOLDER GPU
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.ncu import profiling_lock
from assay_agent.profilers.ncu.profiler import NsightComputeProfiler
from assay_core.records.work import CommandSource
from assay_sampling.launches.table import Device
from tests.support.agent.assignments import WORK
from tests.support.agent.fake_nvml import FakeNvml


def profile(folder: Path, name: str, cancelled: threading.Event | None = None) -> ProfilerError | None:
    """A detailed run on the GPU of that name, by an agent with a folder for temporary files of its own."""
    profiling_lock.BOX_FOLDER = folder
    FakeNvml(folder / "nvml.json").install()
    (folder / "agents" / name).mkdir(parents=True, exist_ok=True)
    gpu = MeasuredGPU(
        Device(0, "V100", f"GPU-{name}", "7.0", 80), path=f"{folder}/bin:/usr/bin:/bin",
        scope=f"{folder}/{name}",
    )  # fmt: skip
    command = CommandSource(("/bin/true",), {}, str(folder), 30.0)
    work = replace(WORK, level="detailed", profiler="nsight_compute", command=command, launch_count=5)
    profiler = NsightComputeProfiler(gpu, ToolBox(), folder / "agents" / name)
    try:
        with profiler.run(work, cancelled or threading.Event()) as measurement:
            list(measurement.batches())
    except ProfilerError as error:  # there is no report
        return error
    return None


if __name__ == "__main__":
    profile(Path(sys.argv[1]), sys.argv[2])
