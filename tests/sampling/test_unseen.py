"""The share of light time that a window has not seen: against sums by hand, and in selections."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.launches.joining import join
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.unseen import signature_ordinals, unseen_time_percent
from assay_sampling.methods.pks.principal_kernels import principal_kernels
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.two_level_profiles import light_half, two_level_selection

pytestmark = pytest.mark.xdist_group("two_level")


def test_the_time_of_new_signatures_counts_and_not_their_launches() -> None:
    # b is new by its kernel, the last a by its grid: 30 + 5 of 100 ns, in three launches.
    light = made_launches("aabba", grid_x=[1, 1, 1, 1, 2], duration_ns=[40, 25, 10, 20, 5])
    assert unseen_time_percent(light, np.array([0]), light.column("duration_ns")) == 35.0


def test_operators_and_shapes_are_compared_and_nvtx_paths_are_not() -> None:
    kernels = ["a"] * 4
    numbered = made_launches(kernels, nvtx_id=["step 1", "step 2", "step 3", "step 4"])
    assert len(set(signature_ordinals(numbered).tolist())) == 1
    shaped = made_launches(
        kernels, operator_id=["mm", "mm", "mm", "add"], input_shapes_id=["2", "2", "4", "4"]
    )
    assert len(set(signature_ordinals(shaped).tolist())) == 3


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 50)), min_size=1), st.data())
def test_it_is_the_sum_over_launches_that_nothing_in_the_window_equals(
    launches: list[tuple[str, int]], data: st.DataObject
) -> None:
    kernels, durations = [kernel for kernel, _ in launches], [duration for _, duration in launches]
    window = sorted(data.draw(st.sets(st.integers(0, len(launches) - 1))))
    light = made_launches(kernels, duration_ns=durations)
    found = unseen_time_percent(light, np.array(window, np.int64), light.column("duration_ns"))
    seen = {kernels[row] for row in window}
    new = sum(duration for kernel, duration in launches if kernel not in seen)
    assert found == pytest.approx(100.0 * new / max(sum(durations), 1))


@pytest.mark.parametrize(("window", "percent"), [(1_000, 4.99), (5_000, 0.0)])
def test_selections_write_it(shared_data: Path, window: int, percent: float) -> None:
    path = shared_data / "ncu" / "synthetic_v100_5000_raw_page.csv.gz"
    known = read_launches(path, ReadOptions(synthetic=True))
    profile = Profile(detailed=known.slice(0, window), light=light_half(known))
    facts = two_level_selection(profile).extra["two_level"]
    assert facts["unseen_time_percent"] == pytest.approx(percent, abs=0.01)
    assert facts["flags"] == []


def test_a_window_with_gaps_is_grouped_and_scored_over_the_union_of_its_slices(shared_data: Path) -> None:
    path = shared_data / "ncu" / "synthetic_v100_5000_raw_page.csv.gz"
    known = read_launches(path, ReadOptions(synthetic=True))
    slices = [
        replace(known.slice(first, 250), sources=(f"slice {first}",)) for first in (0, 1_500, 3_000, 4_750)
    ]
    profile = Profile(detailed=join(slices), light=light_half(known))
    selection = two_level_selection(profile)
    facts = selection.extra["two_level"]
    assert facts["match_percent"] == 100.0
    assert (facts["window"]["slices"], facts["window"]["launches"]) == (4, 1_000)
    assert facts["window"]["matched_launches"] == 1_000
    rows = np.concatenate([np.arange(first, first + 250) for first in (0, 1_500, 3_000, 4_750)])
    light = profile.light
    assert light is not None
    unseen = unseen_time_percent(light, rows, light.column("duration_ns"))
    assert facts["unseen_time_percent"] == unseen
    # Groups and representatives are those of the same launches in one table, as if they were neighbours.
    grouped = principal_kernels(known.take(rows))
    assert selection.labels is not None
    assert selection.labels[rows].tolist() == grouped.labels_by_k[facts["window"]["k"]].tolist()
    # K is the smallest whose group error, with each launch for all of its signature, is below 5 %; here none
    # is, so the one of least error.
    signature, cycles = signature_ordinals(light), known.column("cycles_gpc_avg")[rows]
    weight = np.array([(signature == signature[row]).sum() / (signature[rows] == signature[row]).sum()
                       for row in rows])  # fmt: skip
    errors = {}
    for k, labels in grouped.labels_by_k.items():
        true = np.bincount(labels, weight * cycles)
        projected = np.bincount(labels, weight) * cycles[grouped.rows_by_k[k]]
        errors[k] = 100 * np.abs(projected - true).sum() / true.sum()
    assert min(errors.values()) > 5.0
    assert facts["window"]["k"] == min(errors, key=lambda k: errors[k])
    assert facts["window"]["weighted_group_error_percent"] == pytest.approx(min(errors.values()))
