"""Launch tables whose launches belong to operations, built by tests: small and exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from assay_sampling.counters.definitions import FEATURE_SETS, registry
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


def made_training(
    steps: int, *, seed: int = 0, prefix: str = "k", device: str = "H100", counted: bool = False
) -> Launches:
    """Steps of a small model: per step four operators with one to three launches each, durations with 5 %
    noise; ``counted`` with counters that follow from the work, of the same launches."""
    rng = np.random.default_rng(seed)
    operators = (("aten::linear", 3, 900.0), ("aten::layer_norm", 1, 90.0), ("aten::gelu", 1, 60.0),
                 ("aten::linear", 2, 400.0))  # fmt: skip
    calls: list[Call] = []
    work: list[float] = []
    for step in range(steps):
        size = 1 + step % 3
        for place, (name, launches, cost) in enumerate(operators):
            parts = [cost * size / (part + 1) for part in range(launches)]
            work += parts
            noise = np.exp(rng.normal(0, 0.05, launches))
            durations = [int(value) for value in np.array(parts) * noise + 10]
            calls.append((name, f"[[{size},{64 + place}]]", durations))
    devices = (lt.Device(0, device),)
    if not counted:
        metadata = lt.TableMetadata("light", devices=devices)
        return made_calls(calls, prefix=prefix, metadata=metadata, device=[0] * len(work))
    counters = {name: np.array(work) * (i + 1) for i, name in enumerate(FEATURE_SETS["table2"])}
    counters["threads_per_instruction"] = np.full(len(work), 32.0)
    counters["cycles_gpc_avg"] = np.array(work) * 1.4 + 20
    return made_calls(
        calls,
        prefix=prefix,
        metadata=lt.TableMetadata("detailed", devices=devices),
        counters=[registry()[name].column(registry()[name].metrics[0].name) for name in counters],
        source="counted.csv",
        device=[0] * len(work),
        **counters,
    )
