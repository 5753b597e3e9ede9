"""Workload files that the tests of the virtual GPU write."""

from __future__ import annotations

from pathlib import Path

from assay_virtual.workloads.loading import load_workload
from assay_virtual.workloads.workload import Workload

COMPUTE = """
[kernels.{key}]
name = "compute_{key}"
block = 256
registers = 32
instructions = 1000
"""
MIXED = """
workload = "mixed"
seed = 5
processes = 2
[buffers]
a = "2 MiB"
b = "3 MiB"
c = "64 MiB"
[kernels.tile]
name = "void tile<float>(float*)"
block = [16, 16]
registers = 64
static_shared_bytes = 8192
instructions = 900
global_loads = 60
global_stores = 4
shared_loads = 100
async_copies = 3
reads = { a = 1.0 }
writes = { b = 1.0 }
[kernels.stream]
name = "void stream<float>(float*)"
block = 256
instructions = 40
global_loads = 8
global_stores = 8
reads = { b = 1.0, c = 0.4 }
writes = { a = 0.5 }
[kernels.tried]
name = "void tried<float>(float*)"
block = 128
instructions = 60
grid_factor = 0.5
[autotune]
kernel = "tile"
candidates = ["tried", "tile"]
launches = 5
[[phases]]
repeat = 12
nvtx = "step"
host_ns = 20_000
synchronize = true
variables.size = { choices = [1, 3], hold = 0.5 }
variables.skew = { spread = 0.3 }
[[phases.steps]]
repeat = 3
nvtx = "layer"
steps = [
  { kernel = "tile", grid = [[40], [20, 4], [7]], grid_by = "size", stream = 7 },
  { kernel = "stream", grid = 64, work_spread = 0.2, stream = 8 },
]
[[phases.steps]]
graph = true
steps = [
  { kernel = "tile", grid = 30 },
  { kernel = "stream", grid = 200, work_by = "skew" },
  { kernel = "tile", grid = 9 },
]
"""


def written(directory: Path, text: str) -> Workload:
    path = directory / "workload.toml"
    path.write_text(text)
    return load_workload(path)


def compute_bound(directory: Path, grids: list[int]) -> Workload:
    steps = ", ".join(f'{{ kernel = "k", grid = {grid} }}' for grid in grids)
    return written(
        directory,
        f'workload = "compute"\n{COMPUTE.format(key="k")}[[phases]]\nsteps = [{steps}]\n',
    )


def streaming(directory: Path, megabytes: int, repeat: int = 2) -> Workload:
    """A kernel that reads a buffer once, front to back: 16 loads of 512 bytes a warp."""
    grid = megabytes * (1 << 20) // (16 * 512 * 8)
    return written(
        directory,
        f'workload = "stream"\nbuffers.data = "{megabytes} MiB"\n'
        '[kernels.k]\nname = "stream"\nblock = 256\ninstructions = 40\nglobal_loads = 16\n'
        "sectors_per_load = 16.0\nreads = { data = 1.0 }\n"
        f'[[phases]]\nrepeat = {repeat}\nsteps = [{{ kernel = "k", grid = {grid} }}]\n',
    )
