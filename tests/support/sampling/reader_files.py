"""Small profile files for tests of readers, written as the tools write them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from assay_sampling.launches.in_memory import Launches
from assay_sampling.operations.identity import Operation

RAW_FIELDS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
              "Block Size", "Grid Size", "Device", "CC", "gpc__cycles_elapsed.avg",
              "gpu__time_duration.sum", "launch__grid_size", "smsp__inst_executed.sum")  # fmt: skip
RAW_UNITS = ("",) * 11 + ("cycle", "nsecond", "", "inst")


def raw_row(identifier: int, **changed: str) -> dict[str, str]:
    """One launch of a raw page as text cells; ``changed`` replaces cells by field, blanks as "_"."""
    row = {
        "ID": str(identifier), "Process ID": "4242", "Process Name": "app", "Host Name": "127.0.0.1",
        "Kernel Name": f"void kernel_{identifier % 3}<float>(float*, int)", "Context": "1", "Stream": "7",
        "Block Size": "(256, 1, 1)", "Grid Size": f"({identifier + 1}, 2, 1)", "Device": "0", "CC": "8.0",
        "gpc__cycles_elapsed.avg": f"{1000 + identifier}.5", "gpu__time_duration.sum": "2048",
        "launch__grid_size": str(2 * identifier + 2), "smsp__inst_executed.sum": str(12345 * identifier),
    }  # fmt: skip
    return row | {name.replace("_", " ") if name in _BLANKED else name: v for name, v in changed.items()}


_BLANKED = {name.replace(" ", "_") for name in RAW_FIELDS if " " in name}


def raw_line(cells: Iterable[str]) -> str:
    """A line as Nsight Compute writes it: every cell quoted."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(list(cells))
    return text.getvalue()


def raw_page(
    rows: Sequence[Mapping[str, str]],
    fields: Sequence[str] = RAW_FIELDS,
    units: Sequence[str] | None = RAW_UNITS,
    preamble: str = "",
) -> str:
    """A raw page; ``units`` None leaves the units row out."""
    lines = [preamble, raw_line(fields)]
    if units is not None:
        lines.append(raw_line(units))
    lines += [raw_line(row.get(name, "") for name in fields) for row in rows]
    return "".join(lines)


def sentences(launches: Launches) -> tuple[str, ...]:
    """The notes as people read them."""
    return tuple(note.text for note in launches.notes)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_gzip(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data, mtime=0))
    return path


def kernel_names(launches: Launches) -> list[str]:
    return [launches.names[i] for i in launches.column("kernel_id").tolist()]


def texts(launches: Launches, column: str) -> list[str | None]:
    return [None if i is None else launches.names[i] for i in launches.table[column].to_pylist()]


def operations(launches: Launches) -> list[tuple[int, Operation]]:
    """Of every launch the ordinal of its call's first launch, and its operation."""
    identities = [Operation.from_text(text or "") for text in texts(launches, "operation_id")]
    return list(zip(launches.column("call").tolist(), identities, strict=True))


PID = 281575874887680  # a global ID of a process: thread bits are zero
TID = PID + 6014


def nsys_export(
    path: Path,
    kernels: Sequence[Mapping[str, Any]],
    calls: Sequence[Mapping[str, Any]] | None = (),
    nvtx: Sequence[Mapping[str, Any]] | None = None,
    *,
    strings: Mapping[int, str] | None = None,
    extra: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    page_size: int = 4096,
) -> Path:
    """A SQLite export; each table has the columns of its first row. ``calls`` None: no such table."""
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA page_size={page_size}")
    names = {1: "void first<int>(int*)", 2: "void second(float)", 3: "third"} if strings is None else strings
    tables: dict[str, Sequence[Mapping[str, Any]]] = {
        "StringIds": [{"id": i, "value": text} for i, text in names.items()],
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
        **({"CUPTI_ACTIVITY_KIND_RUNTIME": calls} if calls else {}),
        **({"NVTX_EVENTS": nvtx} if nvtx else {}),
        **(extra or {}),
    }
    for table, rows in tables.items():
        if rows:
            columns = list(rows[0])
            listed = ", ".join('"' + column + '"' for column in columns)
            connection.execute(f"CREATE TABLE {table} ({listed})")
            marks = ", ".join("?" * len(columns))
            connection.executemany(
                f"INSERT INTO {table} VALUES ({marks})", [[r[c] for c in columns] for r in rows]
            )
    connection.commit()
    connection.close()
    return path


def nsys_kernel(start: int, correlation: int, **changed: Any) -> dict[str, Any]:
    return {
        "start": start, "end": start + 100, "deviceId": 0, "contextId": 1, "streamId": 7,
        "correlationId": correlation, "globalPid": PID, "demangledName": 1, "shortName": 1,
        "registersPerThread": 32, "gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1,
        "staticSharedMemory": 16, "dynamicSharedMemory": 1024, "graphNodeId": None,
    } | changed  # fmt: skip


def nsys_call(start: int, correlation: int, **changed: Any) -> dict[str, Any]:
    return {"start": start, "end": start + 10, "globalTid": TID, "correlationId": correlation} | changed


def nsys_range(start: int, end: int | None, text: str | None, **changed: Any) -> dict[str, Any]:
    return {
        "start": start, "end": end, "eventType": 59, "text": text, "textId": None, "globalTid": TID,
    } | changed  # fmt: skip


_UNSIGNED = ("globalTid", "globalPid", "endGlobalTid", "graphNodeId")


def parquet_folder(source: Path, folder: Path) -> Path:
    """The tables of a SQLite export as ``nsys export -t parquetdir`` writes them: IDs of threads unsigned."""
    folder.mkdir()
    with closing(sqlite3.connect(f"file:{source}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = lambda text: text.decode(errors="replace")
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            cursor = database.execute(f'SELECT * FROM "{name}"')
            columns = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            arrays = []
            for index, column in enumerate(columns):
                values = [row[index] for row in rows]
                arrays.append(pa.array(values, pa.uint64()) if column in _UNSIGNED else pa.array(values))
            pq.write_table(pa.table(arrays, names=columns), folder / f"{name}.parquet", row_group_size=500)
    return folder


def trace_kernel(ts: Any, correlation: int, **changed: Any) -> dict[str, Any]:
    """A kernel event; names with ``args_`` replace arguments (blanks as "_")."""
    args = {
        "External id": correlation, "device": 0, "context": 1, "stream": 7, "correlation": correlation,
        "registers per thread": 32, "shared memory": 64, "grid": [3, 2, 1], "block": [128, 1, 1],
    }  # fmt: skip
    args |= {k[5:].replace("_", " "): v for k, v in changed.items() if k.startswith("args_")}
    event = {"ph": "X", "cat": "kernel", "name": "void k<int>(int)", "pid": 0, "tid": 7, "ts": ts, "dur": 2}
    return event | {k: v for k, v in changed.items() if not k.startswith("args_")} | {"args": args}


def trace_call(ts: Any, correlation: int, **changed: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 100,
        "tid": 101,
        "ts": ts,
        "dur": 3,
        "args": {"External id": correlation, "cbid": 211, "correlation": correlation},
    } | changed


def trace_range(
    category: str, name: str, ts: Any, dur: Any, args: Any = None, **changed: Any
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 100, "tid": 101, "ts": ts, "dur": dur,
        "args": args or {},
    } | changed  # fmt: skip


def trace(events: Sequence[Any], **members: Any) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events), **members})
