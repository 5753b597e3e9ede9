"""Running the stand-ins inside the test process, and a workload that has everything they must show."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path

from assay_virtual.tools.ncu.command import run_ncu
from assay_virtual.tools.nsys.command import run_nsys

WORKLOAD = """
workload = "mixed"
seed = 5
processes = 2

[buffers]
data = "2 MiB"

[kernels.gemm]
name = "void (anonymous namespace)::gemm<float, (int)4, ns::F<int>>(float const*, float*, int)"
block = [128, 2, 1]
registers = 40
static_shared_bytes = 1024
dynamic_shared_bytes = 512
instructions = 400
global_loads = 20
global_stores = 2
global_atomics = 1
reads = { data = 1.0 }

[kernels.add]
name = "vector_add"
block = 256
instructions = 30
global_loads = 2
global_stores = 1
writes = { data = 0.5 }

[[phases]]
repeat = 5
nvtx = "step"
steps = [
    { kernel = "gemm", grid = [[8, 4], [16, 4, 2]] },
    { kernel = "add", grid = 64, times = 2, stream = 13 },
]

[[phases]]
repeat = 3
graph = true
processes = [0]
steps = [{ kernel = "add", grid = 32, times = 4 }]
"""
PROCESS_0, PROCESS_1 = 5 * 3 + 3 * 4, 5 * 3


@dataclass
class Answer:
    """What a tool answered: exit status and what it wrote to its channels."""

    status: int
    output: str
    errors: str

    def lines(self, start: str) -> list[str]:
        return [line for line in (self.output + self.errors).splitlines() if line.startswith(start)]


@dataclass
class Bench:
    """A folder with the workload, and the environment of a virtual GPU."""

    folder: Path
    kind: str = "RTX 3070"
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def workload(self) -> Path:
        path = self.folder / "mixed.toml"
        if not path.exists():
            path.write_text(WORKLOAD)
        return path

    def environment(self, faults: str = "", **more: str) -> dict[str, str]:
        return {
            "ASSAY_VIRTUAL_GPU": json.dumps({"architecture": self.kind, "seed": 3}),
            "ASSAY_VIRTUAL_FAULTS": faults,
            "TMPDIR": str(self.folder),
            **self.variables,
            **more,
        }

    def ncu(self, *arguments: str | Path, faults: str = "", **more: str) -> Answer:
        output, errors = io.StringIO(), io.StringIO()
        status = run_ncu([str(a) for a in arguments], self.environment(faults, **more), output, errors)
        return Answer(status, output.getvalue(), errors.getvalue())

    def nsys(self, *arguments: str | Path, faults: str = "", **more: str) -> Answer:
        output, errors = io.StringIO(), io.StringIO()
        status = run_nsys([str(a) for a in arguments], self.environment(faults, **more), output, errors)
        return Answer(status, output.getvalue(), errors.getvalue())
