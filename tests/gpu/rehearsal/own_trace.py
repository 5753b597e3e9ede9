"""The trace that a PyTorch workload of a rehearsal writes of itself; synthetic, like its launches."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay_virtual.model.gpu import ProcessLaunches

_CALL_MICROSECONDS = 3.0


def write_trace(path: Path, launches: ProcessLaunches) -> None:
    """Write the launches as PyTorch's profiler does, gzip-compressed."""
    document = {"schemaVersion": 1, "traceEvents": list(_events(launches))}
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(document, file)


def _events(launches: ProcessLaunches) -> Iterator[dict[str, Any]]:
    host = {"ph": "X", "cat": "cuda_runtime", "pid": 1, "tid": 1, "dur": _CALL_MICROSECONDS}
    for i in range(len(launches)):
        kernel, stream = launches.kernels[launches.kernel[i]], int(launches.stream[i])
        correlation = {"correlation": i + 1}
        called = int(launches.call_ns[i]) / 1000
        yield {**host, "name": "cudaLaunchKernel", "ts": called, "args": correlation}
        yield {
            "ph": "X", "cat": "kernel", "name": kernel.name, "pid": 0, "tid": stream,
            "ts": int(launches.start_ns[i]) / 1000, "dur": int(launches.duration_ns[i]) / 1000,
            "args": {
                "device": 0, "stream": stream, **correlation,
                "grid": launches.grid[i].tolist(), "block": list(kernel.block),
                "registers per thread": kernel.registers,
                "shared memory": kernel.static_shared_bytes + kernel.dynamic_shared_bytes,
            },
        }  # fmt: skip
