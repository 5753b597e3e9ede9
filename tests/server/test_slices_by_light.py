"""Slices chosen from a light run: against a search over all windows, and what campaigns do with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_server.campaign_file.compiled import SlicePlan, Slicing
from assay_server.campaign_file.slices import LightPace, SliceCost, cost_from_light
from assay_server.campaign_file.spec import DetailedSpec
from assay_server.campaigns.slicing.by_light import LightTimes, chosen_slices

COST = SliceCost(10.0, 0.01, 1.0)


def light(signatures: list[int], durations: list[int] | None = None) -> LightTimes:
    given_ns = durations or [10] * len(signatures)
    return LightTimes("l", np.array(signatures, np.int64), np.array(given_ns, np.int64))


def windows(plan: SlicePlan) -> list[tuple[int, int]]:
    return [(piece.launch_skip, piece.launch_count) for piece in plan.slices]


def searched(run: LightTimes, size: int, share: float, cost: SliceCost) -> list[tuple[int, int]]:
    """The same choice, launch by launch: every window of every free stretch, the best first."""
    launches, taken = len(run.signature), np.zeros(len(run.signature), bool)
    worth = np.bincount(run.signature, weights=run.duration_ns)
    seen: set[int] = set()
    found: list[tuple[int, int]] = []
    while 100.0 * sum(w for s, w in enumerate(worth) if s not in seen) > share * worth.sum():
        best = (-1.0, 0, 0)
        for begin in range(launches):
            if taken[begin]:
                continue
            free_from = max((i + 1 for i in range(begin) if taken[i]), default=0)
            free_to = next((i for i in range(begin, launches) if taken[i]), launches)
            end = min(begin + size, free_to)
            if begin > max(free_from, free_to - size):
                continue
            gain = sum(worth[s] for s in set(run.signature[begin:end].tolist()) - seen)
            rate = gain / cost.seconds(begin, end - begin)
            if rate > best[0]:
                best = (rate, begin, end)
        _, begin, end = best
        seen |= set(run.signature[begin:end].tolist())
        taken[begin:end] = True
        found.append((begin, end - begin))
    return found


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 50)), min_size=1, max_size=40),
    st.integers(1, 12),
    st.sampled_from([0.0, 5.0, 40.0]),
)
def test_each_slice_is_the_best_that_is_left(
    launches: list[tuple[int, int]], size: int, share: float
) -> None:
    _, ordinals = np.unique([signature for signature, _ in launches], return_inverse=True)
    run = light(ordinals.tolist(), [duration for _, duration in launches])
    plan = chosen_slices(run, Slicing(0, size, 0.0, share), [COST])
    assert windows(plan) == searched(run, size, share, COST)
    assert plan.ending == "unseen"
    assert plan.unseen_percent <= share or not plan.slices
    held = [launch for begin, count in windows(plan) for launch in range(begin, begin + count)]
    assert len(held) == len(set(held)), "a launch is measured twice"
    unseen = ~np.isin(run.signature, run.signature[held])
    left = 100.0 * run.duration_ns[unseen].sum() / run.duration_ns.sum()
    assert plan.unseen_percent == pytest.approx(left) or not plan.slices


def test_a_kernel_that_comes_late_costs_one_slice_and_not_the_way_to_it() -> None:
    run = light([0] * 9_000 + [1] + [0] * 999)
    plan = chosen_slices(run, Slicing(0, 100, 0.0, 0.0), [COST])
    assert windows(plan) == [(0, 100), (8_901, 100)]
    assert [piece.new_percent for piece in plan.slices] == pytest.approx([99.99, 0.01])
    assert plan.slices[1].seconds == pytest.approx(10.0 + 0.01 * 8_901 + 100.0)
    # The same share of time is not worth the slice where a hundredth may stay unseen.
    assert windows(chosen_slices(run, Slicing(0, 100, 0.0, 1.0), [COST])) == [(0, 100)]


def test_skipping_counts_so_that_of_two_equal_slices_the_earlier_one_comes_first() -> None:
    run = light([0] * 100 + [1] * 100 + [2] * 100)
    plan = chosen_slices(run, Slicing(0, 50, 0.0, 0.0), [COST])
    # The windows that have two signatures are worth more than the first.
    assert windows(plan) == [(51, 50), (151, 50)]
    dear = SliceCost(0.0, 1000.0, 0.001)
    assert windows(chosen_slices(run, Slicing(0, 50, 0.0, 0.0), [dear])) == [(0, 50), (51, 50), (151, 50)]


def test_a_budget_ends_the_plan_by_the_dearest_run_and_never_forbids_the_first_slice() -> None:
    run = light([0] * 1_000 + [1] * 1_000 + [2] * 1_000)
    cheap = SliceCost(1.0, 0.0, 0.0)
    # The two slices that see everything take 29.91 and 39.91 s in the dearest run.
    enough = chosen_slices(run, Slicing(0, 10, 69.9, 0.0), [cheap, COST])
    assert (len(enough.slices), enough.ending) == (2, "unseen")
    plan = chosen_slices(run, Slicing(0, 10, 69.8, 0.0), [cheap, COST])
    assert (len(plan.slices), plan.ending) == (1, "budget")
    assert plan.slices[0].seconds == pytest.approx(1.0 + COST.seconds(991, 10))
    tight = chosen_slices(run, Slicing(0, 10, 0.5, 0.0), [COST])
    assert (len(tight.slices), tight.ending) == (1, "budget")


def test_a_run_has_no_more_slices_than_it_may() -> None:
    run = light(list(range(1_000)))
    plan = chosen_slices(run, Slicing(0, 1, 0.0, 0.0), [COST])
    assert (len(plan.slices), plan.ending) == (200, "slices")
    assert plan.unseen_percent == pytest.approx(80.0)


def test_the_model_of_the_cost_is_the_one_that_the_page_states() -> None:
    # 60 s for 100,000 launches of 0.4 ms: three passes of (0.4 + 5) ms and a restore of 20 ms.
    cost = cost_from_light(DetailedSpec().counters(), LightPace(100_000, 60.0, 0.0004))
    assert cost == SliceCost(10.0, pytest.approx(0.00072), pytest.approx(3 * 0.0054 + 0.02))


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = chosen_slices(light([0, 1, 2, 0]), Slicing(0, 2, 0.0, 1.0), [COST])
    assert SlicePlan.from_document(plan.to_document()) == plan


def test_slices_lie_in_the_window_that_the_program_names() -> None:
    """The launches before it have the same signature, and more time; the last two are behind it."""
    run = light([0, 0, 0, 0, 1, 0, 1, 1], [90, 90, 90, 1, 2, 90, 1, 90])
    inside = run.within(np.array([3, 4, 6]))
    assert inside.duration_ns.tolist() == [0, 0, 0, 1, 2, 0, 1, 0]
    plan = chosen_slices(inside, Slicing(0, 100, 0.0, 0.0), [SliceCost(1.0, 0.0, 0.0)])
    assert windows(plan) == [(3, 4)]
