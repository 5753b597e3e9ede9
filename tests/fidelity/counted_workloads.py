"""Workloads whose counters are known for every launch, so that labels after a window can be judged.

``whole`` holds counters of all launches, ``light`` the light run of the same launches. Virtual GPUs and
generated pages are synthetic; ``infer`` is simulated: its light time is the simulator's active cycles.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from assay_sampling.counters.definitions import registry
from assay_sampling.launches import table as lt
from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from assay_virtual.model.gpu import ProcessLaunches, VirtualGPU
from assay_virtual.workloads.loading import load_workload

_FOLDER = Path(__file__).resolve().parents[2] / "campaigns" / "virtual"
_CYCLES_PER_NS = 1.38
# What the simulator counts, under the names of the counters that PKS compares launches by.
_SIMULATED = {
    "global_load_sectors": "global_reads",
    "global_store_sectors": "global_writes",
    "global_load_instructions": "loads",
    "global_store_instructions": "stores",
    "shared_load_instructions": "shared_memory_insts",
    "instructions": "warp_instructions",
    "cycles_gpc_avg": "active_cycles",
}
_NOT_SIMULATED = (
    "local_load_sectors", "local_load_instructions", "shared_store_instructions",
    "global_atomic_instructions",
)  # fmt: skip


@dataclass(frozen=True)
class CountedWorkload:
    """A workload with counters of every launch; the first ``window`` launches are what a user would have."""

    name: str
    origin: str
    whole: Launches
    light: Launches
    window: int


def virtual(name: str, gpu: str = "V100", *, window: int) -> CountedWorkload:
    """A workload file of ``campaigns/virtual`` on a virtual GPU."""
    device, workload = VirtualGPU(gpu), load_workload(_FOLDER / f"{name}.toml")
    detailed = device.execute(workload, level="detailed", profiled=False)
    free = device.execute(workload, level="light")
    names = lt.Names()
    registered = registry()
    counters = [registered[each].column(registered[each].metrics[0].name) for each in detailed[0].counters]
    whole = _launches(
        [{**_base(part, names), **part.counters} for part in detailed],
        lt.launch_schema(device.metadata("detailed"), counters),
        names,
    )
    light = _launches(
        [{**_base(part, names), "start_ns": part.start_ns, "duration_ns": part.duration_ns} for part in free],
        lt.launch_schema(device.metadata("light")),
        names,
    )
    return CountedWorkload(f"{name} on {gpu}", "synthetic", whole, light, window)


def generated_page(data: Path, *, window: int) -> CountedWorkload:
    """5,000 launches from a seeded generator; light time is their cycles at a fixed clock."""
    path = data / "ncu" / "synthetic_v100_5000_raw_page.csv.gz"
    whole = read_launches(path, ReadOptions(synthetic=True))
    return CountedWorkload("generated page", "synthetic", whole, _light_half(whole), window)


def simulated(data: Path, *, window: int) -> Iterator[CountedWorkload]:
    """The application ``infer`` on each of the three simulated GPUs."""
    with (data / "accel_sim_more" / "launches.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["run"].startswith("infer.")]
    for run in dict.fromkeys(row["run"] for row in rows):
        whole = _of_simulator([row for row in rows if row["run"] == run])
        light = _light_half(whole, cycles_per_ns=1.0)
        yield CountedWorkload(f"infer on {run.split('_')[-1]}", "simulated", whole, light, window)


def _of_simulator(rows: list[dict[str, str]]) -> Launches:
    def column(name: str) -> np.ndarray:
        return np.array([float(row[name]) for row in rows])

    def extents(name: str) -> dict[str, np.ndarray]:
        sizes = np.array([[int(size) for size in row[name].split("x")] for row in rows])
        return {f"{name}_{axis}": sizes[:, index] for index, axis in enumerate("xyz")}

    names = lt.Names()
    values: dict[str, Any] = {
        "process": np.zeros(len(rows), np.int32),
        "launch": np.array([int(row["launch"]) - 1 for row in rows]),
        "kernel_id": [names.intern(row["kernel"]) for row in rows],
        **extents("grid"),
        **extents("block"),
        **{name: column(theirs) for name, theirs in _SIMULATED.items()},
        **{name: np.zeros(len(rows)) for name in _NOT_SIMULATED},
        "threads_per_instruction": column("instructions") / column("warp_instructions"),
    }
    values["thread_blocks"] = (values["grid_x"] * values["grid_y"] * values["grid_z"]).astype(float)
    registered = registry()
    measured = [name for name in values if name in registered]
    counters = [registered[name].column(registered[name].metrics[0].name) for name in measured]
    return _launches(
        [values], lt.launch_schema(lt.TableMetadata("detailed", origin="simulated"), counters), names
    )


def _base(part: ProcessLaunches, names: lt.Names) -> dict[str, Any]:
    kernels = np.array([names.intern(kernel.name) for kernel in part.kernels], np.uint64)
    blocks = np.array([kernel.block for kernel in part.kernels])
    texts = [names.intern(text) for text in part.texts]
    values: dict[str, Any] = {
        "process": np.full(len(part), part.process, np.int32),
        "launch": part.launch,
        "kernel_id": kernels[part.kernel],
        **{f"grid_{axis}": part.grid[:, index] for index, axis in enumerate("xyz")},
        **{f"block_{axis}": blocks[part.kernel, index] for index, axis in enumerate("xyz")},
    }
    for name, given in (
        ("nvtx", part.nvtx),
        ("operator", part.operator),
        ("input_shapes", part.input_shapes),
    ):
        values[f"{name}_id"] = [texts[index] if index >= 0 else None for index in given.tolist()]
    return values


def _launches(parts: list[Mapping[str, Any]], schema: pa.Schema, names: lt.Names) -> Launches:
    return Launches(pa.Table.from_batches([lt.make_batch(schema, part) for part in parts], schema), names)


def _light_half(whole: Launches, *, cycles_per_ns: float = _CYCLES_PER_NS) -> Launches:
    schema = lt.launch_schema(lt.TableMetadata("light", origin=whole.metadata.origin))
    duration_ns = np.maximum(np.round(whole.column("cycles_gpc_avg") / cycles_per_ns), 1).astype(np.int64)
    start_ns = np.cumsum(duration_ns + 1_000) - duration_ns
    columns = {name: whole.table[name] for name in lt.BASE_COLUMNS}
    columns.update(duration_ns=pa.array(duration_ns), start_ns=pa.array(start_ns))
    return Launches(pa.table([columns[field.name] for field in schema], schema=schema), whole.names)
