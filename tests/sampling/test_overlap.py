from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.gathering.from_batches import gather
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.overlap import overlap_of
from assay_sampling.launches.table import LaunchBatch, Names, TableMetadata, launch_schema, make_batch


def light(
    start_ns: list[int] | None,
    duration_ns: list[int],
    device: list[int] | None = None,
    process: list[int] | None = None,
) -> Launches:
    names = Names()
    count = len(duration_ns)
    columns: dict[str, object] = {
        "process": process or [0] * count, "launch": range(count), "kernel_id": [names.intern("k")] * count,
        "grid_x": [1] * count, "block_x": [1] * count, "duration_ns": duration_ns,
    }  # fmt: skip
    if start_ns is not None:
        columns["start_ns"] = start_ns
    if device is not None:
        columns["device"] = device
    schema = launch_schema(TableMetadata("light"))
    batch = make_batch(schema, {k: list(v) for k, v in columns.items()})  # type: ignore[call-overload]
    return gather([LaunchBatch(batch, dict(names.items()))], schema)


def test_no_overlap() -> None:
    found = overlap_of(light([0, 10, 30], [10, 20, 5]))
    assert found is not None
    assert found.to_dict() == {"sum_ns": 35, "span_ns": 35, "overlap_percent": 0.0}
    assert not found.concurrent


def test_nested_and_partial_overlap_count_once() -> None:
    # [0, 100) holds [10, 30) whole and [90, 140) in part: the union is [0, 140).
    found = overlap_of(light([10, 0, 90], [20, 100, 50]))
    assert found is not None
    assert (found.sum_ns, found.span_ns) == (170, 140)
    assert found.overlap_percent == pytest.approx(100 * 30 / 170)
    assert found.concurrent


def test_gpus_and_processes_have_clocks_of_their_own() -> None:
    together = overlap_of(light([0, 0], [10, 10]))
    two_gpus = overlap_of(light([0, 0], [10, 10], device=[0, 1]))
    two_processes = overlap_of(light([0, 0], [10, 10], process=[0, 1]))
    assert together is not None and two_gpus is not None and two_processes is not None
    assert [o.span_ns for o in (together, two_gpus, two_processes)] == [10, 20, 20]


def test_exactly_one_percent_is_not_yet_concurrent() -> None:
    found = overlap_of(light([0, 99], [100, 100]))
    assert found is not None
    assert found.overlap_percent == 0.5
    at_limit = overlap_of(light([0, 98], [100, 100]))
    assert at_limit is not None
    assert at_limit.overlap_percent == 1.0
    assert not at_limit.concurrent


def test_without_start_times_it_is_not_known() -> None:
    assert overlap_of(light(None, [1, 2])) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30))
def test_span_is_the_union_of_the_intervals(intervals: list[tuple[int, int]]) -> None:
    found = overlap_of(light([s for s, _ in intervals], [d for _, d in intervals]))
    covered = np.zeros(80, bool)
    for start, duration in intervals:
        covered[start : start + duration] = True
    assert found is not None
    assert found.span_ns == covered.sum()
    assert found.sum_ns == sum(d for _, d in intervals)
