"""Principal kernel projection: the window, every rule on series worked out by hand, and what holds always."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.notes.registry import make_note
from assay_sampling.projection.projector import LaunchSize, ProjectionParameters, Projector, Series, project
from assay_sampling.projection.series_csv import read_series
from assay_sampling.projection.stability import StabilityDetector

RULES = ("artifact", "paper", "instructions")


def made(ipc: list[float], ctas: list[float], interval: float = 100.0) -> Series:
    """A series from the IPC and the completed blocks of each interval."""
    cycles = interval * np.arange(1, len(ipc) + 1)
    return Series(cycles, np.cumsum(np.array(ipc) * interval), np.array(ctas, np.float64))


def parameters(rule: str, window: float = 200, s: float = 5, **more: str) -> ProjectionParameters:
    return ProjectionParameters.model_validate({"rule": rule, "window_cycles": window, "s": s, **more})


# Cumulative IPC 10, 20, 25, 26, 26.2, ...: in windows of two, 47 %, 16 %, 2.8 %, 0.5 %, ...
RAMP = made([10, 30, 35, 29, 27, 27, 27, 27, 27, 27], [0, 0, 2, 3, 4, 4, 4, 4, 4, 4])


def test_the_window_is_of_the_sample_standard_deviation_in_percent_of_the_mean() -> None:
    detector = StabilityDetector(300, 100)
    values = [10, 30, 35, 29]
    for i, instructions in enumerate(np.cumsum(values) * 100, start=1):
        detector.push(100 * i, instructions)
    cumulative = np.array([20, 25, 26])
    # The least spread is that of the last window.
    assert detector.least_spread == pytest.approx(100 * cumulative.std(ddof=1) / cumulative.mean(), rel=1e-12)
    assert detector.window_ipc == pytest.approx((30 + 35 + 29) / 3, rel=1e-12)
    assert detector.window_samples == 3


def test_other_signals_and_spreads() -> None:
    each = StabilityDetector(200, 1, signal="instantaneous", spread="absolute")
    assert [each.push(100 * i, n) for i, n in enumerate([1000, 4000, 7000], start=1)] == [False, False, True]
    assert each.least_spread == 0.0
    absolute = StabilityDetector(200, 8, spread="absolute")
    assert [absolute.push(100, 1000), absolute.push(200, 4000)] == [False, True]  # 10 and 20: 7.07
    percent = StabilityDetector(200, 8)
    assert [percent.push(100, 1000), percent.push(200, 4000)] == [False, False]


@pytest.mark.parametrize(("window", "samples"), [(1, 2), (250, 2), (300, 3), (349, 3), (360, 4)])
def test_a_window_is_a_whole_number_of_samples_and_at_least_two(window: float, samples: int) -> None:
    detector = StabilityDetector(window, 1)
    detector.push(100, 1)
    detector.push(200, 2)
    assert detector.window_samples == samples


def test_the_launch_latency_is_in_no_ipc() -> None:
    for idle in (300.0, None):
        detector = StabilityDetector(200, 1e-9, idle_cycles=idle)
        stable = [detector.push(100 * i, 50 * max(100 * i - 300, 0)) for i in range(1, 7)]
        assert stable == [False, False, False, False, True, True]
        assert detector.window_ipc == pytest.approx(50)
    latency_in_it = StabilityDetector(200, 1e-9)
    assert not any(latency_in_it.push(100 * i, 50 * max(100 * i - 300, 0)) for i in range(1, 7))


def test_the_artifact_rule_by_hand() -> None:
    # Stable at sample 2 (25 after 20 is 16 %, 26 after 25 is 2.8 %: sample 3); blocks before sample 3: 2;
    # before sample 5: 9, the first that is at least the wave of 6. Projection 600 * 40 / (9 + 1).
    found = project(RAMP, LaunchSize(6, 40), parameters("artifact"))
    assert found.stop is not None
    assert (found.stop.sample_index, found.stop.cycles, found.stop.finished_ctas) == (5, 600, 9)
    assert found.projected_cycles == pytest.approx(2400)
    # A wave of 100 blocks does not fit: 0.3 of 40 blocks are 12, reached before sample 6.
    below = project(RAMP, LaunchSize(100, 40), parameters("artifact"))
    assert (below.simulated_cycles, below.projected_cycles) == (700, pytest.approx(700 * 40 / 14))


def test_the_paper_rule_by_hand() -> None:
    # Stable at sample 3, where 5 blocks have finished: the wave of 6 ends at sample 4 with 9 blocks.
    found = project(RAMP, LaunchSize(6, 40), parameters("paper"))
    assert (found.simulated_cycles, found.projected_cycles) == (500, pytest.approx(500 * 40 / 9))
    # With waves of 5 the wave has just ended: "at least", for the next would be a whole wave later.
    just = project(RAMP, LaunchSize(5, 40), parameters("paper"))
    assert (just.simulated_cycles, just.projected_cycles) == (400, pytest.approx(400 * 40 / 5))


def test_the_paper_rule_below_a_wave_needs_the_instructions() -> None:
    known = project(RAMP, LaunchSize(100, 40, 100_000), parameters("paper"))
    # Stable at sample 3 with 10,400 instructions; the window of two intervals has an IPC of 32.
    assert (known.simulated_cycles, known.projected_cycles) == (400, pytest.approx(400 + 89_600 / 32))
    unknown = project(RAMP, LaunchSize(100, 40), parameters("paper"), final_cycles=1017)
    assert (unknown.stop, unknown.projected_cycles) == (None, 1017)
    assert unknown.reason == make_note("small_grid_of_unknown_instructions")


def test_the_rule_by_instructions_by_hand() -> None:
    size = LaunchSize(6, 40, 100_000)
    found = project(RAMP, size, ProjectionParameters(window_cycles=200, s=5))
    # Stable from sample 3 on; 9 blocks at sample 4, 13,100 instructions, IPC of the window 28.
    assert found.rule == "instructions"
    assert (found.simulated_cycles, found.projected_cycles) == (500, pytest.approx(500 + 86_900 / 28))
    assert project(RAMP, LaunchSize(6, 40), ProjectionParameters(window_cycles=200, s=5)).rule == "paper"


def test_both_conditions_of_the_rule_by_instructions_hold_at_once() -> None:
    # Stable at sample 1 and from sample 6 on; a wave has finished from sample 3 on.
    series = made([20, 20, 60, 60, 20, 20, 32, 32, 32], [0, 0, 0, 9, 0, 0, 0, 0, 0])
    size = LaunchSize(8, 20, 1e6)
    assert project(series, size, parameters("instructions")).stop.sample_index == 6
    assert project(series, size, parameters("artifact")).stop.sample_index == 4


def test_metrics_go_on_as_the_cycles_do() -> None:
    misses = np.array([9, 9, 8, 6, 4, 1, 1, 1, 1, 1], np.float64)
    series = Series(RAMP.cycles, RAMP.instructions, RAMP.ctas, {"miss": (misses, np.full(10, 10.0))})
    so_far = project(series, LaunchSize(6, 40), parameters("paper")).metrics["miss"]
    assert so_far.projected == pytest.approx(36 / 50)
    assert so_far.over_all_samples == pytest.approx(41 / 100)
    found = project(series, LaunchSize(6, 40, 100_000), parameters("instructions"))
    more = (found.projected_cycles - 500) / 200  # windows that follow, with 10 misses in 20 accesses each
    assert found.metrics["miss"].projected == pytest.approx((36 + 10 * more) / (50 + 20 * more))
    none = project(series, LaunchSize(50, 400, 1e6), parameters("instructions")).metrics["miss"]
    assert none.projected == none.over_all_samples


@pytest.mark.parametrize(
    ("series", "size", "reason"),
    [
        (made([], []), LaunchSize(1, 1), "there is no sample"),
        (made([5], [1]), LaunchSize(1, 1), "of 1 samples 1 are in use, fewer than a window of 2"),
        (made([0, 0, 0], [0, 0, 0]), LaunchSize(1, 1, 10), "of 3 samples 0 are in use"),
        (made([1, 9, 90], [1, 1, 1]), LaunchSize(1, 9), "the IPC is never stable: its least spread is"),
        (RAMP, LaunchSize(36, 40, 1e6), "29 blocks have finished where it is stable, of 36 in a wave"),
        (RAMP, LaunchSize(32, 64), "29 blocks have finished, of 32 until the end of the wave in which"),
    ],
)
def test_without_a_stop_there_is_a_reason_and_no_projection(
    series: Series, size: LaunchSize, reason: str
) -> None:
    found = project(series, size, ProjectionParameters(window_cycles=200, s=5))
    assert found.stop is None
    assert found.reason is not None and found.reason.text.startswith(reason)
    assert found.projected_cycles == (series.cycles[-1] if len(series) else None)
    assert found.to_dict()["stop_cycles"] is None


def test_the_rule_by_instructions_needs_them_all() -> None:
    with pytest.raises(ParameterError, match="needs the launch's total"):
        project(RAMP, LaunchSize(6, 40), parameters("instructions"))
    with pytest.raises(RefusedError, match="13,100 thread instructions of 9,000"):
        project(RAMP, LaunchSize(6, 40, 9_000), parameters("instructions"))


def test_the_artifact_rule_takes_no_other_signal() -> None:
    with pytest.raises(ParameterError, match="neither signal nor spread"):
        project(RAMP, LaunchSize(6, 40), parameters("artifact", spread="absolute"))


@pytest.mark.parametrize("blocks", [(0, 5), (5, 0)])
def test_a_launch_has_blocks(blocks: tuple[int, int]) -> None:
    with pytest.raises(ParameterError, match="is not at least 1"):
        LaunchSize(*blocks)


@pytest.mark.parametrize(
    ("cycles", "instructions", "ctas", "cause"),
    [
        ([1, 1], [1, 2], [0, 0], "cycles of sample 2 are not above"),
        ([1, 2], [2, 1], [0, 0], "instructions of sample 2"),
        ([1, 2], [1, math.nan], [0, 0], "instructions of sample 2 are negative or not finite"),
        ([1, 2], [1, 2], [0, -1], "ctas of sample 2 are negative"),
        ([1, 2], [1, 2], [0], "column 'ctas' has the shape"),
    ],
)
def test_a_series_that_cannot_be_is_refused(
    cycles: list[float], instructions: list[float], ctas: list[float], cause: str
) -> None:
    with pytest.raises(RefusedError, match=cause):
        Series(*(np.array(x, np.float64) for x in (cycles, instructions, ctas)))


# An IPC so small that a quarter of it is 0 cannot be scaled; a launch of 1e6 cycles with one instruction can.
IPCS = st.just(0.0) | st.floats(1e-6, 1000)
SERIES = st.lists(st.tuples(IPCS, st.integers(0, 50)), min_size=1, max_size=60)


@given(samples=SERIES, rule=st.sampled_from(RULES), window=st.floats(100, 1500), s=st.floats(0.1, 60))
@settings(max_examples=200, deadline=None)
def test_no_rule_looks_ahead(samples: list[tuple[float, int]], rule: str, window: float, s: float) -> None:
    series = made([ipc for ipc, _ in samples], [ctas for _, ctas in samples])
    size = LaunchSize(64, 640, float(series.instructions[-1]) + 1e5)
    found = project(series, size, parameters(rule, window, s))
    online = Projector(size, parameters(rule, window, s))
    stops = [online.push(*row) for row in zip(series.cycles, series.instructions, series.ctas, strict=True)]
    if found.stop is None:
        assert stops[-1] is None
        return
    at = found.stop.sample_index
    assert [stop is not None for stop in stops] == [i >= at for i in range(len(stops))]
    shorter = Series(series.cycles[: at + 1], series.instructions[: at + 1], series.ctas[: at + 1])
    assert project(shorter, size, parameters(rule, window, s)).stop == found.stop
    assert found.projected_cycles >= found.simulated_cycles or rule != "instructions"


# Squares of an IPC below 1e-154 underflow, so that doubling it changes more than its scale.
MEASURABLE = st.lists(
    st.tuples(st.just(0.0) | st.floats(1e-100, 1000), st.integers(0, 50)), min_size=1, max_size=60
)


@given(samples=MEASURABLE, factor=st.sampled_from([2.0, 64.0, 0.25]), rule=st.sampled_from(RULES))
@settings(max_examples=100, deadline=None)
def test_a_larger_gpu_does_not_change_when_a_rule_stops(
    samples: list[tuple[float, int]], factor: float, rule: str
) -> None:
    ipc, ctas = [ipc for ipc, _ in samples], [float(c) for _, c in samples]
    one, other = made(ipc, ctas), made([factor * x for x in ipc], ctas)
    total = float(one.instructions[-1]) + 1e5
    found = project(one, LaunchSize(64, 640, total), parameters(rule, 400, 10))
    scaled = project(other, LaunchSize(64, 640, factor * total), parameters(rule, 400, 10))
    assert (found.stop is None) == (scaled.stop is None)
    if found.stop is not None:
        assert scaled.stop.sample_index == found.stop.sample_index
        assert scaled.projected_cycles == pytest.approx(found.projected_cycles, rel=1e-9)


@given(ipc=st.floats(1, 5000), latency=st.integers(0, 20), cycles=st.integers(3000, 100_000))
@settings(max_examples=60, deadline=None)
def test_a_launch_of_constant_ipc_is_projected_exactly(ipc: float, latency: int, cycles: int) -> None:
    idle = 500.0 * latency
    at = 500.0 * np.arange(1, 60)
    series = Series(at, ipc * np.maximum(at - idle, 0), np.full(59, 10.0))
    size = LaunchSize(20, 10_000, ipc * (30_000 + cycles - idle), idle)
    found = project(series, size, ProjectionParameters(rule="instructions"))
    assert found.projected_cycles == pytest.approx(30_000 + cycles, rel=1e-9)
    assert found.simulated_cycles == idle + 3000


@pytest.mark.shared_data
def test_the_artifact_rule_stops_and_projects_as_the_artifact(shared_data: Path) -> None:
    expected = json.loads((shared_data / "pkp" / "expected.json").read_text())
    assert len(expected) == 5
    for name, known in expected.items():
        series = read_series(shared_data / "pkp" / f"{name}.csv")
        size = LaunchSize(known["wave_ctas"], known["total_ctas"])
        found = project(series, size, ProjectionParameters(rule="artifact"))
        wanted = known["artifact_rule"]
        assert found.projected_cycles == pytest.approx(wanted["projected_cycles"], rel=1e-9)
        assert found.simulated_cycles == wanted["stop_cycles"]
        if name in ("exactly_one_wave", "too_short_4_samples"):
            assert found.stop is None and found.reason
        else:
            assert found.stop is not None
            assert found.stop.sample_index == wanted["stop_sample_index"]


@pytest.mark.shared_data
def test_the_other_rules_stop_where_the_expected_results_do(shared_data: Path) -> None:
    expected = json.loads((shared_data / "pkp" / "expected.json").read_text())
    for name in ("ramp_plateau_10waves_noise3pct", "bimodal_periodic"):
        known = expected[name]
        series = read_series(shared_data / "pkp" / f"{name}.csv")
        size = LaunchSize(known["wave_ctas"], known["total_ctas"], float(series.instructions[-1]))
        paper = project(series, size, ProjectionParameters(rule="paper"))
        wanted = known["other_rules"]["end_of_wave_of_stability"]
        assert (paper.simulated_cycles, paper.stop.finished_ctas) == (wanted["stop"], wanted["done"])
        assert paper.projected_cycles == pytest.approx(wanted["proj"], rel=1e-9)
        ours = project(series, size, ProjectionParameters(rule="instructions"))
        assert ours.simulated_cycles == known["other_rules"]["instruction_based"]["stop"]
    below = expected["shorter_than_wave_spread"]
    series = read_series(shared_data / "pkp" / "shorter_than_wave_spread.csv")
    size = LaunchSize(below["wave_ctas"], below["total_ctas"], float(series.instructions[-1]))
    found = project(series, size, ProjectionParameters(rule="instructions"))
    assert found.simulated_cycles == below["other_rules"]["subwave_instruction_based"]["stop"]
    assert found.projected_cycles == pytest.approx(below["true_cycles"], rel=0.015)


@pytest.mark.shared_data
def test_the_expected_series_are_those_of_the_files(shared_data: Path) -> None:
    path = shared_data / "pkp" / "bimodal_periodic.csv"
    with path.open() as file:
        rows = list(csv.DictReader(file))
    series = read_series(path)
    assert series.instructions.tolist() == [float(row["instructions"]) for row in rows]
