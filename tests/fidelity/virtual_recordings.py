"""Recordings of the example workloads on virtual GPUs, made in this process: synthetic."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from assay_sampling.counters.definitions import registry
from assay_sampling.launches.in_memory import Launches, sort_launches
from assay_sampling.launches.table import CounterColumn, Level, Names, launch_schema, make_batch
from assay_virtual.model.gpu import ProcessLaunches, VirtualGPU
from assay_virtual.workloads.loading import load_workload

EXAMPLES = Path(__file__).resolve().parents[2] / "campaigns" / "virtual"
_TEXTS = {"nvtx_id": "nvtx", "operator_id": "operator", "input_shapes_id": "input_shapes"}


@cache
def virtual_recording(workload: str, kind: str, level: Level, count: int | None = None) -> Launches:
    """The first ``count`` launches of each process of an example workload, all by default."""
    gpu = VirtualGPU(kind)
    # As the demo: what an autotuner does under a profiler is left out, so that both levels hold the same.
    runs = gpu.execute(load_workload(EXAMPLES / f"{workload}.toml"), level=level, profiled=False, count=count)
    names, schema = Names(), None
    batches = []
    for run in runs:
        counters = [_counter(name) for name in run.counters]
        schema = launch_schema(gpu.metadata(level), counters)
        batches.append(make_batch(schema, _columns(run, names)))
    table = sort_launches(pa.Table.from_batches(batches, schema=schema))
    return Launches(table, names, (f"{workload} on virtual {kind}",))


def _counter(name: str) -> CounterColumn:
    found = registry()[name]
    return CounterColumn(name, found.unit, name, "hardware")


def _columns(run: ProcessLaunches, names: Names) -> dict[str, object]:
    """The base columns and counters of one process."""
    kernel = run.kernel
    ids = np.array([names.intern(each.name) for each in run.kernels], np.uint64)
    blocks = np.array([each.block for each in run.kernels], np.int64)
    columns: dict[str, object] = {
        "process": np.full(len(run), run.process),
        "launch": run.launch,
        "kernel_id": ids[kernel],
        **{f"grid_{axis}": run.grid[:, index] for index, axis in enumerate("xyz")},
        **{f"block_{axis}": blocks[kernel, index] for index, axis in enumerate("xyz")},
        "registers_per_thread": np.array([each.registers for each in run.kernels])[kernel],
        "device": np.zeros(len(run), np.int32),
        "stream": run.stream,
        **run.counters,
    }
    if len(run.duration_ns):
        columns.update(start_ns=run.start_ns, duration_ns=run.duration_ns)
    texts = np.array([names.intern(text) for text in run.texts] or [0], np.uint64)
    for column, what in _TEXTS.items():
        index = getattr(run, what)
        columns[column] = pa.array(texts[np.maximum(index, 0)], mask=index < 0)
    return columns
