"""A small recording, made up, and campaigns of it."""

from __future__ import annotations

import json
from pathlib import Path


def trace(path: Path, kernels: int = 3, every_us: int = 10) -> Path:
    """A Kineto trace of a few kernels, made up."""
    events = []
    for i in range(kernels):
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel_{i}", "pid": 0, "tid": 7}
        at = {"ts": every_us * i, "dur": 1, "args": {"correlation": i + 1}}
        shape = {"grid": [8, 1, 1], "block": [64, 1, 1], "device": 0, "stream": 7, "correlation": i + 1}
        events += [call | at, kernel | {"ts": every_us * i + 4, "dur": 3, "args": shape}]
    properties = [{"id": 0, "name": "V100", "totalGlobalMem": 1 << 34, "computeMajor": 7, "computeMinor": 0}]
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}))
    return path


def campaign(folder: Path, runs: int, *, every_us: int = 10, more: str = "") -> Path:
    """A campaign file of so many recorded runs of that trace; ``more`` stands behind it."""
    trace(folder / "trace.json", every_us=every_us)
    recording = "recordings: [{device: V100, light: trace.json}]"
    workloads = "".join(f"  - {{name: w{i:03}, {recording}}}\n" for i in range(runs))
    path = folder / "campaign.yaml"
    path.write_text(
        f"campaign: sick\nworkloads:\n{workloads}analysis: {{methods: [random: {{launches: 1}}]}}\n"
    )
    return path
