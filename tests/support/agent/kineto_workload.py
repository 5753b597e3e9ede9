"""A workload that writes a Kineto trace of made-up launches, as a script of PyTorch would write a real one.

No silicon produced these numbers. Usage: kineto_workload.py [SWITCH...] [WORKLOAD.toml]; switches say what
goes wrong. A workload file among the arguments is for the stand-ins, which profile that instead.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

KERNEL = "void scale<float>(float*, int)"
LAUNCHES = 60


def document(launches: int = LAUNCHES, **members: object) -> dict[str, object]:
    """A trace as PyTorch 2.4 writes it: kernels of two operators in turn, the second one slower."""
    events: list[dict[str, object]] = []
    for number in range(launches):
        at, slow = 1000.0 + 50 * number, number % 2
        dims = [[64, 128], [128, 256]] if slow else [[8, 16]]
        common = {"pid": 4242, "tid": 4242, "ph": "X"}
        operator = {"External id": number + 1, "Input Dims": dims}
        name = "aten::mm" if slow else "aten::mul"
        events.append(common | {"cat": "cpu_op", "name": name, "ts": at, "dur": 20, "args": operator})
        events.append(common | {
            "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 5, "dur": 5,
            "args": {"correlation": 1000 + number, "External id": number + 1},
        })  # fmt: skip
        events.append({
            "ph": "X", "cat": "kernel", "name": KERNEL, "pid": 0, "tid": 7, "ts": at + 12.5,
            "dur": 20.0 if slow else 4.0,
            "args": {
                "External id": number + 1, "device": 0, "context": 1, "stream": 7,
                "correlation": 1000 + number, "registers per thread": 16, "shared memory": 0,
                "grid": [4096, 1, 1], "block": [128, 1, 1],
            },
        })  # fmt: skip
    return {"schemaVersion": 1, "traceEvents": events, "note": "made up", **members}


def write(path: Path, switches: set[str]) -> None:
    members: dict[str, object] = {}
    if "distributed" in switches:
        members["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 2}
    if "another_gpu" in switches:
        members["deviceProperties"] = [{"id": 0, "name": "A100", "computeMajor": 8, "computeMinor": 0}]
    text = json.dumps(document(0 if "no_kernels" in switches else LAUNCHES, **members)).encode()
    if "truncated" in switches:
        text = text[: len(text) // 2]
    if "no_trace" in switches:
        text = b"launches: 60\n"
    if "empty" in switches:
        text = b""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def main(switches: set[str]) -> int:
    given = os.environ.get("ASSAY_KINETO_FILE")
    if "needs_no_profiler" in switches and given:
        return 3
    if given and "writes_nothing" not in switches:
        path = Path(given)
        if "elsewhere" in switches:
            path = path.with_name("host_17.pt.trace.json")
        write(path, switches)
        if "restored" in switches:
            os.utime(path, (1, 1))
        if "two_files" in switches:
            write(path.with_name("host_18.pt.trace.json"), switches)
    if "fails" in switches:
        sys.stderr.write("no such data set\n")
        return 7
    return 0


if __name__ == "__main__":
    sys.exit(main(set(sys.argv[1:])))
