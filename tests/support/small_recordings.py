"""Recordings of a few launches, synthetic, with the columns that a test names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from assay_core.files.launch_file import new_launch_file
from assay_sampling.launches.table import (
    BASELINE,
    CounterColumn,
    LaunchBatch,
    Names,
    TableMetadata,
    launch_schema,
    make_batch,
)


def recording(path: Path, kernels: list[str], **columns: Any) -> Path:
    """A synthetic recording; columns of ids are given as texts, None is null."""
    counters = [
        CounterColumn(name, "cycle", "m", "hardware") for name in columns if name.startswith("cycles")
    ]
    metadata = TableMetadata(level="light", origin="synthetic", condition=BASELINE)
    schema = launch_schema(metadata, counters, operations="operation_id" in columns)
    names = Names()
    values: dict[str, Any] = {
        "process": np.zeros(len(kernels), np.int32),
        "launch": np.arange(len(kernels)),
        "kernel_id": np.array([names.intern(name) for name in kernels], np.uint64),
        "grid_x": np.ones(len(kernels), np.int64),
        "block_x": np.full(len(kernels), 128),
    }
    for name, given in columns.items():
        values[name] = (
            [None if text is None else names.intern(text) for text in given]
            if name.endswith("_id")
            else given
        )
    with new_launch_file(path, schema) as writer:
        writer.write(LaunchBatch(make_batch(schema, values), dict(names.items())))
    return path
