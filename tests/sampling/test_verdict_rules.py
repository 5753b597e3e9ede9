"""The verdict: rules, sentences, and the expected errors that it rests on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.documents.common import VerdictEntry
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.notes.registry import make_note
from assay_sampling.verdicts.expected import (
    OF_LAUNCHES,
    OF_OPERATIONS,
    ExpectedErrors,
    Sizes,
    Spreads,
    expected_errors,
)
from assay_sampling.verdicts.facts import VerdictFacts
from assay_sampling.verdicts.rules import RULES, rule_table, verdict_of
from assay_sampling.verdicts.sentences import sentence_of_verdict
from assay_sampling.verdicts.verdict import Verdict, most_cautious, verdict_from
from assay_sampling.verdicts.windows import windows_of
from tests.support.sampling.odd_workloads import OddWorkload

GOOD = VerdictFacts(
    error_percent=0.4,
    group_error_percent=1.2,
    groups=40,
    kernels=20,
    representatives=60,
    drawn=True,
    expected=ExpectedErrors(0.5, 3.0, 12.0, 4.0),
    weights="light_time",
)
Chosen = tuple[np.ndarray, np.ndarray]
SCORED = replace(GOOD, elsewhere=True, expected=None)
BY_RULE = replace(GOOD, drawn=False, weighed_otherwise=True)


def test_a_verdict_says_for_which_window_of_the_program_it_stands() -> None:
    cut = make_note("light_window", window="launches 1 to 4,000, the first 600 s of the program")
    inside = make_note("window_is_range", range="assay", launches=120, of=4000)
    assert windows_of([make_note("short_names").to_dict()]) == ()
    verdict = verdict_of(replace(GOOD, windows=windows_of([inside.to_dict(), cut.to_dict()])))
    assert verdict_from(verdict.to_dict()) == verdict == VerdictEntry.of(verdict).verdict()
    assert sentence_of_verdict(verdict).endswith(
        "; it stands only for launches 1 to 4,000, the first 600 s of the program, and of these for the 120 "
        "of 4,000 recorded launches in the NVTX range 'assay'."
    )
    assert "windows" not in VerdictEntry.of(verdict_of(GOOD)).to_dict()
    assert verdict_of(replace(GOOD, error_percent=50.0, windows=("x",))).windows == ("x",)


def test_the_verdict_on_a_selection_by_operation_speaks_of_operations() -> None:
    for facts in (
        replace(GOOD, expected=None),
        replace(GOOD, expected=ExpectedErrors(9.0, 30.0, 12.0, 4.0)),
        replace(GOOD, expected=ExpectedErrors(0.5, 3.0, 90.0, 80.0)),
        replace(GOOD, groups=1),
        replace(GOOD, group_error_percent=None),
        replace(GOOD, unscored_recordings=1),
        replace(GOOD, unscored_recordings=2),
        replace(GOOD, unseen_time_percent=20.0, weights="launches"),
        replace(GOOD, launches=60),
        GOOD,
    ):
        found = verdict_of(facts)
        said = [sentence_of_verdict(Verdict(found.level, (reason,)), "operation") for reason in found.reasons]
        assert not [text for text in said if "launch" in text or "kernel" in text]
    assert sentence_of_verdict(verdict_of(replace(GOOD, groups=1)), "operation").startswith(
        "Trust the total only: 60 operations stand for 20 kinds of operations in one group"
    )


@pytest.mark.parametrize(("error", "shown"), [(3.04, "3.040 %"), (3.06, "3.1 %"), (120.0, "120 %")])
def test_a_number_above_its_bound_does_not_look_like_the_bound(error: float, shown: str) -> None:
    sentence = sentence_of_verdict(verdict_of(replace(SCORED, error_percent=error)), "launch")
    assert f"the total is off by {shown}, more than 3 %" in sentence


def test_an_expected_error_is_told_with_the_limit_that_it_is_beyond() -> None:
    verdict = verdict_of(replace(GOOD, expected=ExpectedErrors(1.7, 3.0, 0.0, 0.0)))
    assert sentence_of_verdict(verdict) == (
        "Do not trust it: on another GPU the total may well be off by 1.7 % (trusted up to 1.1 %): its "
        "launches say too little of the rest."
    )
    by_group = verdict_of(replace(GOOD, expected=ExpectedErrors(1.0, 6.5, 0.0, 0.0)))
    assert sentence_of_verdict(by_group) == (
        "Trust the total only: on another GPU kernels and sizes may well be off by 6.5 % of the total "
        "(trusted up to 5 %)."
    )


def test_nothing_against_it_is_trusted_with_the_numbers() -> None:
    found = verdict_of(GOOD)
    assert (found.level, [reason.code for reason in found.reasons]) == ("trust", ["within_goals"])
    assert found.reasons[0].numbers["expected_group_error_percent"] == 3.0
    assert sentence_of_verdict(found) == (
        "Trust it: on another GPU the total should be off by about 0.5 %, kernels and sizes by 3.0 %."
    )


@pytest.mark.parametrize(
    ("facts", "level", "codes"),
    [
        (replace(GOOD, error_percent=3.01), "do_not", ["total_error"]),
        (replace(GOOD, error_percent=3.0, group_error_percent=6.0), "trust", ["within_goals"]),
        (replace(GOOD, error_percent=None), "do_not", ["total_error"]),
        (replace(GOOD, group_error_percent=6.1), "total_only", ["group_error"]),
        (replace(GOOD, group_error_percent=6.1, drawn=False), "do_not", ["group_error"]),
        (replace(GOOD, group_error_percent=6.1, representatives=17), "do_not", ["group_error"]),
        (replace(GOOD, groups=1), "total_only", ["one_group_of_several_kernels"]),
        (replace(GOOD, groups=1, representatives=1), "do_not", ["one_group_of_several_kernels"]),
        (replace(GOOD, groups=1, kernels=1), "trust", ["within_goals"]),
        (replace(GOOD, groups=1, launches=60), "trust", ["within_goals"]),
        (replace(GOOD, expected=ExpectedErrors(1.3, 3.0, 0.0, 0.0)), "do_not", ["expected_total_error"]),
        (replace(GOOD, expected=ExpectedErrors(1.0, 6.5, 0.0, 0.0)), "total_only", ["expected_group_error"]),
        (replace(GOOD, expected=ExpectedErrors(0.5, 3.0, 99.0, 90.0)), "trust", ["within_goals"]),
        (replace(BY_RULE, expected=ExpectedErrors(0.5, 3.0, 99.0, 50.0)), "trust", ["within_goals"]),
        (replace(BY_RULE, expected=ExpectedErrors(0.5, 3.0, 99.0, 50.1)), "do_not", ["extrapolated_time"]),
        (replace(BY_RULE, error_percent=5.3, group_error_percent=5.7), "trust", ["within_goals"]),
        (replace(BY_RULE, error_percent=5.3, group_error_percent=6.1), "do_not", ["group_error"]),
        (replace(BY_RULE, error_percent=5.3, weighed_otherwise=False), "do_not", ["total_error"]),
        (replace(BY_RULE, error_percent=5.3, drawn=True), "do_not", ["total_error"]),
        (replace(BY_RULE, error_percent=5.3, weights="instructions"), "do_not", ["total_error"]),
        (replace(BY_RULE, error_percent=None), "do_not", ["total_error"]),
        (replace(GOOD, expected=None), "do_not", ["nothing_expected"]),
        (replace(GOOD, interval_half_percent=9.0), "trust", ["within_goals"]),
        (replace(GOOD, interval_half_percent=9.0, weights="launches"), "do_not", ["wide_interval"]),
        (replace(GOOD, unseen_time_percent=9.0, weights="launches"), "do_not", ["unseen_time"]),
        (replace(SCORED, unmatched_time_percent=4.0), "do_not", ["unmatched_time"]),
        (SCORED, "trust", ["within_goals"]),
        (replace(SCORED, drawn=False, group_error_percent=9.0), "total_only", ["group_error"]),
        (replace(SCORED, group_error_percent=None), "total_only", ["group_error_unknown"]),
        (
            replace(SCORED, error_percent=42, group_error_percent=9),
            "do_not",
            ["total_error", "group_error"],
        ),
    ],
)
def test_each_rule(facts: VerdictFacts, level: str, codes: list[str]) -> None:
    found = verdict_of(facts)
    assert (found.level, [reason.code for reason in found.reasons]) == (level, codes)
    assert verdict_from(found.to_dict()) == found
    sentence = sentence_of_verdict(found)
    assert sentence.endswith(".")
    begins = {
        "trust": "Trust it: ",
        "total_only": "Trust the total only: ",
        "do_not": "Do not trust it: ",
    }
    assert sentence.startswith(begins[level])


def test_the_table_has_every_rule() -> None:
    assert all(f"| `{rule.code}` |" in rule_table() for rule in RULES)
    assert len({rule.code for rule in RULES}) == len(RULES)


_PERCENT = st.floats(0, 200) | st.none()


@given(_PERCENT, _PERCENT, st.integers(1, 3), st.booleans(), st.booleans())
def test_one_group_or_a_group_error_above_the_goal_is_never_trusted(
    error: float | None, group: float | None, groups: int, drawn: bool, elsewhere: bool
) -> None:
    facts = replace(
        GOOD, error_percent=error, group_error_percent=group, groups=groups, drawn=drawn, elsewhere=elsewhere
    )
    trusted = verdict_of(facts).level == "trust"
    assert trusted == (groups > 1 and error is not None and error <= 3 and group is not None and group <= 6)


def test_the_most_cautious_of_several() -> None:
    trust, total = verdict_of(GOOD), verdict_of(replace(GOOD, groups=1))
    assert most_cautious([trust, total, total]) is total
    assert isinstance(total, Verdict)


def _sizes(kernel: np.ndarray, blocks: np.ndarray, shape: np.ndarray | None = None) -> Sizes:
    return Sizes(kernel.astype(np.uint64), blocks.astype(np.int64), shape)


def _spreads(sizes: Sizes) -> Spreads:
    return OF_LAUNCHES if sizes.shape is None else OF_OPERATIONS


def _own_squares(sizes: Sizes, time: np.ndarray, light_runs: int) -> np.ndarray:
    """The variance of the own factor of each launch, from those of its kernel and size (and shape)."""
    spreads = _spreads(sizes)
    which = sizes.blocks if sizes.shape is None else sizes.shape
    squares = np.full(len(time), spreads.own**2)
    for row in range(len(time)) if light_runs else ():
        logs = np.log(time[(sizes.kernel == sizes.kernel[row]) & (which == which[row])])
        varied = (light_runs + 1) * float(np.square(logs - logs.mean()).sum())
        square = (spreads.own**2 + varied) / len(logs)
        squares[row] = min(max(square, spreads.least_own**2), spreads.own**2)
    return squares


def _by_covariance(
    sizes: Sizes, labels: np.ndarray, time: np.ndarray, chosen: Chosen, own_squares: np.ndarray
) -> tuple[float, float]:
    """The expected errors from the covariance of every two launches, as the model has it."""
    kernel, grid, (rows, weights) = sizes.kernel, sizes.blocks, chosen
    spreads = _spreads(sizes)
    shape = grid if sizes.shape is None else sizes.shape
    n, share = len(time), time / time.sum()
    filling = np.log2(np.minimum(grid, 1024).astype(float))
    size = spreads.filling**2 * filling + spreads.size**2 * (np.log2(grid.astype(float)) - filling)
    smallest = np.array([size[kernel == k].min() for k in kernel])
    same = kernel[:, None] == kernel[None, :]
    walk = np.minimum.outer(size, size) - smallest[:, None]
    alike = same & (shape[:, None] == shape[None, :])
    shared = same * (spreads.kernel**2 + walk) + spreads.shape**2 * alike
    stands = np.zeros(n)
    stands[rows] = weights * share[rows]

    def square(contrast: np.ndarray, chosen: np.ndarray) -> float:
        own = float((own_squares[chosen] * np.square(contrast[chosen])).sum())
        return 2 / math.pi * (float(contrast @ shared @ contrast) + own) + float(contrast.sum()) ** 2

    found = []
    for one in sorted(set(zip(kernel.tolist(), shape.tolist(), strict=True))):
        variance, bias = 0.0, 0.0
        for group in range(labels.max() + 1):
            here = (kernel == one[0]) & (shape == one[1]) & (labels == group)
            if not here.any():
                continue
            part = share[here].sum() / share[labels == group].sum()
            contrast = np.where(labels == group, part * stands, 0.0) - np.where(here, share, 0.0)
            variance += square(contrast, rows[labels[rows] == group]) - contrast.sum() ** 2
            bias += contrast.sum()
        found.append(math.sqrt(variance + bias**2))
    return 100 * math.sqrt(square(stands - share, rows)), 100 * sum(found)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(4, 40),
    kernels=st.integers(1, 4),
    groups=st.integers(1, 5),
    shapes=st.integers(0, 6),
    light_runs=st.integers(0, 3),
    varying=st.sampled_from([0.01, 0.03, 2.0]),
)
def test_expected_errors_are_those_of_the_model(
    *, seed: int, n: int, kernels: int, groups: int, shapes: int, light_runs: int, varying: float
) -> None:
    rng = np.random.default_rng(seed)
    kernel, grid = rng.integers(kernels, size=n), 1 << rng.integers(7, 13, size=n)
    labels = np.concatenate([np.arange(min(groups, n)), rng.integers(groups, size=n - min(groups, n))])
    time = 100 * (1 + kernel) * grid * np.exp(rng.normal(0, varying, n))
    first = np.unique(labels, return_index=True)[1]
    rows = np.unique(np.concatenate([first, rng.integers(n, size=3)]))
    w = rng.uniform(0.5, 3, len(rows))
    shape = rng.integers(shapes, size=n) if shapes else None
    if shape is not None:
        grid = (1 << rng.integers(7, 13, size=shapes))[shape]
    sizes = _sizes(kernel, grid, shape)
    found = expected_errors(sizes, labels, time, rows, w, light_runs=light_runs)
    assert found is not None
    own_squares = _own_squares(sizes, time, light_runs)
    total, group = _by_covariance(sizes, labels, time, (rows, w), own_squares)
    # Logarithms of times are counted in whole parts of 0.01 %.
    precision = 1e-2 if light_runs else 1e-6
    assert found.error_percent == pytest.approx(total, rel=precision)
    assert found.group_error_percent == pytest.approx(group, rel=precision)


@pytest.mark.parametrize(
    ("apart", "launches", "light_runs", "own"),
    [
        (0.02, 100, 0, 0.05),  # a cost under a profiler says nothing of a free run
        (0.0, 100, 1, 0.05),  # composed: no two measurements are equal to the digit
        (0.001, 100, 1, 0.03),  # never less
        (0.001, 2, 1, math.sqrt((0.05**2 + 2 * 2 * 0.001**2) / 2)),
        (0.025, 100, 1, math.sqrt((0.05**2 + 2 * 100 * 0.025**2) / 100)),
        (0.02, 100, 2, math.sqrt((0.05**2 + 3 * 100 * 0.02**2) / 100)),
        (0.3, 100, 1, 0.05),  # never more: what differs so much may well scale alike
    ],
)
def test_a_launchs_own_factor_is_what_launches_of_its_kernel_and_size_vary_by(
    apart: float, launches: int, light_runs: int, own: float
) -> None:
    """One launch stands for all of a kernel and size, which are ``apart`` from 1,000 ns, above or below."""
    time = 1000 * np.exp(apart * np.where(np.arange(launches) % 2 == 0, 1.0, -1.0))
    sizes, labels = _sizes(np.ones(launches), np.full(launches, 8)), np.zeros(launches, int)
    weight = time.sum() / time[0]
    found = expected_errors(sizes, labels, time, np.array([0]), np.array([weight]), light_runs=light_runs)
    assert found is not None
    expected = 100 * math.sqrt(2 / math.pi) * own * (1 - 1 / weight)
    assert found.error_percent == pytest.approx(expected, rel=1e-3)
    assert found.group_error_percent == pytest.approx(expected, rel=1e-3)


def test_a_mean_of_light_runs_hides_noise_that_one_run_elsewhere_has() -> None:
    """Runs that agree: means vary as one run does, which of two runs tells of more noise."""
    time = (1000 * np.exp(0.025 * np.where(np.arange(100) % 2 == 0, 1.0, -1.0))).astype(np.int64)
    light = OddWorkload(np.ones(100, int), np.full(100, 8), time).light()
    once, twice = (
        select("single_iteration", Profile(light=light, repeats=repeats), {"iteration_launches": 1}).expected
        for repeats in ((), (light,))
    )
    assert once is not None and twice is not None
    own = [math.sqrt((0.05**2 + (runs + 1) * 100 * 0.025**2) / 100) for runs in (1, 2)]
    assert twice.error_percent / once.error_percent == pytest.approx(own[1] / own[0], rel=1e-2)


@pytest.mark.parametrize(
    ("blocks", "drift"),
    [
        ((16, 64), 0.12 * math.sqrt(2)),
        ((512, 4096), math.sqrt(0.12**2 + 2 * 0.08**2)),
        ((1024, 4096), 0.08 * math.sqrt(2)),
    ],
)
def test_ratios_drift_less_where_blocks_fill_a_gpu(blocks: tuple[int, int], drift: float) -> None:
    """A launch of one size stands for that of another, as long: each is off by half of their drift."""
    sizes, labels = _sizes(np.ones(2), np.array(blocks)), np.zeros(2, int)
    found = expected_errors(sizes, labels, np.ones(2), np.array([0]), np.array([2.0]), light_runs=1)
    assert found is not None
    squares = (0.5 * drift) ** 2 + (0.5 * 0.05) ** 2
    assert found.error_percent == pytest.approx(100 * math.sqrt(2 / math.pi * squares))


def test_calls_of_another_library_differ_though_they_take_equally_long_here() -> None:
    sizes = _sizes(np.ones(50), np.full(50, 8), np.zeros(50, int))
    chosen = np.array([0]), np.array([50.0])
    labels, time = np.zeros(50, int), np.full(50, 20.0)
    here = expected_errors(sizes, labels, time, *chosen, light_runs=1)
    assert here is not None
    assert here == expected_errors(sizes, labels, time, *chosen)
    assert here.error_percent == pytest.approx(100 * math.sqrt(2 / math.pi) * 0.10 * 49 / 50)


def test_every_launch_taken_is_exact_and_one_for_many_is_not_vouched_for() -> None:
    kernel, grid = np.array([1, 1, 2, 2]), np.array([8, 8, 4, 4])
    sizes, time = _sizes(kernel, grid), np.array([10.0, 10.0, 30.0, 50.0])
    labels = np.array([0, 0, 1, 1])
    every = expected_errors(sizes, labels, time, np.arange(4), np.ones(4))
    assert every is not None
    assert (every.error_percent, every.group_error_percent) == pytest.approx((0.0, 0.0), abs=1e-6)
    assert (every.not_vouched_percent, every.extrapolated_percent) == (0.0, 0.0)
    one = expected_errors(sizes, labels, time, np.array([0, 1, 3]), np.array([1.0, 1.0, 1.6]))
    assert one is not None
    assert one.not_vouched_percent == pytest.approx(80.0)
    # Both launches of that group are of one kernel and size, so that its light time speaks for it.
    assert one.extrapolated_percent == 0.0
    unlike = _sizes(kernel, np.array([8, 8, 4, 16]))
    other = expected_errors(unlike, labels, time, np.array([0, 1, 3]), np.array([1.0, 1.0, 1.6]))
    assert other is not None
    assert other.extrapolated_percent == pytest.approx(30.0)
    two = expected_errors(unlike, labels, time, np.array([0, 2, 3]), np.array([2.0, 1.0, 1.0]))
    assert two is not None
    assert two.extrapolated_percent == 0.0


def test_launches_without_any_time_expect_nothing() -> None:
    sizes = _sizes(np.ones(3), np.array([1, 2, 4]))
    assert expected_errors(sizes, np.zeros(3, int), np.zeros(3), np.array([0]), np.array([3.0])) is None
