"""One measurement of the section ``engine``, in a process of its own: one JSON line.

python -m tests.bench.scale.engine_work group|plain-group|sort|plain-sort FOLDER
python -m tests.bench.scale.engine_work select METHOD FILE MEMORY_LIMIT_BYTES SCRATCH
python -m tests.bench.scale.engine_work select-on-disk METHOD,METHOD FILE MEMORY_LIMIT_BYTES SCRATCH

The last one writes launches to the scratch folder that would fit into memory, too, reads them once for all
methods, and prints a line for each of these, of which the peak of memory is that up to its end.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from assay_sampling.engines.beyond_memory import DuckEngine
from assay_sampling.engines.columns import Place
from assay_sampling.engines.scratch import Scratch
from assay_sampling.engines.seam import BATCH_ROWS, FileRows
from assay_sampling.gathering.from_batches import gather
from assay_sampling.gathering.on_disk import gather_on_disk
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Names
from assay_sampling.methods.registry import select
from assay_sampling.readers.opening import open_recording
from tests.bench.measure import peak_bytes
from tests.bench.scale.engine import ENGINE_BYTES, GROUP_KEYS, SORT_KEYS

_SPILL = 40 << 30
_COLUMNS = ("process", "launch", "kernel_id", "grid_x", "block_x", "stream", "start_ns", "duration_ns")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _engine(folder: Path) -> DuckEngine:
    spill = folder / "spill"
    spill.mkdir(exist_ok=True)
    return DuckEngine(spill, ENGINE_BYTES, _SPILL, _cores())


def group(folder: Path) -> int:
    rows = FileRows(tuple(_files(folder)), _COLUMNS)
    return len(_engine(folder).groups(rows, GROUP_KEYS, ["duration_ns"]))


def plain_group(folder: Path) -> int:
    keys = ", ".join(GROUP_KEYS)
    asked = f"SELECT {keys}, count(*), sum(duration_ns) FROM {_read(folder)} GROUP BY {keys}"
    return len(_plain(folder).sql(asked).to_arrow_table())


def sort(folder: Path) -> int:
    rows = FileRows(tuple(_files(folder)), _COLUMNS)
    return _through(_engine(folder).sorted(rows, SORT_KEYS))


def plain_sort(folder: Path) -> int:
    asked = f"SELECT {', '.join(_COLUMNS)} FROM {_read(folder)} ORDER BY {', '.join(SORT_KEYS)}"
    return _through(_plain(folder).sql(asked).to_arrow_reader(BATCH_ROWS))


def _read(folder: Path) -> str:
    return f"read_parquet([{', '.join(repr(str(path)) for path in _files(folder))}])"


def _plain(folder: Path) -> Any:
    import duckdb  # noqa: PLC0415

    spill = folder / "plain-spill"
    options = {"memory_limit": f"{ENGINE_BYTES}B", "threads": _cores(), "temp_directory": str(spill)}
    return duckdb.connect(":memory:", config={**options, "preserve_insertion_order": "false"})


def _through(batches: Iterator[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def selection(method: str, path: Path, limit: int, scratch: Path) -> dict[str, Any]:
    """Read a recording and select; what it comes to is in the document's hash."""
    began, cpu = time.perf_counter(), time.process_time()
    with open_recording(path) as recording:
        launches = gather(
            recording.batches(), recording.schema, sources=["made"], memory_limit_bytes=limit,
            expected_launches=recording.expected_launches, scratch=scratch,
        )  # fmt: skip
    read = time.perf_counter() - began, time.process_time() - cpu
    return _selected(method, launches, *read)


def selections_on_disk(methods: str, path: Path, limit: int, scratch: Path) -> Iterator[dict[str, Any]]:
    """As :func:`selection`, of launches that are read once, into the scratch folder however few they are."""
    began, cpu = time.perf_counter(), time.process_time()
    with open_recording(path) as recording:
        place = Place(Scratch(scratch), limit)
        launches = gather_on_disk(
            recording.batches(), recording.schema, Names(), place, sources=["made"]
        )  # fmt: skip
    read = time.perf_counter() - began, time.process_time() - cpu
    for method in methods.split(","):
        place.scratch.peak_bytes = place.scratch.used_bytes
        yield _selected(method, launches, *read)


def _selected(method: str, launches: Launches, read_seconds: float, read_cpu: float) -> dict[str, Any]:
    began, cpu = time.perf_counter(), time.process_time()
    parameters = {"cost": "duration_ns"} if method == "stem" else {}
    chosen = select(method, Profile(detailed=launches), parameters)
    text = chosen.document().model_dump_json()
    return {
        "method": method,
        "launches": len(launches),
        "on_disk": launches.is_on_disk,
        "read_seconds": read_seconds,
        "read_cpu": read_cpu,
        "seconds": read_seconds + time.perf_counter() - began,
        "cpu": read_cpu + time.process_time() - cpu,
        "peak": peak_bytes(),
        "scratch": launches.table.place.scratch.peak_bytes if launches.is_on_disk else 0,
        "hash": hashlib.blake2b(text.encode(), digest_size=8).hexdigest(),
        "groups": len(chosen.group_launches),
    }


def _load_libraries() -> None:
    """As a program that has read launches has done; Arrow loads pandas, if there, with its first array."""
    for name in ("duckdb", "pyarrow.parquet"):
        importlib.import_module(name)
    pa.array(np.zeros(1))


_WORK: dict[str, Callable[[Path], int]] = {
    "group": group,
    "plain-group": plain_group,
    "sort": sort,
    "plain-sort": plain_sort,
}


def main() -> None:
    """Measure and print."""
    what, *rest = sys.argv[1:]
    if what == "select":
        method, path, limit, scratch = rest
        print(json.dumps(selection(method, Path(path), int(limit), Path(scratch))))
        return
    if what == "select-on-disk":
        methods, path, limit, scratch = rest
        for found in selections_on_disk(methods, Path(path), int(limit), Path(scratch)):
            print(json.dumps(found), flush=True)
        return
    _load_libraries()
    began, cpu = time.perf_counter(), time.process_time()
    rows = _WORK[what](Path(rest[0]))
    took = time.perf_counter() - began, time.process_time() - cpu
    print(json.dumps({"rows": rows, "seconds": took[0], "cpu": took[1], "peak": peak_bytes()}))


if __name__ == "__main__":
    main()
