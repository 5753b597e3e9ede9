"""Launch tables written as Parquet files that every verb reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from assay_client.files import write_atomically
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.parquet import LaunchWriter
from assay_sampling.launches.table import LaunchBatch


def write_launches(path: Path, launches: Launches) -> None:
    """Write launches with their names, units and facts; raises StorageError where the disk refuses."""
    sink = pa.BufferOutputStream()
    names = dict(launches.names.items())
    with LaunchWriter(sink, launches.table.schema, str(path)) as writer:
        for batch in launches.table.to_batches():
            writer.write(LaunchBatch(batch, names))
            names = {}
    write_atomically(path, sink.getvalue().to_pybytes())
