from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.readers.nesting import CUT_MARK, MAX_DEPTH, Ranges, ThreadRanges

_INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 25)), min_size=1, max_size=30)
_MOMENTS = st.lists(st.tuples(st.integers(-3, 70), st.integers(0, 4)), min_size=1, max_size=20)


def _around(intervals: list[tuple[int, int]], at: int, until: int) -> list[int]:
    """Indices of the intervals around [at, until], innermost first, by looking at all of them."""
    found = [i for i, (start, length) in enumerate(intervals) if start <= at and start + length >= until]
    return sorted(found, key=lambda i: (intervals[i][0], -sum(intervals[i]), i), reverse=True)


@settings(deadline=None)
@given(_INTERVALS, _MOMENTS)
def test_stacks_and_innermost_ranges_are_those_found_by_looking_at_all(
    intervals: list[tuple[int, int]], moments: list[tuple[int, int]]
) -> None:
    starts = np.array([start for start, _ in intervals])
    ends = starts + np.array([length for _, length in intervals])
    ranges = Ranges(starts, ends, np.arange(len(intervals)))
    at = np.array([m for m, _ in moments])
    until = at + np.array([length for _, length in moments])
    stacks = ranges.stacks(at, until)
    innermost = ranges.innermost(at, until)
    for i in range(len(moments)):
        expected = _around(intervals, int(at[i]), int(until[i]))
        assert [label for label in stacks[i].tolist() if label >= 0] == expected
        assert (ranges.labels[innermost[i]] if innermost[i] >= 0 else None) == next(iter(expected), None)


def _of(*ranges: tuple[int, int, int, str]) -> ThreadRanges:
    thread, starts, ends = (np.array([r[i] for r in ranges]) for i in range(3))
    return ThreadRanges(thread, starts, ends, np.arange(len(ranges)), [r[3] for r in ranges])


def _path(ranges: ThreadRanges, thread: int, at: int) -> str | None:
    paths = ranges.paths(np.array([thread]), np.array([at]), np.array([at]))
    return paths.texts[paths.index[0]] if paths.index[0] >= 0 else None


def test_paths_are_of_the_thread_and_read_from_outside_in() -> None:
    ranges = _of((0, 0, 100, "step"), (0, 10, 50, "forward"), (0, 20, 30, "layer1"), (5, 0, 100, "loader"))
    assert _path(ranges, 0, 25) == "step/forward/layer1"
    assert _path(ranges, 0, 40) == "step/forward"
    assert _path(ranges, 0, 101) is None
    assert _path(ranges, 5, 25) == "loader"
    assert _path(ranges, 3, 25) is None
    assert _path(ranges, -1, 25) is None


def test_ranges_that_overlap_without_nesting_all_count() -> None:
    ranges = _of((0, 0, 60, "a"), (0, 10, 80, "prefetch"), (0, 20, 50, "b"))
    assert _path(ranges, 0, 30) == "a/prefetch/b"
    assert _path(ranges, 0, 55) == "a/prefetch"
    assert _path(ranges, 0, 70) == "prefetch"


def test_of_equal_ranges_the_later_one_in_the_file_is_inside() -> None:
    assert _path(_of((0, 0, 9, "outer"), (0, 0, 9, "inner")), 0, 4) == "outer/inner"


def test_a_path_that_is_too_deep_is_cut_at_its_outer_end() -> None:
    deep = _of(*((0, i, 1000 - i, f"r{i}") for i in range(MAX_DEPTH + 20)))
    path = _path(deep, 0, 500)
    assert path is not None
    assert path.split("/") == [CUT_MARK, *(f"r{i}" for i in range(20, MAX_DEPTH + 20))]


def test_no_ranges_at_all() -> None:
    empty = np.zeros(0, np.int64)
    nothing = ThreadRanges(empty, empty, empty, empty, [])
    assert nothing.paths(np.zeros(3, int), np.zeros(3, int), np.zeros(3, int)).index.tolist() == [-1, -1, -1]
    assert nothing.innermost(np.zeros(2, int), np.zeros(2, int), np.zeros(2, int)).tolist() == [-1, -1]


def test_a_million_siblings_are_no_deep_chain() -> None:
    starts = np.arange(1_000_000) * 10
    ranges = Ranges(np.append(starts, -5), np.append(starts + 8, 10**9), np.arange(1_000_001))
    at = starts[::1000] + 9
    assert (ranges.labels[ranges.innermost(at, at)] == 1_000_000).all()
