"""A synthetic workload of one kernel, for virtual GPUs."""

from __future__ import annotations


def one_kernel(workload: str, launches: int = 60) -> str:
    """Its description (docs/virtual-gpu.md): so many equal launches."""
    return f"""\
workload = "{workload}"
seed = 3
[kernels.scale]
name = "void scale<float>(float*, int)"
block = [128, 1, 1]
instructions = 4000
global_loads = 4
[[phases]]
repeat = {launches}
steps = [{{ kernel = "scale", grid = [4096, 1, 1] }}]
"""
