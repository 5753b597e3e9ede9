"""Launch tables whose launches belong to operations, built by tests: small and exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from assay_sampling.launches import table as lt
from assay_sampling.launches.in_memory import Launches
from assay_sampling.operations.collapsing import operations_of
from assay_sampling.operations.identity import Operation
from assay_sampling.operations.matching import OperationSequence

# Name, input shapes, duration of each launch in ns, and the thread where it is not the first.
Call = tuple[str, str, list[int]] | tuple[str, str, list[int], int]


def made_calls(
    calls: Sequence[Call],
    *,
    counters: Sequence[lt.CounterColumn] = (),
    outside: Sequence[str] = (),
    prefix: str = "k",
    metadata: lt.TableMetadata | None = None,
    source: str = "made",
    **columns: Any,
) -> Launches:
    """Operators in order, each with its launches; then kernels ``outside`` of operators, of 1 ns each.

    Kernel names begin with ``prefix``: libraries of another GPU have other kernels.
    """
    names, rows = lt.Names(), []
    for name, shapes, durations, *thread in calls:
        identity = names.intern(Operation("operator", name, shapes, *thread).to_text())
        first = len(rows)
        rows += [(f"{prefix}_{name}_{i}", d, first, identity) for i, d in enumerate(durations)]
    rows += [(kernel, 1, None, None) for kernel in outside]
    kernels, durations, call, identities = zip(*rows, strict=True)
    values: dict[str, Any] = {
        "process": [0] * len(rows),
        "launch": list(range(len(rows))),
        "kernel_id": [names.intern(kernel) for kernel in kernels],
        **{f"{what}_{axis}": [1] * len(rows) for what in ("grid", "block") for axis in "xyz"},
        "duration_ns": durations,
        "call": call,
        "operation_id": pa.array(identities, pa.uint64()),
        **columns,
    }
    schema = lt.launch_schema(metadata or lt.TableMetadata("light"), counters, operations=True)
    table = pa.Table.from_batches([lt.make_batch(schema, values)], schema=schema)
    return Launches(table, names, (source,))


def sequence(launches: Launches) -> OperationSequence:
    """What a light recording calls, in order."""
    operations = operations_of(launches)
    return OperationSequence.of(operations, operations.launches.floats("duration_ns"))
