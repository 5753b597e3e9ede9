"""Reading recordings, in CPU seconds of one process, beside the library that a script would use.

The recordings are synthetic (:mod:`tests.bench.made_recordings`).
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pandas

from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import open_recording
from tests.bench.made_recordings import write_ncu, write_nsys
from tests.bench.made_trace import write_trace
from tests.bench.measure import Measurement

_KERNEL_COLUMNS = (
    'start, "end", deviceId, streamId, correlationId, globalPid, demangledName, registersPerThread, '
    "gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory + dynamicSharedMemory"
)


def nsys_sqlite(launches: int) -> Measurement:
    """All launches of a SQLite export with 3.85 runtime calls a launch."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        path = Path(folder) / "report.sqlite"
        write_nsys(path, launches)
        began = time.process_time()
        with open_recording(path) as recording:
            read = sum(batch.records.num_rows for batch in recording.batches())
        return Measurement(read, time.process_time() - began, {})


def pandas_read_sql(launches: int) -> Measurement:
    """The same columns by ``pandas.read_sql_query``, kernels joined to their calls and in their order."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        path = Path(folder) / "report.sqlite"
        write_nsys(path, launches)
        began = time.process_time()
        with closing(sqlite3.connect(path)) as database:
            kernels = pandas.read_sql_query(
                f"SELECT {_KERNEL_COLUMNS} FROM CUPTI_ACTIVITY_KIND_KERNEL", database
            )
            calls = pandas.read_sql_query(
                'SELECT start AS called, "end" AS returned, globalTid, correlationId '
                "FROM CUPTI_ACTIVITY_KIND_RUNTIME",
                database,
            )
        calls["globalPid"] = calls["globalTid"] & ~0xFFFFFF
        joined = kernels.merge(calls, on=["globalPid", "correlationId"], how="left")
        ordered = joined.sort_values(["globalPid", "called", "start", "correlationId"])
        return Measurement(len(ordered), time.process_time() - began, {})


def ncu_raw_page(launches: int) -> Measurement:
    """All launches of a raw page of Nsight Compute."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        path = Path(folder) / "page.csv"
        write_ncu(path, launches)
        began = time.process_time()
        with open_recording(path) as recording:
            read = sum(batch.records.num_rows for batch in recording.batches())
        return Measurement(read, time.process_time() - began, {})


def pandas_read_csv(launches: int) -> Measurement:
    """The same page by ``pandas.read_csv``, without the row of units, so that columns are of numbers."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        path = Path(folder) / "page.csv"
        write_ncu(path, launches)
        began = time.process_time()
        read = len(pandas.read_csv(path, skiprows=[1]))
        return Measurement(read, time.process_time() - began, {})


def _kineto(launches: int, *, operations: bool) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        path = Path(folder) / "trace.json"
        write_trace(path, launches)
        began = time.process_time()
        with open_recording(path, ReadOptions(operations=operations)) as recording:
            read = sum(batch.records.num_rows for batch in recording.batches())
        return Measurement(read, time.process_time() - began, {})


def kineto(launches: int) -> Measurement:
    """All launches of a Kineto trace with their operators and operations."""
    return _kineto(launches, operations=True)


def kineto_launches(launches: int) -> Measurement:
    """All launches of a Kineto trace without operators."""
    return _kineto(launches, operations=False)


def json_to_pandas(launches: int) -> Measurement:
    """The kernels of the same trace by ``json.load`` and pandas, joined to their calls and in their order."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        path = Path(folder) / "trace.json"
        write_trace(path, launches)
        began = time.process_time()
        with path.open(encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        of_category: dict[str, list[dict]] = {"kernel": [], "cuda_runtime": []}
        for event in events:
            if event.get("ph") == "X" and event.get("cat") in of_category:
                of_category[event["cat"]].append(
                    {**event["args"], "name": event["name"], "ts": event["ts"], "dur": event["dur"]}
                )
        kernels, calls = (pandas.DataFrame(of_category[name]) for name in ("kernel", "cuda_runtime"))
        joined = kernels.merge(calls[["correlation", "ts"]], on="correlation", suffixes=("", "_call"))
        joined = joined.sort_values(["ts_call", "ts"])
        return Measurement(len(joined), time.process_time() - began, {})
