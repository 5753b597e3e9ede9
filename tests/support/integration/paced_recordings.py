"""Synthetic recordings that are played in recorded time, so that something can happen while they run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from assay_core.files.launch_file import new_launch_file
from assay_sampling.launches.table import (
    BASELINE,
    LaunchBatch,
    Names,
    TableMetadata,
    launch_schema,
    make_batch,
)


def write_paced_recordings(folder: Path, *, runs: int, launches: int, seconds: float) -> str:
    """Recordings of so many seconds, one a workload, and the text of their campaign."""
    schema = launch_schema(TableMetadata(level="light", origin="synthetic", condition=BASELINE))
    text = "campaign: chaos\nsynthetic: true\nseed: 5\nplayback: recorded_time\n"
    text += "analysis: {methods: [random, systematic]}\nworkloads:\n"
    for number in range(runs):
        chance, names = np.random.default_rng(number), Names()
        kernels = np.array([names.intern(f"kernel<{i}>(float*)") for i in range(7)], np.uint64)
        launch = np.arange(launches)
        columns = {
            "process": np.zeros(launches, np.int32),
            "launch": launch,
            "kernel_id": kernels[chance.integers(0, 7, launches)],
            "grid_x": chance.integers(1, 50, launches),
            "block_x": np.full(launches, 128),
            "start_ns": launch * int(seconds * 1e9 / launches),
            "duration_ns": chance.integers(500, 90_000, launches),
        }
        path = folder / f"recording-{number}.parquet"
        with new_launch_file(path, schema) as writer:
            writer.write(LaunchBatch(make_batch(schema, columns), dict(names.items())))
        text += f"  - {{name: w{number}, recordings: [{{device: V100, light: {path}}}]}}\n"
    return text
