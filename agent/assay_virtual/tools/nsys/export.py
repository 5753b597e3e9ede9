"""Export of a capture to SQLite, in the generation of the schema that the tool's version writes.

Tables are created lazily, as by the real tool: one that would be empty is absent. Correlation IDs repeat
across processes, and all kernels of a graph launch share one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from assay_virtual.architectures import Architecture, architecture
from assay_virtual.tools.environment import version_key
from assay_virtual.tools.kernel_names import function_name, mangled_name
from assay_virtual.tools.nsys.report import Capture
from assay_virtual.tools.nsys.schema import (
    GENERATION_2021,
    GENERATION_2023,
    Generation,
    columns_of,
    create_table,
)

Row = tuple[Any, ...]
_VM = 1 << 48
_FIRST_CORRELATION = 101
_EPOCH_NS = 1_767_225_600_000_000_000  # 2026-01-01, made up
_EPOCH_TEXT = "2026-01-01T00:00:00"
_PUSH_POP = 59
_GRAPH_NODES = 1 << 32
_RUNTIME_CLASS = 0
_FIXED_STRINGS = ("[Unknown]", "cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000")


def generation_of(version: str) -> Generation:
    """Which schema a version writes: 2.7.0 until 2022, 3.7.2 from 2023."""
    return GENERATION_2023 if version_key(version) >= (2023, 1) else GENERATION_2021


def export_sqlite(capture: Capture, path: Path, version: str, arguments: dict[str, str]) -> None:
    """Write the database to a path that does not exist. Raises OSError or sqlite3.Error."""
    generation = generation_of(version)
    export = _Export(capture)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("BEGIN")
        for table, rows in export.tables(generation, version, arguments):
            _write(connection, table, generation, rows)
        connection.execute("COMMIT")
    finally:
        connection.close()


def _write(connection: sqlite3.Connection, table: str, generation: Generation, rows: Iterable[Row]) -> None:
    first = next(iterator := iter(rows), None)
    if first is None:
        return
    connection.execute(create_table(table, generation))
    places = ", ".join("?" * len(columns_of(table, generation)))
    connection.execute(f"INSERT INTO {table} VALUES ({places})", first)
    connection.executemany(f"INSERT INTO {table} VALUES ({places})", iterator)


class _Export:
    """One export: interns strings while rows are made, so StringIds comes last."""

    def __init__(self, capture: Capture) -> None:
        self._document = capture.document
        self._rows = capture.launches.rows
        self._column = {name: capture.launches.numbers(name) for name in capture.launches.by_name}
        self._strings = {text: index for index, text in enumerate(_FIXED_STRINGS)}
        self._pid = {entry["process"]: int(entry["pid"]) for entry in self._document["processes"]}
        self._threads_of = {entry["process"]: entry["threads"] for entry in self._document["processes"]}
        self._device = {entry["process"]: int(entry["device"]) for entry in self._document["processes"]}
        self._gpu = architecture(self._document["gpu"])

    def tables(
        self, generation: Generation, version: str, arguments: dict[str, str]
    ) -> Iterator[tuple[str, Iterable[Row]]]:
        yield "TARGET_INFO_SYSTEM_ENV", self._system()
        yield "TARGET_INFO_SESSION_START_TIME", [(_EPOCH_NS, _EPOCH_TEXT, _EPOCH_TEXT)]
        yield "ANALYSIS_DETAILS", [(_VM, self._end_ns(), 0, self._end_ns())]
        yield "TARGET_INFO_GPU", [_gpu_row(self._gpu, *each) for each in enumerate(self._document["uuids"])]
        if generation.capture_table is not None:
            yield generation.capture_table, self._capture_parameters()
        yield generation.export_table, _export_parameters(generation, version, arguments)
        yield "PROCESSES", self._processes()
        yield "ThreadNames", self._threads()
        yield "NVTX_EVENTS", self._ranges()
        yield "CUPTI_ACTIVITY_KIND_RUNTIME", self._calls()
        yield "CUPTI_ACTIVITY_KIND_KERNEL", self._kernels(generation)
        if self._document["whole_graphs"]:
            yield "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", self._graphs()
        yield "DIAGNOSTIC_EVENT", self._diagnostics()
        yield "StringIds", ((index, text) for text, index in self._strings.items())

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _global_pid(self, process: int) -> int:
        return _VM | self._pid[process] << 24

    def _global_tid(self, process: int, thread_id: int) -> int:
        return self._global_pid(process) | thread_id & 0xFFFFFF

    def _end_ns(self) -> int:
        if "ended_ns" in self._document:
            return int(self._document["ended_ns"])
        return max(map(self._kernel_end_ns, range(self._rows)), default=0) + 1_000_000

    def _kernel_end_ns(self, row: int) -> int:
        return int(self._column["start_ns"][row] + self._column["duration_ns"][row])

    def _select(self, rows: list[int], *names: str) -> Iterator[Row]:
        """The values of some columns in some rows."""
        columns = [self._column[name] for name in names]
        for row in rows:
            yield tuple(column[row] for column in columns)

    def _calls(self) -> Iterator[Row]:
        process, call, begins = (self._column[name] for name in ("process", "call", "call_ns"))
        rows = [
            row
            for row in range(self._rows)
            if not row or call[row] != call[row - 1] or process[row] != process[row - 1]
        ]
        rows.sort(key=begins.__getitem__)
        took_ns = self._document["call_duration_ns"]
        chosen = self._select(rows, "process", "call", "call_ns", "graph_launch", "thread")
        for number, ordinal, begin, graph, thread in chosen:
            caller = self._global_tid(number, self._threads_of[number][thread])
            yield (
                begin, begin + took_ns, _RUNTIME_CLASS, caller, _FIRST_CORRELATION + ordinal,
                1 if graph < 0 else 2, 0, None,
            )  # fmt: skip

    def _kernels(self, generation: Generation) -> Iterator[Row]:
        entries = [self._kernel(entry) for entry in self._document["kernels"]]
        whole, graphs = self._document["whole_graphs"], self._column["graph_launch"]
        rows = [
            row
            for row, is_recorded in enumerate(self._column["kept"])
            if is_recorded and not (whole and graphs[row] >= 0)
        ]
        rows.sort(key=self._column["start_ns"].__getitem__)
        chosen = self._select(
            rows,
            "process",
            "call",
            "start_ns",
            "duration_ns",
            "kernel",
            "x",
            "y",
            "z",
            "stream",
            "graph_node",
        )
        green = (None,) if generation.modern else ()
        for grid_id, (process, call, start, duration, kernel, x, y, z, stream, node) in enumerate(chosen, 1):
            naming, block, registers, static, dynamic = entries[kernel]
            yield (
                start, start + duration, self._device[process], 1, *green, stream, _FIRST_CORRELATION + call,
                self._global_pid(process), *naming, 1, 0, registers, x, y, z, *block, static, dynamic, 0, 0,
                grid_id, self._gpu.shared_bytes_per_sm, None if node < 0 else _GRAPH_NODES + node + 1, 0,
            )  # fmt: skip

    def _kernel(self, entry: dict[str, Any]) -> tuple[tuple[int, int, int], list[int], int, int, int]:
        name = entry["name"]
        naming = self._string(name), self._string(function_name(name)), self._string(mangled_name(name))
        static, dynamic = entry["static_shared_bytes"], entry["dynamic_shared_bytes"]
        return naming, entry["block"], entry["registers"], static, dynamic

    def _graphs(self) -> Iterator[Row]:
        """A row for each graph launch, from its first kernel's start to its last one's end."""
        column = self._column
        inside = [row for row, graph in enumerate(column["graph_launch"]) if graph >= 0]
        for (process, _), group in groupby(
            inside, lambda row: (column["process"][row], column["graph_launch"][row])
        ):
            rows = list(group)
            begin = min(column["start_ns"][row] for row in rows)
            finish = max(map(self._kernel_end_ns, rows))
            stream, correlation = column["stream"][rows[0]], _FIRST_CORRELATION + column["call"][rows[0]]
            device = self._device[process]
            yield begin, finish, device, 1, stream, correlation, self._global_pid(process), 1, 2

    def _ranges(self) -> Iterator[Row]:
        for entry in self._document["processes"]:
            for text, start, end, thread_id in entry["ranges"]:
                thread = self._global_tid(entry["process"], thread_id)
                yield (
                    start, end, _PUSH_POP, None, None, None, text, thread, None, None, 0,
                    *(None for _ in range(8)),
                )  # fmt: skip

    def _processes(self) -> Iterator[Row]:
        for entry in self._document["processes"]:
            yield self._global_pid(entry["process"]), entry["pid"], entry["name"]

    def _threads(self) -> Iterator[Row]:
        for entry in self._document["processes"]:
            for thread in entry["threads"]:
                yield self._string("assay-virtual"), 0, self._global_tid(entry["process"], thread)

    def _diagnostics(self) -> Iterator[Row]:
        if self._document["dropped"]:
            text = f"CUPTI buffers were full: {self._document['dropped']} CUDA events were dropped."
            yield self._end_ns(), 1, 2, 2, text, None

    def _capture_parameters(self) -> Iterator[Row]:
        command = self._document["command"]
        yield "CAPTURE_EVENT_TYPE", "Cuda"
        yield "PROCESS_0:COMMAND", command[0] if command else ""
        yield from ((f"PROCESS_0:ARGUMENT_{i}", text) for i, text in enumerate(command[1:]))
        # The real tool also stores the whole environment, so its caller must give it a clean one.
        for name, value in self._document["environment"].items():
            yield "PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"'
        mode = "Graph" if self._document["whole_graphs"] else "Node"
        yield "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", mode

    def _system(self) -> Iterator[Row]:
        yield _VM, "Local (CLI)", "HardwarePlatform", 600, "assay virtual"
        variables = "\0".join(f"{name}={value}" for name, value in self._document["environment"].items())
        yield _VM, "Local (CLI)", "DeviceEnvironment", 610, variables


def _export_parameters(generation: Generation, version: str, arguments: dict[str, str]) -> Iterator[Row]:
    yield "EXPORT_PRODUCT_NAME", "assay virtual: stand-in for NVIDIA Nsight Systems"
    yield "EXPORT_PRODUCT_VERSION", version
    yield "EXPORT_PRODUCT_DATE", ".".join(version.split(".")[:2])
    yield "EXPORT_SCHEMA_VERSION", generation.schema_version
    for part, number in zip(("MAJOR", "MINOR", "MICRO"), generation.schema_version.split("."), strict=True):
        yield f"EXPORT_SCHEMA_VERSION_{part}", number
    yield "EXPORT_PLATFORM", "linux-desktop"
    yield "EXPORT_ARCH", "x64"
    prefix = "EXPORT_PARAM" if generation.modern else "EXPORT"
    for name, value in arguments.items():
        yield f"{prefix}_{name}", value
    yield "ASSAY_SYNTHETIC", "true"


def _gpu_row(gpu: Architecture, ordinal: int, uuid: str) -> Row:
    major, minor = (int(part) for part in gpu.compute_capability.split("."))
    values: dict[str, Any] = dict.fromkeys(columns_of("TARGET_INFO_GPU", GENERATION_2023), 0)
    values |= {
        "vmId": _VM, "id": ordinal, "cuDevice": ordinal,
        "name": f"virtual {gpu.kind}", "busLocation": "0000:00:00.0", "isDiscrete": 1,
        "l2CacheSize": gpu.l2_bytes, "totalMemory": gpu.memory_bytes,
        "memoryBandwidth": int(gpu.dram_bytes_per_second), "clockRate": gpu.boost_clock_hz,
        "smCount": gpu.sm_count, "uuid": uuid.removeprefix("GPU-"),
        "chipName": gpu.chip.upper(), "ctxswDevPath": "", "ctrlDevPath": "", "constantMemory": 65536,
        "maxIPC": int(gpu.issue_per_cycle), "maxRegistersPerBlock": gpu.registers_per_sm,
        "maxShmemPerBlock": 49152, "maxShmemPerBlockOptin": gpu.shared_bytes_per_block,
        "maxShmemPerSm": gpu.shared_bytes_per_sm, "maxRegistersPerSm": gpu.registers_per_sm,
        "threadsPerWarp": 32, "asyncEngines": 3, "maxWarpsPerSm": gpu.warps_per_sm,
        "maxBlocksPerSm": gpu.blocks_per_sm, "maxThreadsPerBlock": 1024, "maxBlockDimX": 1024,
        "maxBlockDimY": 1024, "maxBlockDimZ": 64, "maxGridDimX": 2147483647, "maxGridDimY": 65535,
        "maxGridDimZ": 65535, "computeMajor": major, "computeMinor": minor, "smMajor": major,
        "smMinor": minor,
    }  # fmt: skip
    return tuple(values.values())
