"""Launch tables built by tests: not recordings, small and exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay_sampling.launches import table as lt
from assay_sampling.launches.in_memory import Launches, sort_launches

CYCLES = lt.CounterColumn("cycles_gpc_avg", "cycle", "gpc__cycles_elapsed.avg", "hardware")


def made_launches(
    kernels: Sequence[str],
    *,
    counters: Sequence[lt.CounterColumn] = (),
    metadata: lt.TableMetadata | None = None,
    source: str = "made",
    **columns: Any,
) -> Launches:
    """One launch a kernel name, in order; columns that are not given take the plainest value."""
    rows = len(kernels)
    names = lt.Names()
    identifiers = {kernel: names.intern(kernel) for kernel in dict.fromkeys(kernels)}
    ones = np.ones(rows, np.int32)
    values: dict[str, Any] = {
        "process": np.zeros(rows, np.int32),
        "launch": np.arange(rows),
        "kernel_id": [identifiers[kernel] for kernel in kernels],
        **{f"{what}_{axis}": ones for what in ("grid", "block") for axis in "xyz"},
        **columns,
    }
    for text in ("nvtx_id", "operator_id", "input_shapes_id"):
        if text in values:
            values[text] = [None if t is None else names.intern(t) for t in values[text]]
    schema = lt.launch_schema(metadata or lt.TableMetadata("light"), counters)
    table = lt.pa.Table.from_batches([lt.make_batch(schema, values)], schema=schema)
    return Launches(sort_launches(table), names, (source,))
