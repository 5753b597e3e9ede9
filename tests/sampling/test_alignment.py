"""Order-preserving alignment: exact counts on small examples, the longest common subsequence, scale."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import MisalignedError
from assay_sampling.launches import alignment as alignment_module
from assay_sampling.launches.alignment import MatchKind, align, align_window, require_match
from assay_sampling.launches.common_subsequence import common_subsequence
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.joining import join
from assay_sampling.launches.ranges import LaunchRange
from tests.support.sampling.made_launches import made_launches


def longest_by_table(left: list[int], right: list[int]) -> int:
    """The textbook dynamic programme."""
    before = [0] * (len(right) + 1)
    for a in left:
        row = [0]
        for j, b in enumerate(right):
            row.append(before[j] + 1 if a == b else max(before[j + 1], row[j]))
        before = row
    return before[-1]


def assert_common(left: np.ndarray, right: np.ndarray, rows: tuple[np.ndarray, np.ndarray]) -> None:
    assert np.array_equal(left[rows[0]], right[rows[1]])
    assert np.all(np.diff(rows[0]) > 0)
    assert np.all(np.diff(rows[1]) > 0)


few_values = st.lists(st.integers(0, 3), max_size=40)


@settings(deadline=None)
@given(few_values, few_values)
def test_the_common_subsequence_is_a_longest_one(left: list[int], right: list[int]) -> None:
    ours, theirs = np.array(left, np.uint64), np.array(right, np.uint64)
    found = common_subsequence(ours, theirs)
    assert found.exact
    assert len(found.left) == len(found.right) == longest_by_table(left, right)
    assert_common(ours, theirs, (found.left, found.right))


@settings(deadline=None)
@given(few_values, few_values, st.integers(1, 6), st.integers(1, 40))
def test_past_its_cap_it_is_a_lower_bound(left: list[int], right: list[int], cap: int, most: int) -> None:
    ours, theirs = np.array(left, np.uint64), np.array(right, np.uint64)
    found = common_subsequence(ours, theirs, segment_differences=cap, most_differences=most)
    longest = longest_by_table(left, right)
    assert_common(ours, theirs, (found.left, found.right))
    assert len(found.left) <= longest
    assert not found.exact or len(found.left) == longest


def test_a_million_launches_with_a_hundred_drops_align_exactly() -> None:
    generator = np.random.default_rng(7)
    epoch = generator.integers(0, 300, 2_000).astype(np.uint64)
    sequence = np.tile(epoch, 500)
    sequence[generator.choice(len(sequence), 20_000, replace=False)] = 999
    dropped = np.sort(generator.choice(len(sequence), 100, replace=False))
    rest = np.delete(sequence, dropped)
    found = common_subsequence(sequence, rest)
    assert found.exact
    assert len(found.left) == 999_900
    assert_common(sequence, rest, (found.left, found.right))


def test_ten_thousand_drops_cost_next_to_nothing_in_the_lower_bound() -> None:
    generator = np.random.default_rng(8)
    sequence = generator.integers(0, 300, 200_000).astype(np.uint64)
    rest = np.delete(sequence, generator.choice(len(sequence), 10_000, replace=False))
    found = common_subsequence(sequence, rest)
    assert not found.exact
    assert_common(sequence, rest, (found.left, found.right))
    assert 189_000 <= len(found.left) <= 190_000


def test_long_equal_runs_are_found_in_the_middle() -> None:
    # Longer than every block in which runs are compared, with a difference on both sides.
    run = np.arange(300_000, dtype=np.uint64)
    left = np.concatenate([[1, 2], run, [5, 5, 6]]).astype(np.uint64)
    right = np.concatenate([[9], run, [5, 7]]).astype(np.uint64)
    assert len(common_subsequence(left, right).left) == 300_001


def test_match_is_counted_against_the_larger_side() -> None:
    left = made_launches(["a", "b", "c", "d"])
    right = made_launches(["a", "c", "d", "e", "f"])
    found = align(left, right)
    assert found.match_percent == 60.0
    assert found.left_rows.tolist() == [0, 2, 3]
    assert found.right_rows.tolist() == [0, 1, 2]
    assert not found.lower_bound
    assert found.differences == (
        "process 0: left has at launch 1 b grid (1, 1, 1) block (1, 1, 1); right has nothing there",
        "process 0: left has nothing there; right has at launch 3 e grid (1, 1, 1) block (1, 1, 1)",
        "process 0: left has nothing there; right has at launch 4 f grid (1, 1, 1) block (1, 1, 1)",
    )


def test_kinds_compare_what_they_say() -> None:
    left = made_launches(["a", "a", "b", "c"], grid_x=[1, 2, 3, 4], block_x=[32, 32, 32, 32])
    right = made_launches(["a", "a", "b", "d"], grid_x=[1, 9, 3, 4], block_x=[32, 32, 64, 32])
    assert align(left, right, "exact").match_percent == 25.0
    assert align(left, right, "name_block").match_percent == 50.0
    assert align(left, right, "position").match_percent == 100.0


def test_position_pairs_equal_ordinals() -> None:
    left = made_launches(["a", "b", "c"], launch=[0, 1, 3])
    right = made_launches(["x", "y"], launch=[1, 2])
    found = align(left, right, "position")
    assert (found.left_rows.tolist(), found.right_rows.tolist()) == ([1], [0])
    assert found.match_percent == pytest.approx(100 / 3)


def test_each_process_is_aligned_with_its_own() -> None:
    left = made_launches(["a", "b", "a", "c"], process=[0, 0, 1, 1], launch=[0, 1, 0, 1])
    right = made_launches(["a", "c", "a", "b"], process=[0, 0, 1, 1], launch=[0, 1, 0, 1])
    found = align(left, right)
    assert found.match_percent == 50.0
    assert found.left_rows.tolist() == found.right_rows.tolist() == [0, 2]
    assert [line[:10] for line in found.differences] == ["process 0:", "process 1:"]


def test_a_process_that_one_side_lacks_matches_nothing() -> None:
    left = made_launches(["a", "a"], process=[0, 1], launch=[0, 0])
    found = align(left, made_launches(["a"]))
    assert found.match_percent == 50.0
    assert found.differences == (
        "process 1: left has at launch 0 a grid (1, 1, 1) block (1, 1, 1); right has nothing there",
    )


def test_totals_are_compared_with_products() -> None:
    full = made_launches(["a", "a"], grid_x=[4, 4], grid_y=[2, 3], block_x=[8, 8], block_y=[4, 4])
    nothing = [None, None]
    totals = made_launches(
        ["a", "a"],
        grid_x=[8, 11], grid_y=nothing, grid_z=nothing,
        block_x=[32, 32], block_y=nothing, block_z=nothing,
    )  # fmt: skip
    for found in (align(full, totals), align(totals, full)):
        assert found.left_rows.tolist() == found.right_rows.tolist() == [0]
    assert "grid (11) block (32)" in align(full, totals).differences[0]
    assert align(full, totals, "name_block").match_percent == 100.0


def test_equal_codes_of_unequal_launches_are_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment_module, "hash_rows", lambda columns: np.zeros(len(columns[0]), np.uint64))
    found = align(made_launches(["a", "b"]), made_launches(["a", "c"]))
    assert found.left_rows.tolist() == found.right_rows.tolist() == [0]


def test_two_empty_recordings_match() -> None:
    assert align(made_launches([]), made_launches([])).match_percent == 100.0
    assert align(made_launches(["a"]), made_launches([])).match_percent == 0.0


def test_long_names_are_shortened_in_the_middle() -> None:
    (line,) = align(made_launches(["begin" + "x" * 500 + "finish"]), made_launches([])).differences
    assert "begin" in line
    assert "finish" in line
    assert len(line) < 200


def test_a_match_under_the_limit_is_refused_with_the_differences() -> None:
    left = made_launches(["a"] * 49 + ["b"] + ["a"] * 50)
    right = made_launches(["a"] * 100)
    found = align(left, right)
    require_match(found)
    with pytest.raises(MisalignedError, match="only 99 % of the launches match") as caught:
        require_match(found, 99.5, subject="a.csv and b.sqlite")
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.subject == "a.csv and b.sqlite"
    assert error.differences == found.differences
    assert "left has at launch 49 b grid (1, 1, 1)" in str(error)
    assert error.exit_code == 7


def test_a_match_is_never_shown_rounded_up() -> None:
    left = made_launches(["a"] * 98_999 + ["b"] * 1_001)
    found = align(left, made_launches(["a"] * 98_999 + ["c"] * 1_001))
    assert found.match_text() == "98.99 %"
    with pytest.raises(MisalignedError, match=r"only 98\.99 %"):
        require_match(found)


def test_a_window_is_aligned_with_the_launches_it_covers() -> None:
    light = made_launches([*"abcdef", *"xyz"], process=[0] * 6 + [1] * 3, launch=[*range(6), *range(3)])
    detailed = made_launches([*"cde", *"xz"], process=[0] * 3 + [1] * 2, launch=[2, 3, 4, 0, 2])
    found = align_window(detailed, light)
    assert found.right_rows.tolist() == [2, 3, 4, 6, 8]
    assert found.left_rows.tolist() == [0, 1, 2, 3, 4]
    assert found.match_percent == pytest.approx(100 * 5 / 6)
    assert found.differences == (
        "process 1: detailed run has nothing there; light run has at launch 1 y grid (1, 1, 1) "
        "block (1, 1, 1)",
    )


def test_a_window_of_a_process_that_the_light_run_lacks_matches_nothing() -> None:
    found = align_window(made_launches(["a"], process=[3]), made_launches(["a", "b"]))
    assert found.match_percent == 0.0
    assert len(found.differences) == 1


def in_slices(*parts: Launches) -> Launches:
    """Recordings of windows, joined."""
    return join(list(parts))


def test_slices_are_aligned_each_by_itself_and_gaps_between_them_count_nowhere() -> None:
    light = made_launches("abcdefghij")
    detailed = in_slices(
        made_launches("bc", launch=[1, 2], source="first"), made_launches("hij", launch=[7, 8, 9])
    )
    assert detailed.ranges == (LaunchRange(0, 1, 2), LaunchRange(0, 7, 9))
    found = align_window(detailed, light)
    assert (found.left_rows.tolist(), found.right_rows.tolist()) == ([0, 1, 2, 3, 4], [1, 2, 7, 8, 9])
    assert found.match_percent == 100.0
    assert [percent for _, percent in found.by_range] == [100.0, 100.0]
    # A launch that is missing within a file was lost, and counts.
    lost = made_launches("bd", launch=[1, 3])
    assert align_window(lost, light).match_percent == pytest.approx(100 * 2 / 3)


def test_launches_of_one_slice_never_match_those_of_another() -> None:
    light = made_launches("aaxxxxxxbb")
    swapped = in_slices(made_launches("bb", source="first"), made_launches("aa", launch=[8, 9]))
    assert align_window(swapped, light).match_percent == 0.0


def test_a_slice_that_does_not_match_is_refused_however_many_others_do() -> None:
    light = made_launches(["a"] * 1000 + ["b"] * 10 + ["c"] * 5)
    detailed = in_slices(
        made_launches(["a"] * 1000, source="first"), made_launches(["x"] * 5, launch=range(1010, 1015))
    )
    found = align_window(detailed, light)
    assert found.match_percent > 99.0
    with pytest.raises(MisalignedError, match="only 0 % of the slice of launches 1,010 to 1,014 match"):
        require_match(found)


def test_slices_that_touch_are_one_window() -> None:
    touching = in_slices(made_launches("ab", source="first"), made_launches("cd", launch=[2, 3]))
    assert touching.ranges == ()
    assert align_window(touching, made_launches("abcd")).by_range == ()


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.sampled_from(["exact", "name_block"]))
def test_every_way_of_cutting_an_unchanged_workload_into_slices_matches_whole(
    taken: list[bool], kind: MatchKind
) -> None:
    light = made_launches([f"k{row % 7}" for row in range(len(taken))])
    held = np.flatnonzero(taken)
    pieces = np.split(held, np.flatnonzero(np.diff(held) > 1) + 1)
    parts = [
        made_launches([f"k{row % 7}" for row in piece], launch=piece, source=f"{number}")
        for number, piece in enumerate(pieces)
    ]
    found = align_window(in_slices(*parts), light, kind)
    assert found.match_percent == 100.0
    assert found.right_rows.tolist() == held.tolist()


def test_an_unknown_grid_equals_only_an_unknown_one() -> None:
    def launched(*grid: int | None) -> Launches:
        rest = {f"grid_{axis}": [None if size is None else 1 for size in grid] for axis in "yz"}
        return made_launches(["k"] * len(grid), grid_x=list(grid), duration_ns=[1] * len(grid), **rest)

    known, bare = launched(8, 4, 8), launched(8, None, 8)
    assert align(bare, launched(8, None, 8)).match_percent == 100
    assert align(known, bare).left_rows.tolist() == [0, 2]
    assert "k grid (unknown) block (1, 1, 1)" in " | ".join(align(known, bare).differences)
    assert align(known, bare, "name_block").match_percent == 100
    # Launches without a grid do not make the others known by totals only.
    assert not alignment_module.totals_only(bare, "grid")
    assert alignment_module.shape_totals(bare, "grid").tolist() == [8, 0, 8]
