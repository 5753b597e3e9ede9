"""Synthetic recordings for benchmarks, as the tools write them: 3,000 kernels, varied grids, two devices.

Durations are log-normal about a mean of their kernel and grid; all is deterministic by seed.
"""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np

from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK
from assay_virtual.tools.nsys.schema import GENERATION_2023, columns_of, create_table

KERNELS, DEVICES = 3_000, 2
_KERNEL, _RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
_CALLS_A_LAUNCH = 3.85
_PROCESS = 0x1000001000000
_OTHER_CALLS = (
    "cudaEventRecord_v3020",
    "cudaStreamWaitEvent_v3020",
    "cudaMemcpyAsync_v3020",
    "cudaFree_v3020",
)
_FIRST_KERNEL_NAME = 100


@dataclass(frozen=True)
class MadeLaunches:
    """Launches of two devices in the order of their calls, arrays of shape (n,)."""

    kernel: np.ndarray
    device: np.ndarray
    grid: np.ndarray
    block: np.ndarray
    registers: np.ndarray
    shared_bytes: np.ndarray
    called_ns: np.ndarray
    start_ns: np.ndarray
    duration_ns: np.ndarray


def made_launches(launches: int, seed: int = 0) -> MadeLaunches:
    """Launches whose kernels, grids and durations vary; the calls of each device go on independently."""
    rng = np.random.default_rng(seed)
    kernel = (KERNELS * rng.power(0.4, launches)).astype(np.int64)
    device = rng.integers(0, DEVICES, launches)
    grid = 1 + (rng.integers(0, 40, launches) * (1 + kernel % 17)) ** 2 % 65_000
    duration_ns = ((1_500 + 3 * grid) * np.exp(rng.normal(0, 0.2, launches)) * (1 + kernel % 5)).astype(
        np.int64
    )
    called_ns = 10**9 + np.cumsum(rng.integers(3_000, 9_000, launches))
    start_ns = np.empty(launches, np.int64)
    for each in range(DEVICES):
        of_device = np.flatnonzero(device == each)
        # A kernel starts after its call and after the one before it on its stream.
        free = np.cumsum(duration_ns[of_device]) - duration_ns[of_device]
        start_ns[of_device] = free + np.maximum.accumulate(called_ns[of_device] + 2_000 - free)
    return MadeLaunches(
        kernel, device, grid, 32 * (1 + kernel % 8), 16 + kernel % 200, 1_024 * (kernel % 48),
        called_ns, start_ns, duration_ns,
    )  # fmt: skip


def kernel_name(kernel: int) -> str:
    """A name of the length that template-heavy libraries give their kernels."""
    return f"void synthetic::kernel_{kernel}<float, {kernel % 7}, {'int, ' * 12}float>(float*, int)"


def write_nsys(path: Path, launches: int, seed: int = 0) -> None:
    """A SQLite export of Nsight Systems: a process a device, and 3.85 runtime calls a launch."""
    made = made_launches(launches, seed)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=OFF")
        database.execute("PRAGMA synchronous=OFF")
        for table in ("StringIds", _KERNEL, _RUNTIME):
            database.execute(create_table(table, GENERATION_2023))
        names = [(_FIRST_KERNEL_NAME + number, kernel_name(number)) for number in range(KERNELS)]
        calls = [*enumerate(_OTHER_CALLS, 1), (len(_OTHER_CALLS) + 1, "cudaLaunchKernel_v7000")]
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [*calls, *names])
        _insert(database, _KERNEL, _kernel_columns(made))
        _insert(database, _RUNTIME, _runtime_columns(made, np.random.default_rng(seed + 1)))
        database.commit()


def _owner(device: np.ndarray) -> np.ndarray:
    return _PROCESS + (device << 24)


def _kernel_columns(made: MadeLaunches) -> dict[str, np.ndarray]:
    by_end = np.argsort(made.start_ns + made.duration_ns, kind="stable")  # as CUPTI hands them over
    one = np.ones(len(by_end), np.int64)
    name = _FIRST_KERNEL_NAME + made.kernel
    columns = {
        "start": made.start_ns, "end": made.start_ns + made.duration_ns, "deviceId": made.device,
        "contextId": one, "streamId": 7 * one, "correlationId": np.arange(1, len(one) + 1),
        "globalPid": _owner(made.device), "demangledName": name, "shortName": name,
        "registersPerThread": made.registers, "gridX": made.grid, "gridY": one, "gridZ": one,
        "blockX": made.block, "blockY": one, "blockZ": one, "staticSharedMemory": 0 * one,
        "dynamicSharedMemory": made.shared_bytes, "localMemoryPerThread": 0 * one,
        "localMemoryTotal": 0 * one, "gridId": np.arange(1, len(one) + 1),
    }  # fmt: skip
    return {column: values[by_end] for column, values in columns.items()}


def _runtime_columns(made: MadeLaunches, rng: np.random.Generator) -> dict[str, np.ndarray]:
    launches = len(made.kernel)
    others = round((_CALLS_A_LAUNCH - 1) * launches)
    around = np.sort(rng.integers(0, launches, others))
    start = np.concatenate([made.called_ns, made.called_ns[around] + rng.integers(1_500, 3_000, others)])
    by_start = np.argsort(start, kind="stable")
    one = np.ones(len(start), np.int64)
    device = np.concatenate([made.device, made.device[around]])
    columns = {
        "start": start, "end": start + rng.integers(300, 1_400, len(start)), "eventClass": 0 * one,
        "globalTid": _owner(device) + 77,
        "correlationId": np.concatenate([np.arange(1, launches + 1), launches + 1 + np.arange(others)]),
        "nameId": np.concatenate(
            [np.full(launches, len(_OTHER_CALLS) + 1), rng.integers(1, len(_OTHER_CALLS) + 1, others)]
        ),
        "returnValue": 0 * one,
    }  # fmt: skip
    return {column: values[by_start] for column, values in columns.items()}


def _insert(database: sqlite3.Connection, table: str, columns: dict[str, np.ndarray]) -> None:
    every = columns_of(table, GENERATION_2023)
    values = ", ".join("?" if name in columns else "NULL" for name in every)
    rows = zip(*(columns[name].tolist() for name in every if name in columns), strict=True)
    database.executemany(f"INSERT INTO {table} VALUES ({values})", rows)


# What PKS groups by, in the order of a raw page; the factors make work per thread block, by kernel.
_COUNTED = {
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("sector", 97),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": ("sector", 61),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": ("sector", 3),
    "smsp__inst_executed.sum": ("inst", 997),
    "smsp__inst_executed_op_global_ld.sum": ("inst", 31),
    "smsp__inst_executed_op_global_st.sum": ("inst", 17),
    "smsp__inst_executed_op_local_ld.sum": ("inst", 2),
    "smsp__inst_executed_op_shared_ld.sum": ("inst", 41),
    "smsp__inst_executed_op_shared_st.sum": ("inst", 23),
    "smsp__sass_inst_executed_op_global_atom.sum": ("inst", 5),
    "smsp__thread_inst_executed.sum": ("inst", 29_989),
}
_OF_DEVICE = {
    "device__attribute_compute_capability_major": "8",
    "device__attribute_compute_capability_minor": "0",
    "device__attribute_display_name": "NVIDIA A100-SXM4-40GB",
    "device__attribute_multiprocessor_count": "108",
}


def write_ncu(path: Path, launches: int, seed: int = 0) -> None:
    """A raw page of Nsight Compute in its modern layout: counters follow the grid, cycles and time vary."""
    made = made_launches(launches, seed)
    columns = _page_columns(made)
    units = ["cycle" if "cycles" in name else "nsecond" if "duration" in name else
             _COUNTED[name][0] if name in _COUNTED else "" for name in columns]  # fmt: skip
    with path.open("w", newline="") as file:
        page = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        page.writerows([columns, units])
        page.writerows(zip(*columns.values(), strict=True))


def _page_columns(made: MadeLaunches) -> dict[str, Iterable[object]]:
    launches = len(made.kernel)
    names = [kernel_name(kernel) for kernel in range(KERNELS)]
    grids, blocks = made.grid.tolist(), made.block.tolist()
    cycles = np.round(made.duration_ns * 1.41, 2)
    identity = {
        "ID": range(launches), "Process ID": repeat("31337", launches),
        "Process Name": repeat("train", launches), "Host Name": repeat(SYNTHETIC_MARK, launches),
        "Kernel Name": [names[kernel] for kernel in made.kernel.tolist()],
        "Context": repeat("1", launches), "Stream": repeat("7", launches),
        "Block Size": [f"({block}, 1, 1)" for block in blocks],
        "Grid Size": [f"({grid}, 1, 1)" for grid in grids],
        "Device": made.device.tolist(), "CC": repeat("8.0", launches),
    }  # fmt: skip
    counted = {
        name: (made.grid * made.block // 32 * (made.kernel % factor + 1)).tolist()
        for name, (_, factor) in _COUNTED.items()
    }
    threads = [f"{32 - kernel % 17 / 8:.2f}" for kernel in made.kernel.tolist()]
    measured = {name: repeat(text, launches) for name, text in _OF_DEVICE.items()} | {
        "gpc__cycles_elapsed.avg": [f"{value:.2f}" for value in cycles.tolist()],
        "gpu__time_duration.sum": made.duration_ns.tolist(),
        "launch__block_size": blocks, "launch__grid_size": grids,
        "launch__registers_per_thread": made.registers.tolist(),
        "launch__shared_mem_per_block_dynamic": made.shared_bytes.tolist(),
        "launch__shared_mem_per_block_static": repeat("0", launches),
        "smsp__thread_inst_executed_per_inst_executed.ratio": threads,
    }  # fmt: skip
    return identity | dict(sorted((measured | counted).items()))
