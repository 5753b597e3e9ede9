"""Synthetic launches as Assay files of any length, with counters, written part by part; seeded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from assay_sampling.counters.definitions import features_of, registry
from assay_sampling.launches.parquet import LaunchWriter
from assay_sampling.launches.table import LaunchBatch, TableMetadata, launch_schema, make_batch
from tests.bench.made_data import BATCH_LAUNCHES, SCHEMA, names_for

KERNELS, SHAPES = 300, 10
_FEW, _MANY = 10, 200
_FEATURES = tuple(dict.fromkeys((*features_of("table2"), "instructions")))
_COUNTERS = (*_FEATURES, "cycles_gpc_avg")
COUNTED = launch_schema(
    TableMetadata("detailed", origin="synthetic", format="generated", tool="tests.bench"),
    [registry()[name].column(registry()[name].metrics[0].name) for name in _COUNTERS],
)


def light_file(path: Path, launches: int, first: int) -> None:
    """Launches of a light run from the ordinal ``first`` on: 600,000 distinct (kernel, grid, duration)."""
    _write(path, SCHEMA, launches, first, seed=first)


def counted_file(path: Path, launches: int) -> None:
    """A detailed recording: 220,000 distinct rows of counters, durations of four modes with 5 % noise."""
    _write(path, COUNTED, launches, 0, seed=0)


def _write(path: Path, schema: pa.Schema, launches: int, first: int, seed: int) -> None:
    rng, names = np.random.default_rng(seed), names_for(KERNELS)
    fixed = _Fixed()
    new = dict(names.items())
    identifiers = np.array(list(new), np.uint64)
    with path.open("wb") as file, LaunchWriter(file, schema) as writer:
        for begin, rows in _parts(first, launches):
            kernel, shape = rng.integers(0, KERNELS, rows), rng.integers(0, SHAPES, rows)
            columns = {
                "process": np.zeros(rows, np.int32),
                "launch": np.arange(begin, begin + rows),
                "kernel_id": identifiers[kernel],
                "grid_x": 64 + 32 * shape,
                "grid_y": np.ones(rows, np.int32),
                "grid_z": np.ones(rows, np.int32),
                "block_x": np.where(shape > 7, 128, 256).astype(np.int32),
                "block_y": np.ones(rows, np.int32),
                "block_z": np.ones(rows, np.int32),
                "device": np.zeros(rows, np.int32),
                "stream": np.full(rows, 7),
                "start_ns": np.arange(begin, begin + rows) * 20_000,
            }
            if schema is SCHEMA:
                columns["duration_ns"] = 2000 + 40 * kernel + 300 * shape + rng.integers(0, 200, rows)
            else:
                columns |= fixed.counted(kernel, shape, rng)
            writer.write(LaunchBatch(make_batch(schema, columns), new), named=True)
            new = {}


class _Fixed:
    """What a kernel counts, whichever launch it is."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self._base = np.round(np.exp(rng.normal(10, 1.5, (KERNELS, len(_FEATURES)))))
        self._modes = np.exp(rng.normal(9, 1.2, (KERNELS, 4)))

    def counted(self, kernel: np.ndarray, shape: np.ndarray, rng: np.random.Generator) -> dict:
        rows = len(kernel)
        variant = rng.integers(0, np.where(kernel % 3 == 0, _MANY, _FEW))
        grown = np.exp(variant / 60) * (1 + shape)
        found = {name: np.round(self._base[kernel, place] * grown) for place, name in enumerate(_FEATURES)}
        found["threads_per_instruction"] = 1.0 + kernel % 32
        noise = np.exp(rng.normal(0, 0.05, rows))
        duration = np.round(self._modes[kernel, rng.integers(0, 4, rows)] * noise)
        return found | {"duration_ns": duration.astype(np.int64), "cycles_gpc_avg": duration * 1.4}


def _parts(first: int, launches: int) -> Iterator[tuple[int, int]]:
    for begin in range(first, first + launches, BATCH_LAUNCHES):
        yield begin, min(BATCH_LAUNCHES, first + launches - begin)
