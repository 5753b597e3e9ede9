"""Small recordings made by hand: three kinds of launches, so that exact answers can be told beforehand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

KERNELS = ("void copy(float*)", "void gemm<float>(float*, int)", "void reduce(float*, float*)")
# By kind of launch: grid, instructions, cycles under the profiler, nanoseconds without.
GRIDS = (64, 512, 8)
INSTRUCTIONS = (1_000.0, 80_000.0, 500.0)
CYCLES = (2_000.0, 40_000.0, 900.0)
NANOSECONDS = (1_500, 30_000, 700)
_METRICS = (
    "gpc__cycles_elapsed.avg",
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "launch__grid_size",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "smsp__inst_executed_op_global_ld.sum",
    "smsp__inst_executed_op_global_st.sum",
    "smsp__inst_executed_op_local_ld.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    "smsp__sass_inst_executed_op_global_atom.sum",
)
_UNITS = ("cycle", "inst", "", "", *["sector"] * 3, *["inst"] * 6)


def kinds(launches: int) -> list[int]:
    """The kind of each launch: copies and products in turn, a reduction as every fifth."""
    return [2 if index % 5 == 4 else index % 2 for index in range(launches)]


V100 = ("Tesla V100-SXM2-16GB", 7, 0, 80)
A100 = ("NVIDIA A100-SXM4-40GB", 8, 0, 108)


def write_raw_page(
    path: Path,
    launches: int = 40,
    *,
    replace: tuple[int, str, str] | None = None,
    skip: int = 0,
    capability: str = "7.0",
) -> Path:
    """An Nsight Compute raw page; ``replace`` puts a text into a metric of one launch.

    It holds the launches behind the first ``skip``, with IDs from 0 as Nsight Compute gives them.
    """
    columns = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
               "Block Size", "Grid Size", "Device", "CC", *_METRICS]  # fmt: skip
    lines = [columns, [""] * 11 + list(_UNITS)]
    for index, kind in enumerate(kinds(skip + launches)[skip:]):
        identity = [str(index), "77", "app", "box", KERNELS[kind], "1", "7", "(128, 1, 1)",
                    f"({GRIDS[kind]}, 1, 1)", "0", capability]  # fmt: skip
        loads = INSTRUCTIONS[kind] / 10
        metrics = [CYCLES[kind], INSTRUCTIONS[kind], 32.0, GRIDS[kind], 4 * loads, 2 * loads, 0.0,
                   loads, loads / 2, 0.0, loads * kind, loads * kind, 0.0]  # fmt: skip
        texts = [f"{value:g}" for value in metrics]
        if replace is not None and replace[0] == index:
            texts[_METRICS.index(replace[1])] = replace[2]
        lines.append(identity + texts)
    path.write_text("\n".join(",".join(f'"{cell}"' for cell in line) for line in lines) + "\n")
    return path


def write_kineto(
    path: Path,
    launches: int = 40,
    *,
    slower: float = 1.0,
    order: Sequence[int] = (),
    gpu: tuple[str, int, int, int] | None = V100,
    late_us: float = 0.0,
) -> Path:
    """A Kineto trace of the same launches; ``order`` names other kinds, ``slower`` stretches durations.

    ``gpu`` (name, compute capability, SMs) is what it was traced on, None: it does not say; ``late_us`` moves
    all its launches, as those of another rank are.
    """
    events = []
    for index, kind in enumerate(order or kinds(launches)):
        correlation, called_us = index + 1, 10.0 * index
        events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 77, "tid": 77,
             "ts": called_us, "dur": 2.0, "args": {"correlation": correlation}}
        )  # fmt: skip
        events.append(
            {"ph": "X", "cat": "kernel", "name": KERNELS[kind], "pid": 0, "tid": 7,
             "ts": 5.0 + late_us + 100.0 * index, "dur": NANOSECONDS[kind] * slower / 1000,
             "args": {"correlation": correlation, "device": 0, "context": 1, "stream": 7,
                      "grid": [GRIDS[kind], 1, 1], "block": [128, 1, 1],
                      "registers per thread": 32, "shared memory": 0}}
        )  # fmt: skip
    document: dict[str, object] = {"schemaVersion": 1, "traceEvents": events}
    if gpu is not None:
        name, major, minor, sms = gpu
        properties = {"id": 0, "name": name, "computeMajor": major, "computeMinor": minor, "numSms": sms}
        document["deviceProperties"] = [properties]
    path.write_text(json.dumps(document))
    return path
