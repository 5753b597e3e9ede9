"""The launches that a ``kernelslist.g`` lists: names, grids and blocks from the headers of their traces.

A list is what a simulator is to run, so its launches count as simulated; nothing of them was measured.
Memory: about 150 bytes a launch. Source: docs/simulator-files.md, "Traces".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from assay_sampling.errors import InputError
from assay_sampling.launches.in_memory import Launches, sort_launches
from assay_sampling.launches.table import Names, TableMetadata, launch_schema, make_batch
from assay_sampling.simulators.accel_sim.kernels_list import read_kernels_list
from assay_sampling.simulators.accel_sim.trace_text import read_header


def read_listed_launches(path: Path) -> Launches:
    """The launches of a list, without times; ``launch`` is the launch that was traced (``-kernel id`` - 1).

    Raises InputError for a list or trace that cannot be read, or a launch that is listed twice.
    """
    headers = [read_header(trace) for trace in read_kernels_list(path).traces]
    numbers = np.array([header.kernel_id - 1 for header in headers], np.int64)
    distinct, times = np.unique(numbers, return_counts=True)
    if (times > 1).any():
        twice = int(distinct[times > 1][0]) + 1
        raise InputError(path, f"it lists the kernel id {twice} twice", "list each launch once")
    names = Names()
    columns = {
        "process": np.zeros(len(headers), np.int32),
        "launch": numbers,
        "kernel_id": [names.intern(header.kernel_name) for header in headers],
        **{f"grid_{axis}": [header.grid[at] for header in headers] for at, axis in enumerate("xyz")},
        **{f"block_{axis}": [header.block[at] for header in headers] for at, axis in enumerate("xyz")},
        "registers_per_thread": [header.registers_per_thread for header in headers],
        "shared_memory_bytes": [header.shared_memory_bytes for header in headers],
        "stream": [header.stream for header in headers],
    }
    metadata = TableMetadata("light", origin="simulated", format="accel-sim-list", tool="Accel-Sim tracer")
    schema = launch_schema(metadata)
    table = pa.Table.from_batches([make_batch(schema, columns)], schema=schema)
    return Launches(sort_launches(table), names, (str(path),))
