"""Photon's matching of launches, against the rule written down plainly, and as a selection method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import CounterUnavailableError, InputError, ParameterError, RefusedError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.photon import matching as bbv_matching
from assay_sampling.methods.photon.matching import match_launches
from assay_sampling.methods.registry import select
from assay_sampling.notes.registry import make_note
from assay_sampling.readers.block_files import BasicBlockVectors
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.counted_launches import counted_launches
from tests.support.sampling.made_launches import made_launches


def vectors_of(dense: list[list[int]], warps: list[int]) -> BasicBlockVectors:
    entries = [(block, count) for row in dense for block, count in enumerate(row) if count]
    lengths = [sum(1 for count in row if count) for row in dense]
    block, count = np.array(entries, np.int64).reshape(-1, 2).T
    return BasicBlockVectors(
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), block, count, np.array(warps)
    )


def plainly(dense: list[list[int]], warps: list[int], pools: list[int], distance: float) -> list[int]:
    """The rule of the artifact, launch by launch."""
    width = max(map(len, dense))
    padded = [np.array([*row, *[0] * (width - len(row))], float) for row in dense]
    representatives: list[int] = []
    chosen = []
    for j, vector in enumerate(padded):
        candidates = [
            r
            for r in representatives
            if pools[r] == pools[j]
            and np.linalg.norm(vector - padded[r]) / (np.linalg.norm(vector) + 1e-6) < distance
        ]
        if not candidates:
            representatives.append(j)
            candidates = [j]
        chosen.append(min(candidates, key=lambda r: (abs(warps[r] - warps[j]), r)))
    return chosen


LAUNCHES = st.lists(
    st.tuples(
        st.sampled_from(
            [[], [0], [3], [20], [21], [22], [20, 1], [40, 1], [20, 0, 1], [100, 3], [100, 5, 2], [104, 3]]
        ),
        st.integers(1, 4),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=40,
)  # fmt: skip


@given(LAUNCHES, st.sampled_from([0.02, 0.05, 0.051, 0.2, 1.5]))
@settings(max_examples=400, deadline=None)
def test_the_fast_way_is_the_plain_one(launches: list[tuple[list[int], int, int]], distance: float) -> None:
    dense, warps, pools = (list(column) for column in zip(*launches, strict=True))
    found = match_launches(vectors_of(dense, warps), np.array(pools), distance=distance)
    assert found.tolist() == plainly(dense, warps, pools, distance)


@given(st.integers(0, 2**31), st.floats(0.01, 0.5))
@settings(max_examples=40, deadline=None)
def test_the_fast_way_on_noisy_vectors(seed: int, distance: float) -> None:
    random = np.random.default_rng(seed)
    kinds = random.integers(0, 1000, (4, 12))
    dense = [
        (kinds[k] * random.uniform(0.97, 1.03, 12)).astype(int).tolist() for k in random.integers(0, 4, 60)
    ]
    dense = [dense[i] for i in random.integers(0, 40, 60)]  # many of them again
    warps = random.integers(1, 5, 60).tolist()
    pools = random.integers(0, 2, 60).tolist()
    found = match_launches(vectors_of(dense, warps), np.array(pools), distance=distance)
    assert found.tolist() == plainly(dense, warps, pools, distance)


def test_a_later_representative_can_win_by_its_warps() -> None:
    # 100 and 106 are both representatives (6 / 106 is more than 0.05); 103 is near both.
    dense = [[100], [103], [106], [103], [103]]
    warps = [1, 9, 9, 9, 1]
    assert match_launches(vectors_of(dense, warps), np.zeros(5)).tolist() == [0, 0, 2, 2, 0]


def test_at_the_distance_itself_launches_are_not_alike() -> None:
    vectors = vectors_of([[105], [100]], [1, 1])
    exactly = 5 / (100 + 1e-6)
    assert match_launches(vectors, np.zeros(2), distance=exactly).tolist() == [0, 1]
    above = float(np.nextafter(exactly, 1))
    assert match_launches(vectors, np.zeros(2), distance=above).tolist() == [0, 0]


def test_of_two_at_one_distance_the_earlier_wins() -> None:
    assert match_launches(vectors_of([[100], [106], [103]], [4, 6, 5]), np.zeros(3)).tolist() == [0, 1, 0]


def test_vectors_without_entries_match_one_another() -> None:
    found = match_launches(vectors_of([[0, 0], [1], [], [0]], [1, 1, 2, 1]), np.zeros(4))
    assert found.tolist() == [0, 1, 0, 0]
    assert match_launches(vectors_of([[]], [1]), np.zeros(1)).tolist() == [0]
    assert match_launches(vectors_of([], []), np.zeros(0)).tolist() == []


def test_counts_of_1e12() -> None:
    dense = [[10**12, 5], [10**12 + 10**9, 5], [10**12 + 10**11, 5]]
    assert match_launches(vectors_of(dense, [1, 1, 1]), np.zeros(3)).tolist() == [0, 0, 2]


def test_two_vectors_of_one_hash_are_still_two(monkeypatch: pytest.MonkeyPatch) -> None:
    real = bbv_matching.hash_rows
    seeds = []

    def weak(columns: Any, *, seed: int = 0) -> np.ndarray:
        seeds.append(seed)
        return real(columns, seed=seed) if seed else np.zeros(len(columns[0]), np.uint64)

    monkeypatch.setattr(bbv_matching, "hash_rows", weak)
    dense = [[1, 2], [9, 2], [1, 2], [9, 9]]
    assert match_launches(vectors_of(dense, [1] * 4), np.zeros(4)).tolist() == [0, 1, 0, 3]
    assert max(seeds) == 1


def test_distances_are_taken_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = [[i, 10] for i in range(1, 40)] * 2
    expected = match_launches(vectors_of(dense, [1] * 78), np.zeros(78), distance=0.3)
    monkeypatch.setattr(bbv_matching, "_BLOCK_VALUES", 3)
    assert np.array_equal(match_launches(vectors_of(dense, [1] * 78), np.zeros(78), distance=0.3), expected)


def test_too_many_representatives_are_refused() -> None:
    dense = [[2**i, 0, 1] for i in range(20)]
    with pytest.raises(RefusedError, match=r"representatives with 3 basic blocks each .* use stem or sieve"):
        match_launches(vectors_of(dense, [1] * 20), np.zeros(20), memory_bytes=300)


def test_thousands_of_launches_are_decided_by_distinct_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    real = bbv_matching._Pool.near

    def near(self: Any, row: int, before: int | None = None) -> np.ndarray:
        compared.append(row)
        return real(self, row, before)

    monkeypatch.setattr(bbv_matching._Pool, "near", near)
    dense = [[100, 5], [200, 5]] * 5000
    found = match_launches(vectors_of(dense, [1] * 10_000), np.zeros(10_000))
    assert found.tolist() == [0, 1] * 5000
    assert len(compared) <= 4


# ---- as a selection method


def written(folder: Path, rows: list[tuple[int, ...]]) -> str:
    path = folder / "bbv.csv"
    path.write_text("launch,block,count,warps\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    return str(path)


def photon(profile: Profile, **parameters: Any) -> Selection:
    return select("photon", profile, parameters)


def timed(*kernels: str) -> Profile:
    return Profile(light=made_launches(list(kernels), duration_ns=10 * np.arange(1, len(kernels) + 1)))


def test_by_hand(tmp_path: Path) -> None:
    file = written(tmp_path, [(0, 0, 100, 8), (1, 0, 101, 8), (2, 0, 100, 8), (3, 0, 300, 8)])
    selection = photon(timed("a", "a", "b", "a"), bbv=file)
    assert selection.representatives.row.tolist() == [0, 2, 3]
    assert selection.representatives.weight.tolist() == [2, 1, 1]
    assert selection.evaluation.projected == 2 * 10 + 30 + 40
    assert selection.group_launches.tolist() == [2, 1, 1]
    assert selection.extra["photon"] == {"launches_matched_to_other_kernels": 0}
    assert selection.document().to_dict()["interval_reason"] == make_note("interval_of_fixed_rule").to_dict()


def test_several_random_launches_of_each_kind_give_an_interval_that_holds(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    blocks, nanoseconds = rng.choice([100, 300, 900], 300), rng.integers(50, 150, 300)
    file = written(tmp_path, [(row, 0, int(count), 8) for row, count in enumerate(blocks)])
    profile = Profile(light=made_launches(["a"] * 300, duration_ns=list(nanoseconds * blocks)))
    held = 0
    for seed in range(100):
        selection = select("photon", profile, {"bbv": file, "launches_per_group": 8}, seed)
        assert np.bincount(selection.representatives.group).tolist() == [8, 8, 8]
        weights = np.bincount(selection.representatives.group, selection.representatives.weight)
        assert weights == pytest.approx(selection.group_launches)
        assert selection.interval is not None
        held += selection.interval.low <= selection.evaluation.total <= selection.interval.high
    assert 88 <= held <= 100


def test_across_kernels_as_the_artifact_does(tmp_path: Path) -> None:
    file = written(tmp_path, [(0, 0, 100, 8), (1, 0, 101, 8), (2, 0, 100, 8), (3, 0, 300, 8)])
    selection = photon(timed("a", "a", "b", "a"), bbv=file, cross_kernel="true")
    assert selection.representatives.row.tolist() == [0, 3]
    assert selection.group_launches.tolist() == [3, 1]
    assert selection.extra["photon"] == {"launches_matched_to_other_kernels": 1}


def test_the_distance_is_a_parameter(tmp_path: Path) -> None:
    file = written(tmp_path, [(0, 0, 100, 8), (1, 0, 130, 8)])
    assert len(photon(timed("a", "a"), bbv=file).group_launches) == 2
    assert len(photon(timed("a", "a"), bbv=file, distance=0.3).group_launches) == 1


def test_it_needs_a_file_that_names_every_launch(tmp_path: Path) -> None:
    with pytest.raises(
        ParameterError, match="needs a file of basic-block vectors; give one with --param bbv"
    ):
        photon(timed("a"))
    with pytest.raises(InputError, match="lacks 1 of the 2 launches"):
        photon(timed("a", "a"), bbv=written(tmp_path, [(0, 0, 1, 1)]))
    with pytest.raises(ParameterError, match="greater than 0"):
        photon(timed("a"), bbv="f", distance=0)


def test_edges(tmp_path: Path) -> None:
    one = written(tmp_path, [(0, 0, 10**12, 1)])
    with pytest.raises(RefusedError, match="no launches"):
        photon(Profile(light=made_launches(["a"], duration_ns=[1]).slice(0, 0)), bbv=one)
    selection = photon(timed("k" * 1_000_000), bbv=one)
    assert selection.evaluation.error_percent == 0
    assert selection.evaluation.speedup == 1
    equal = written(tmp_path, [(i, b, 10**12, 4) for i in range(30) for b in (0, 7)])
    same = photon(Profile(light=made_launches(["a"] * 30, duration_ns=[5] * 30)), bbv=equal)
    assert same.representatives.weight.tolist() == [30.0]
    assert same.evaluation.error_percent == 0
    with pytest.raises(CounterUnavailableError, match="'duration_ns' was not measured"):
        photon(Profile(light=made_launches(["a"] * 30, duration_ns=[None] * 30)), bbv=equal)


def test_counters_that_are_not_numbers_are_none_of_its_business(tmp_path: Path) -> None:
    launches = counted_launches({"instructions": np.array([np.nan, 1e12]), "cycles_gpc_avg": [4.0, 4.0]})
    selection = photon(Profile(detailed=launches), bbv=written(tmp_path, [(0, 0, 5, 1), (1, 0, 5, 1)]))
    assert selection.representatives.weight.tolist() == [2.0]
    assert selection.evaluation.projected == 8.0
