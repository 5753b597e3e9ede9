"""The sections on weights: errors that the demo had by launches, and what light time makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fidelity import weights, weights_simulated
from tests.fidelity.section import Effort


def test_the_demo_has_the_errors_that_were_found_in_it() -> None:
    """On the pipeline PKS takes one group for kernels that scale unlike, which no weights mend."""
    found = weights.scores(weights.CASES[0], "pipeline", "RTX 2060", 1)
    assert isinstance(found, weights.Found)
    assert found.own is not None
    assert found.own[0] == pytest.approx(113.9, abs=0.05)
    assert found.light_time[0] == pytest.approx(119.4, abs=0.05)
    assert not weights.keeps_goal(found)


def test_random_draws_hold_on_the_next_gpu_by_light_time() -> None:
    uniform, in_proportion = (
        weights.scores(case, "solver", "RTX 2060", 10) for case in weights.CASES if case.method == "random"
    )
    assert isinstance(uniform, weights.Found)
    assert isinstance(in_proportion, weights.Found)
    assert uniform.own is not None
    assert uniform.own[0] > 20
    assert uniform.light_time[0] < 5
    assert in_proportion.light_time[0] < 5


def test_the_short_section_keeps_its_bounds() -> None:
    section = weights.section(Effort.SHORT)
    assert section.missed == []
    assert "Synthetic" in section.markdown()
    assert len(section.rows) == len(weights.SHORT_CASES) * len(weights.TARGETS)


def test_a_median_that_light_time_makes_worse_is_named() -> None:
    good, bad = weights.Found(1, (9.0, 9.0), (3.0, 3.0)), weights.Found(1, (2.0, 3.0), (9.0, 3.0))
    assert weights.missed([good, good, bad]) == []
    assert weights.missed([good, bad, bad]) == ["median error: 2.0 % becomes 9.0 % by light time"]


@pytest.mark.shared_data
def test_on_a_simulator_group_errors_fall_and_totals_need_not(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_SHARED_DATA", str(shared_data))
    section = weights_simulated.section(Effort.SHORT)
    assert section.missed == []
    assert len(section.rows) == 20
    own, by_light_time = weights_simulated.errors_by_k(shared_data)[12, "SM75_RTX2060"]
    assert (own.signed, own.groups) == pytest.approx((6.8, 37.9), abs=0.5)
    assert (by_light_time.signed, by_light_time.groups) == pytest.approx((-9.1, 13.6), abs=0.5)
