"""Makes the recordings of ``inputs/``, all of them made up: ``python -m tests.golden.make_inputs FOLDER``.

They are committed and stay as they are: made anew with another NumPy, they might differ, and every golden
number with them. This says how they came about, and serves who adds one.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.support.sampling.accel_sim_traces import Listed, write_listed
from tests.support.sampling.macsim_traces import write_warps

KERNELS = (
    "void at::native::vectorized_elementwise_kernel<4, float>(int, float*)",
    "volta_sgemm_128x64_nn",
    "void gemm<float, 64>(float*, float const*, int)",
    "void cub::DeviceReduceKernel<double>(double*, int)",
    "bn_fw_tr_1C11_singleread",
    "_Z6kernelPfi",
    "void softmax_warp_forward<float, 9>(float*, float const*, int)",
)
METRICS = {
    "gpc__cycles_elapsed.avg": "cycle",
    "gpu__time_duration.sum": "nsecond",
    "smsp__inst_executed.sum": "inst",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "",
    "launch__grid_size": "",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "sector",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "sector",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": "sector",
    "smsp__inst_executed_op_global_ld.sum": "inst",
    "smsp__inst_executed_op_global_st.sum": "inst",
    "smsp__inst_executed_op_local_ld.sum": "inst",
    "smsp__inst_executed_op_shared_ld.sum": "inst",
    "smsp__inst_executed_op_shared_st.sum": "inst",
    "smsp__sass_inst_executed_op_global_atom.sum": "inst",
}
IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
            "Block Size", "Grid Size", "Device", "CC")  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """One made-up launch; times in nanoseconds, the rest in counts."""

    kernel: int
    grid: int
    block: int
    cycles: float
    duration_ns: int
    instructions: int
    start_ns: int
    metrics: tuple[float, ...]


def launches(count: int, seed: int, *, speed: float = 1.0) -> list[Launch]:
    """Iterations of seven kernels in turn, whose grids and costs scatter; ``speed`` divides the times."""
    rng = np.random.default_rng(seed)
    found, start_ns = [], 10_000
    for index in range(count):
        kernel = (0, 1, 2, 0, 3, 4, 1, 5, 0, 6)[index % 10]
        grid = int(2 ** rng.integers(3, 6)) * (kernel + 1)
        instructions = int(grid * (400 + 900 * kernel) * rng.uniform(0.95, 1.05))
        cycles = round(900 + instructions / (40 + 8 * kernel) * rng.uniform(0.9, 1.2), 2)
        duration_ns = int(cycles / 1.38 / speed * rng.uniform(0.97, 1.06))
        loads = instructions // (6 + kernel)
        stores = loads // 3
        metrics = (cycles, duration_ns, instructions, 32.0 if kernel % 3 else 27.5, grid, 4 * loads,
                   4 * stores, 0 if kernel < 5 else loads // 10, loads, stores,
                   0 if kernel < 5 else loads // 10, loads * (kernel % 4),
                   stores * (kernel % 4), kernel == 3)  # fmt: skip
        block = 64 << kernel % 3
        found.append(Launch(kernel, grid, block, cycles, duration_ns, instructions, start_ns, metrics))
        start_ns += duration_ns + int(rng.integers(500, 9_000))
    return found


def write_raw_page(path: Path, made: Sequence[Launch], capability: str = "7.0") -> None:
    """What ``ncu --page raw --csv`` prints."""
    rows = [[*IDENTITY, *METRICS], ["" for _ in IDENTITY] + list(METRICS.values())]
    for index, one in enumerate(made):
        identity = (index, 77, "app", "box", KERNELS[one.kernel], 1, 7, f"({one.block}, 1, 1)",
                    f"({one.grid}, 1, 1)", 0, capability)  # fmt: skip
        rows.append([str(cell) for cell in identity] + [f"{float(value):.12g}" for value in one.metrics])
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    path.write_text("==PROF== Connected to process 77 (/home/user/app)\n" + "\n".join(lines) + "\n")


def write_kineto(path: Path, made: Sequence[Launch], gpu: tuple[str, int, int, int]) -> None:
    """What the profiler of PyTorch writes."""
    name, major, minor, sms = gpu
    events: list[object] = []
    for index, one in enumerate(made):
        called_us = one.start_ns / 1000 - 4
        events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 77, "tid": 77,
             "ts": called_us, "dur": 2.0, "args": {"correlation": index + 1}}
        )  # fmt: skip
        events.append(
            {"ph": "X", "cat": "kernel", "name": KERNELS[one.kernel], "pid": 0, "tid": 7,
             "ts": one.start_ns / 1000, "dur": one.duration_ns / 1000,
             "args": {"correlation": index + 1, "device": 0, "context": 1, "stream": 7,
                      "grid": [one.grid, 1, 1], "block": [one.block, 1, 1],
                      "registers per thread": 32, "shared memory": 0}}
        )  # fmt: skip
    properties = [{"id": 0, "name": name, "computeMajor": major, "computeMinor": minor, "numSms": sms}]
    path.write_text(
        json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}) + "\n"
    )


def write_nsys(path: Path, made: Sequence[Launch]) -> None:
    """What ``nsys export -t sqlite`` writes, of one process on one GPU."""
    process = 281575874887680
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA page_size=1024")
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(KERNELS, start=1))
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, "
            "correlationId, globalPid, demangledName, shortName, registersPerThread, "
            "gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, "
            "dynamicSharedMemory, graphNodeId)"
        )
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId)")
        for index, one in enumerate(made, start=1):
            database.execute(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 19)})",
                (one.start_ns, one.start_ns + one.duration_ns, 0, 1, 7, index, process, one.kernel + 1,
                 one.kernel + 1, 32, one.grid, 1, 1, one.block, 1, 1, 0, 0, None),
            )  # fmt: skip
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                (one.start_ns - 4000, one.start_ns - 2000, process + 77, index),
            )
        database.commit()


def main(folder: Path) -> None:
    """Write all recordings into ``folder``."""
    made = launches(160, 1)
    v100, a100 = ("Tesla V100-SXM2-16GB", 7, 0, 80), ("NVIDIA A100-SXM4-40GB", 8, 0, 108)
    write_raw_page(folder / "window.csv", made[:80])
    write_raw_page(folder / "flushed.csv", [_flushed(one) for one in made[:80]])
    write_kineto(folder / "light.json", made, v100)
    write_nsys(folder / "light.sqlite", made)
    write_kineto(folder / "faster.json", launches(160, 1, speed=1.7), a100)
    write_kineto(folder / "rank1.json", launches(160, 1, speed=0.98), v100)
    periodic = [replace(made[index % 10], start_ns=10_000 + 40_000 * index) for index in range(60)]
    write_kineto(folder / "periodic.json", periodic, v100)
    write_vectors(folder / "vectors.csv", periodic)
    write_kineto(folder / "other.json", launches(90, 2)[::-1], a100)
    write_traces(folder)


def write_traces(folder: Path) -> None:
    """Traces of the four launches of ``simulated.out``, in the forms of two simulators."""
    shape = (256, 1, 1)
    launches_there = [
        Listed(at + 1, "_Z4kern0Pf" if at % 2 == 0 else "_Z5kern1Pf", (16 + at, 2, 1), shape)
        for at in range(4)
    ]
    copies = ("MemcpyHtoD,0x00007f0000000000,64", "MemcpyHtoD,0x00007f0000000000,128")
    write_listed(folder / "simulated_traces", launches_there, copies=copies)
    paths = [f"Kernel{at}/Trace.txt" for at in range(4)]
    for path, each in zip(paths, launches_there, strict=True):
        (folder / "macsim_traces" / path).parent.mkdir(parents=True)
        write_warps(folder / "macsim_traces" / path, each.grid, each.block)
    text = "".join(f"/where/they/were/made/{path}\n" for path in paths)
    (folder / "macsim_traces" / "kernel_config.txt").write_text(f"-1 newptx\n{text}")


def write_vectors(path: Path, made: Sequence[Launch]) -> None:
    """Basic-block vectors, as ``docs/bbv-format.md`` has them."""
    lines = ["launch,block,count,warps"]
    for index, one in enumerate(made):
        warps = one.grid * one.block // 32
        lines += [f"{index},{block},{warps * (3 * block + one.kernel + 1)},{warps}" for block in range(4)]
    path.write_text("\n".join(lines) + "\n")


def _flushed(one: Launch) -> Launch:
    cycles = round(one.cycles * (1.02 + 0.05 * one.kernel), 2)
    return replace(one, cycles=cycles, metrics=(cycles, *one.metrics[1:]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
