"""The section on intervals of other GPUs, in its short form, and a seeded subset of its counted samples."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from assay_sampling.estimation.target_intervals import SCALES_AT_MOST, TargetInterval, target_interval
from tests.fidelity import target_coverage
from tests.fidelity.indistinguishable import twins
from tests.fidelity.made_ratios import over
from tests.fidelity.section import Effort, Section
from tests.fidelity.target_pairs import HOLD_OUT, Pair, held_out, made

_SAMPLES = 300
_SOME = (
    "spread of 5 %",
    "spread of 30 %",
    "0.3 % of launches x 30, cut off",
    "2 % of launches x 10, cut off",
    "Pareto 1.5, cut off",
    "half of the launches x 2",
    "the shorter half of a kernel's launches x 2",
)


@pytest.fixture(scope="module")
def short() -> Section:
    return target_coverage.section(Effort.SHORT)


@pytest.fixture(scope="module")
def populations() -> dict[str, Pair]:
    return {pair.name: pair for pair in made(9, SCALES_AT_MOST)}


def test_the_short_form_keeps_its_bounds_but_for_widths_of_one_recording(short: Section) -> None:
    """Ratios of `infer` change with size in each kernel's own way: steps err less than two launches tell."""
    beyond = [text for text in short.missed if not (text.startswith("infer, ") and ": half width" in text)]
    assert beyond == []


def test_the_short_form_misses_its_bounds_where_intervals_are_too_narrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def narrower(*args: Any, **more: Any) -> TargetInterval:
        found = target_interval(*args, **more)
        if found.interval is None:
            return found
        middle = (found.interval.low + found.interval.high) / 2
        half = (found.interval.high - found.interval.low) / 8
        return replace(found, interval=replace(found.interval, low=middle - half, high=middle + half))

    monkeypatch.setattr(target_coverage, "target_interval", narrower)
    some = list(islice(target_coverage._cells(Effort.SHORT), 4))
    monkeypatch.setattr(target_coverage, "_cells", lambda effort: iter(some))
    missed = target_coverage.section(Effort.SHORT).missed
    assert any("held in" in text for text in missed)


def test_no_interval_keeps_all_bounds_on_two_populations_that_most_samples_cannot_tell_apart() -> None:
    found = twins(500, SCALES_AT_MOST)
    assert found.impossible
    # A sample that meets one of the unlike launches tells; its longer launch is from the half of the time
    # that they have 14 % of.
    assert 9 < 100 - found.meet_none_percent < 20
    assert not twins(500, 2.0).impossible, "one of the two does not keep a smaller assumption"


def test_hold_outs_are_other_populations_than_those_that_count(populations: dict[str, Pair]) -> None:
    for pair in held_out(9, SCALES_AT_MOST):
        name = pair.name.removesuffix(f" {HOLD_OUT}")
        assert name != pair.name
        assert name not in populations or populations[name].time.tolist() != pair.time.tolist()


def test_every_population_has_every_design(short: Section) -> None:
    cells = {(row[0], row[2]) for row in short.rows}
    names = {name for name, _ in cells}
    assert {*_SOME, "virtual solver, V100 to RTX 2060 (synthetic)"} <= names
    assert len(cells) == len(short.rows) == 2 * len(names)
    assert "## Intervals of the total on another GPU" in short.markdown()


def test_fewer_than_eighteen_launches_are_withheld_and_others_are_not(short: Section) -> None:
    for _, _, _, launches, _, withheld, held, half, _, _ in short.rows:
        assert (withheld == "100 %") == (int(launches) < 18)
        assert (held == "") == (withheld == "100 %")
        assert not half or float(half) > 0


def test_what_is_cut_off_keeps_the_assumption_and_what_it_was_cut_from_does_not(
    populations: dict[str, Pair],
) -> None:
    for name, pair in populations.items():
        beyond = over(pair.time, pair.cost, pair.group, SCALES_AT_MOST).any()
        assert beyond == (f"{name}, cut off" in populations), name


@pytest.mark.parametrize("name", _SOME)
def test_two_of_each_kernel_hold_the_truth_and_are_not_too_wide(
    name: str, populations: dict[str, Pair]
) -> None:
    found = target_coverage.measured(populations[name], "2 of each by light time", _SAMPLES)
    assert (found.launches, found.withheld_percent) == (18, 0)
    assert found.held_percent is not None
    assert found.held_percent >= 91, f"of {_SAMPLES} samples; the full bench has 2,000 and asks for 93"
    assert found.half_widths is not None
    assert found.half_widths <= 4.2


@pytest.mark.parametrize("name", ["2 % of launches x 10, cut off", "longest 2 % x 4, cut off"])
def test_fifty_in_proportion_hold_what_two_of_each_may_miss(name: str, populations: dict[str, Pair]) -> None:
    found = target_coverage.measured(populations[name], "50 in proportion", _SAMPLES)
    assert found.held_percent is not None
    assert found.held_percent >= 91
