"""Launches in memory: order, merging, limits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from assay_sampling.errors import LaunchTableError, RefusedError
from assay_sampling.gathering.from_batches import gather
from assay_sampling.launches import table as lt
from assay_sampling.launches.in_memory import EXACT_IDENTITY, Launches, sequence_hash

CYCLES = lt.CounterColumn("cycles_gpc_avg", "cycle", "gpc__cycles_elapsed.avg", "hardware")


def recording(
    launches: list[int],
    *,
    process: list[int] | None = None,
    kernel: str = "k",
    counters: tuple[lt.CounterColumn, ...] = (),
    metadata: lt.TableMetadata | None = None,
) -> Launches:
    metadata = metadata or lt.TableMetadata("light")
    schema = lt.launch_schema(metadata, counters)
    rows = len(launches)
    batch = lt.make_batch(
        schema,
        {
            "process": process or [0] * rows,
            "launch": launches,
            "kernel_id": [lt.text_id(kernel)] * rows,
            "grid_x": [1] * rows,
            "block_x": [1] * rows,
            **{c.name: [1.0] * rows for c in counters},
        },
    )
    names = {lt.text_id(kernel): kernel}
    return gather([lt.LaunchBatch(batch, names)], schema, sources=[kernel])


def test_launches_are_sorted_by_process_and_launch() -> None:
    launches = recording([5, 3, 4, 0], process=[0, 0, 1, 1])
    assert launches.column("process").tolist() == [0, 0, 1, 1]
    assert launches.column("launch").tolist() == [3, 5, 0, 4]


def test_a_launch_that_stands_twice_is_refused() -> None:
    with pytest.raises(LaunchTableError, match="launch 3 of process 0 appears twice"):
        recording([3, 1, 3])


def test_the_memory_limit_is_kept_before_it_is_crossed() -> None:
    schema = lt.launch_schema(lt.TableMetadata("light"))
    rows = 1000
    batch = lt.make_batch(
        schema,
        {
            "process": np.zeros(rows, np.int32),
            "launch": np.arange(rows),
            "kernel_id": np.zeros(rows, np.uint64),
            "grid_x": np.ones(rows),
            "block_x": np.ones(rows, np.int32),
        },
    )
    taken = 0

    def endless() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield lt.LaunchBatch(batch, {})

    with pytest.raises(RefusedError, match="memory limit of 1,000,000 bytes"):
        gather(endless(), schema, memory_limit_bytes=1_000_000)  # type: ignore[arg-type]
    assert 2 * taken * batch.nbytes < 1_000_000 + 2 * batch.nbytes + 1


def test_nulls_become_nan_minus_one_or_zero() -> None:
    launches = recording([0, 1], counters=(CYCLES,))
    position = launches.table.schema.get_field_index("cycles_gpc_avg")
    field = launches.table.schema.field(position)
    table = launches.table.set_column(position, field, pa.array([None, 2.0]))
    launches = Launches(table, launches.names)
    assert np.isnan(launches.column("cycles_gpc_avg")[0])
    assert launches.column("duration_ns").tolist() == [-1, -1]
    assert launches.column("nvtx_id").tolist() == [0, 0]
    assert launches.column("nvtx_id").dtype == np.uint64


def test_the_sequence_hash_tells_order_and_identity() -> None:
    def hashed(launches: Launches) -> str:
        return sequence_hash(launches, EXACT_IDENTITY)

    assert hashed(recording([0, 1])) == hashed(recording([5, 9]))
    assert hashed(recording([0, 1])) != hashed(recording([0, 1, 2]))
    assert hashed(recording([0, 1])) != hashed(recording([0, 1], kernel="z"))
    assert hashed(recording([0, 1])) != hashed(recording([0, 0], process=[0, 1]))
