"""Span and overlap of launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.launches.overlap import Overlap, overlap_of
from tests.support.sampling.made_launches import made_launches


def test_gpus_and_processes_do_not_overlap_one_another() -> None:
    times = {"start_ns": [0, 5, 0, 5], "duration_ns": [10, 10, 10, 10]}
    one = made_launches(["k"] * 4, device=[0, 0, 0, 0], **times)
    assert overlap_of(one) == Overlap(40, 15, 62.5)
    two = made_launches(["k"] * 4, device=[0, 0, 1, 1], **times)
    assert overlap_of(two) == Overlap(40, 30, 25.0)
    processes = made_launches(
        ["k"] * 4, device=[0, 0, 0, 0], process=[0, 0, 1, 1], launch=[0, 1, 0, 1], **times
    )
    assert overlap_of(processes) == Overlap(40, 30, 25.0)


def test_times_that_are_not_known_give_no_overlap() -> None:
    assert overlap_of(made_launches(["k"], duration_ns=[3])) is None
    assert overlap_of(made_launches([])) is None
    assert overlap_of(made_launches(["k"], start_ns=[1], duration_ns=[0])) == Overlap(0, 0, 0.0)


def test_one_percent_is_not_yet_concurrent() -> None:
    at_the_limit = Overlap(10_000, 9_900, 1.0)
    assert not at_the_limit.concurrent
    assert replace(at_the_limit, overlap_percent=1.001).concurrent


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30))
def test_the_span_counts_each_nanosecond_once(times: list[tuple[int, int]]) -> None:
    covered = np.zeros(100, bool)
    for start, duration in times:
        covered[start : start + duration] = True
    launches = made_launches(
        ["k"] * len(times), start_ns=[s for s, _ in times], duration_ns=[d for _, d in times]
    )
    found = overlap_of(launches)
    assert found is not None
    assert found.span_ns == covered.sum()
