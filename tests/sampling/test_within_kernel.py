"""Models that label a signature by the seen signatures of its kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.clustering.feature_space import FeatureSpace
from assay_sampling.errors import RefusedError
from assay_sampling.labelling.classifiers import Examples
from assay_sampling.labelling.light_facts import LightFacts
from assay_sampling.labelling.light_run import label_rest
from assay_sampling.labelling.within_kernel import (
    Donors,
    Nearest,
    WindowCounters,
    nearest_light_time,
    scaled_counters,
)
from assay_sampling.launches.signatures import distinct_signatures
from tests.support.sampling.made_launches import made_launches

NAMES = ("instructions", "threads_per_instruction", "thread_blocks")


def facts(
    kernel: list[int], blocks: list[float], light_ns: list[float] | None = None, warps: float = 4
) -> LightFacts:
    size = np.array(blocks, float)
    times = None if light_ns is None else np.array(light_ns, float)
    return LightFacts(np.array(kernel, np.uint64), size, warps * size, times)


def examples(labels: list[int], counters: np.ndarray | None = None) -> Examples:
    """One pair for each signature, of one launch."""
    count = len(labels)
    features = np.zeros((count, 1), np.float32)
    return Examples(features, np.ones(1, bool), np.arange(count), np.array(labels), np.ones(count), counters)


def counted(given: LightFacts, per_warp: list[float], labels: list[int]) -> tuple[Examples, WindowCounters]:
    """Launches that execute so many instructions a warp."""
    values = np.column_stack([given.warps * per_warp, np.full(len(given), 32.0), given.blocks])
    space = FeatureSpace.fit(values, np.ones(len(values)))
    return examples(labels, values), WindowCounters(NAMES, values, space)


def test_the_group_is_that_of_the_most_similar_time_within_the_kernel() -> None:
    seen = facts([1, 1, 2], [8, 64, 8], [100, 1_000, 300])
    answer = nearest_light_time(Donors.of(seen, examples([0, 1, 2])))
    found = answer(facts([1, 1, 1, 2], [1] * 4, [290, 330, 5_000, 1]), 3)
    # In ratios: 316 ns lies in the middle between 100 and 1,000.
    assert found.labels.tolist() == [0, 1, 1, 2]
    assert found.labels.dtype == np.int32
    assert found.probabilities.sum(axis=1) == pytest.approx(1.0)
    assert found.probabilities[:3, 2].tolist() == [0.0] * 3
    assert found.probabilities[1, 1] == pytest.approx(
        (1 / np.log(1000 / 330) ** 2) / (1 / np.log(1000 / 330) ** 2 + 1 / np.log(3.3) ** 2)
    )


def test_a_kernel_that_was_not_seen_gets_the_largest_group_unsurely() -> None:
    given = facts([1, 1, 2], [1, 2, 4], [10, 20, 30])
    counters, window = counted(given, [5, 5, 9], [0, 1, 1])
    for answer in (
        nearest_light_time(Donors.of(given, counters)),
        scaled_counters(Donors.of(given, counters), counters, window),
    ):
        found = answer(facts([7], [3], [15]), 4)
        assert found.labels.tolist() == [1]
        assert found.probabilities.tolist() == [[0.25] * 4]


def test_counters_grow_with_the_grid_and_ratios_do_not() -> None:
    # Kernel 1 at 8 blocks is small, kernel 2 at 800 large; 100 times the blocks of kernel 1 is like kernel 2.
    seen = facts([1, 2, 1], [8, 800, 16])
    made, window = counted(seen, [50, 50, 50], [0, 1, 0])
    answer = scaled_counters(Donors.of(seen, made), made, window)
    found = answer(facts([1, 1, 2], [790, 12, 10]), 2)
    assert found.labels.tolist() == [1, 0, 0]
    # At 800 blocks the predicted counters are exactly those of the centre of group 1.
    assert answer(facts([1], [800]), 2).probabilities[0, 1] == pytest.approx(1.0)
    # Of warps: twice the threads a block at half the blocks is as much work, in fewer blocks.
    wide = answer(facts([1], [400], warps=8), 2)
    assert wide.labels.tolist() == [1]


@given(st.integers(0, 2**32 - 1))
def test_where_counters_do_scale_every_new_signature_is_placed_as_by_its_counters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel = np.arange(60) % 6
    blocks = 2.0 ** rng.integers(0, 12, 60)
    per_warp = rng.uniform(10, 1_000, 6)[kernel]
    given = LightFacts(kernel.astype(np.uint64), blocks, 4 * blocks, None)
    values = np.column_stack([given.warps * per_warp, np.full(60, 32.0), blocks])
    space = FeatureSpace.fit(values[:30], np.ones(30))
    labels = np.digitize(np.log(values[:30, 0]), np.quantile(np.log(values[:30, 0]), [0.25, 0.5, 0.75]))
    made = examples(labels.tolist(), values[:30])
    answer = scaled_counters(
        Donors.of(given.take(slice(30)), made), made, WindowCounters(NAMES, values[:30], space)
    )
    placed = space.project(values)
    groups = np.unique(labels)
    centres = np.stack([placed[:30][labels == group].mean(axis=0) for group in groups])
    distance = np.square(placed[30:, None] - centres).sum(axis=2)
    chosen = answer(given.take(slice(30, None)), 4).labels
    at = np.searchsorted(groups, chosen)
    seen_before = np.array(
        [(given.kernel[:30] == k).any() and ((given.kernel[:30] == k) & (blocks[:30] == b)).any()
         for k, b in zip(given.kernel[30:], blocks[30:], strict=True)]
    )  # fmt: skip
    # Those seen at the very size keep their group; of the others each gets the nearest centre.
    rows = np.flatnonzero(~seen_before)
    assert distance[rows, at[rows]] == pytest.approx(distance[rows].min(axis=1), rel=1e-6, abs=1e-9)


def test_a_seen_signature_keeps_its_group_even_if_another_centre_is_nearer() -> None:
    seen = facts([1, 1, 1], [8, 9, 100])
    # The second launch is in a group whose other launch is far away.
    made, window = counted(seen, [50, 50, 50], [0, 1, 1])
    answer = scaled_counters(Donors.of(seen, made), made, window)
    assert answer(facts([1, 1], [9, 10]), 2).labels.tolist() == [1, 0]


def test_where_the_work_does_not_follow_the_grid_the_ratio_is_that_of_light_time() -> None:
    rng = np.random.default_rng(1)
    work = 2.0 ** rng.uniform(0, 12, 40)
    seen = facts([1] * 40, (2.0 ** rng.integers(0, 12, 40)).tolist(), (50 * work).tolist())
    values = (1_000 * work)[:, None]
    window = WindowCounters(("instructions",), values, FeatureSpace.fit(values, np.ones(40)))
    labels = np.digitize(work, [16, 256]).tolist()
    made = examples(labels, values)
    answer = scaled_counters(Donors.of(seen, made), made, window)
    new = 2.0 ** rng.uniform(0, 12, 200)
    asked = facts([1] * 200, (2.0 ** rng.integers(0, 12, 200)).tolist(), (50 * new).tolist())
    centres = np.array([work[np.array(labels) == group].mean() for group in range(3)])
    truth = np.abs(new[:, None] - centres).argmin(axis=1)
    assert (answer(asked, 3).labels == truth).mean() > 0.99
    # Without times the grid is all that there is, and it misleads.
    blind, without = replace(seen, light_ns=None), replace(asked, light_ns=None)
    assert (scaled_counters(Donors.of(blind, made), made, window)(without, 3).labels == truth).mean() < 0.6


def test_what_a_simulator_counts_grows_too() -> None:
    seen = facts([1, 2], [8, 800])
    values = np.column_stack([seen.warps, seen.warps * 3, [32.0, 32.0]])
    names = ("l1_accesses", "shared_bank_conflicts", "threads_per_instruction")
    window = WindowCounters(names, values, FeatureSpace.fit(values, np.ones(2)))
    made = examples([0, 1], values)
    found = scaled_counters(Donors.of(seen, made), made, window)(facts([1], [800]), 2)
    assert found.labels.tolist() == [1]
    assert found.probabilities[0, 1] == pytest.approx(1.0)


def test_the_first_of_equal_positions_counts_and_other_kernels_never() -> None:
    nearest = Nearest(np.array([3, 3, 5, 3], np.uint64), np.array([[0.0], [0.0], [0.1], [40.0]]))
    assert nearest.rows.tolist() == [0, 2, 3]
    distance, found = nearest.query(np.array([3, 5, 4], np.uint64), np.array([[0.1], [39.0], [0.1]]), 2)
    assert found.tolist() == [[0, 3], [2, -1], [-1, -1]]
    assert distance[1].tolist() == [pytest.approx(38.9), np.inf]


def test_of_a_signature_with_several_groups_the_one_of_most_launches_counts() -> None:
    given = Examples(
        np.zeros((2, 1), np.float32), np.ones(1, bool), np.array([0, 0, 1]), np.array([2, 3, 1]),
        np.array([4.0, 5.0, 7.0]), np.array([[1.0], [2.0], [3.0]]),
    )  # fmt: skip
    seen = Donors.of(facts([1, 2], [8, 8]), given)
    # Most launches first.
    assert seen.label.tolist() == [1, 3]
    assert seen.counters is not None
    assert seen.counters.tolist() == [[3.0], [2.0]]
    assert seen.fallback == 1


def test_facts_are_those_of_the_light_run() -> None:
    launches = made_launches(
        ["a", "a", "b"], grid_x=[4, 4, 2], grid_y=[3, 3, 1], block_x=[33, 33, 256],
        duration_ns=[10, 30, 0], nvtx_id=["x", "x", None],
    )  # fmt: skip
    found = LightFacts.of(launches, distinct_signatures(launches))
    assert found.blocks.tolist() == [12, 2]
    assert found.warps.tolist() == [24, 16]
    assert found.light_ns is not None
    assert found.light_ns.tolist() == [20, 1]
    without = made_launches(["a", "b"], duration_ns=[10, None])
    assert LightFacts.of(without, distinct_signatures(without)).light_ns is None


def test_a_model_that_lacks_what_it_needs_is_refused() -> None:
    launches = made_launches(["a"] * 6, grid_x=[1, 2, 3, 4, 5, 6])
    labels = np.array([0, 0, 1, 1])
    found = label_rest(launches, np.arange(4), labels)
    assert set(found.predicted) == {"sgd", "gaussian_nb", "mlp", "combined"}
    for model in ("nearest_light_time", "scaled_counters"):
        with pytest.raises(RefusedError, match=f"the model {model} needs"):
            label_rest(launches, np.arange(4), labels, model=model)  # type: ignore[arg-type]


def test_the_answers_are_the_same_each_time_and_their_own_confidence_abstains() -> None:
    rng = np.random.default_rng(4)
    kernels = [f"k{number}" for number in rng.integers(0, 5, 400)]
    grids = 2 ** rng.integers(0, 14, 400)
    window = np.arange(250)
    values = np.column_stack([grids * 7.0, np.full(400, 32.0), grids.astype(float)])[window]
    space = FeatureSpace.fit(values, np.ones(len(values)))
    labels = np.digitize(grids[window], [64, 1_024])
    launches = made_launches(kernels, grid_x=grids, duration_ns=grids * 10 + 500)
    counters = WindowCounters(NAMES, values, space)
    chosen = label_rest(launches, window, labels, model="scaled_counters", counters=counters)
    again = label_rest(launches, window, labels, model="scaled_counters", counters=counters)
    for name in chosen.predicted:
        assert np.array_equal(chosen.predicted[name], again.predicted[name])
    assert chosen.held_out == again.held_out
    assert chosen.held_out["scaled_counters"].expected == pytest.approx(100, abs=3)
    by_vote = label_rest(launches, window, labels, model="sgd", counters=counters)
    alone = label_rest(launches, window, labels, model="sgd")
    assert chosen.abstained is not None and by_vote.abstained is not None and alone.abstained is not None
    # The paper's models abstain by their vote, whatever other models there are.
    assert by_vote.abstained.abstention == alone.abstained.abstention
    assert chosen.abstained.abstention != by_vote.abstained.abstention
    assert replace(chosen.abstained.abstention, threshold=0.0).accuracy_percent >= 95.0  # type: ignore[operator]
