"""Synthetic launches for benchmarks: a light recording of any length, deterministic by seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from assay_sampling.launches.table import LaunchBatch, Names, TableMetadata, launch_schema, make_batch

METADATA = TableMetadata("light", origin="synthetic", format="generated", tool="tests.bench")
SCHEMA = launch_schema(METADATA)
BATCH_LAUNCHES = 65536


def names_for(kernels: int) -> Names:
    """``kernels`` kernel names of the length that template-heavy libraries give them."""
    names = Names()
    for index in range(kernels):
        names.intern(f"void synthetic::kernel_{index}<float, {index % 7}, {'int, ' * 12}float>(float*, int)")
    return names


def light_batches(
    launches: int, *, kernels: int = 3_000, shapes: int = 10, seed: int = 0
) -> Iterator[LaunchBatch]:
    """Batches of a light recording with at most ``kernels`` x ``shapes`` distinct signatures."""
    names = names_for(kernels)
    identifiers = np.array([i for i, _ in names.items()], np.uint64)
    generator = np.random.default_rng(seed)
    start_ns = 0
    for first in range(0, launches, BATCH_LAUNCHES):
        rows = min(BATCH_LAUNCHES, launches - first)
        kernel = generator.integers(0, kernels, rows)
        shape = generator.integers(0, shapes, rows)
        duration_ns = (2000 + 40 * kernel + 300 * shape + generator.integers(0, 20_000, rows)).astype(
            np.int64
        )
        ends = start_ns + np.cumsum(duration_ns)
        columns = {
            "process": np.zeros(rows, np.int32),
            "launch": np.arange(first, first + rows),
            "kernel_id": identifiers[kernel],
            # One grid for each (kernel, shape): kernels x shapes signatures in all.
            "grid_x": 64 + 32 * shape + kernel % 13,
            "grid_y": (1 + shape % 4).astype(np.int32),
            "grid_z": np.ones(rows, np.int32),
            "block_x": (32 << kernel % 5).astype(np.int32),
            "block_y": np.ones(rows, np.int32),
            "block_z": np.ones(rows, np.int32),
            "registers_per_thread": (32 + kernel % 64).astype(np.int32),
            "shared_memory_bytes": 1024 * (kernel % 9),
            "device": np.zeros(rows, np.int32),
            "stream": 7 + generator.integers(0, 3, rows),
            "start_ns": ends - duration_ns,
            "duration_ns": duration_ns,
        }
        start_ns = int(ends[-1])
        new_names = dict(names.items()) if first == 0 else {}
        yield LaunchBatch(make_batch(SCHEMA, columns), new_names)


def light_table(launches: int, **options: int) -> pa.Table:
    return pa.Table.from_batches([b.records for b in light_batches(launches, **options)], schema=SCHEMA)
