"""The rule ``waves`` worked out by hand, what holds for it always, and which rules would stop a launch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.notes.registry import make_note
from assay_sampling.projection.projector import LaunchSize, ProjectionParameters, Projector, Series, project
from assay_sampling.projection.would_stop import rules_that_would_stop

WAVE = 10


def made(ipc: list[float], ctas: list[float], interval: float = 100.0, idle: float = 0.0) -> Series:
    """A series from the IPC and the completed blocks of each interval, after idle cycles."""
    cycles = idle + interval * np.arange(1, len(ipc) + 1)
    return Series(cycles, np.cumsum(np.array(ipc) * interval), np.array(ctas, np.float64))


def waves(tolerance: float = 10.0) -> ProjectionParameters:
    return ProjectionParameters(rule="waves", tolerance_percent=tolerance)


def sized(total_ctas: int, instructions: float, latency: float | None = None) -> LaunchSize:
    """A launch whose slots are full to its end."""
    return LaunchSize(WAVE, total_ctas, instructions, latency, end_share=0.0)


# A wave an interval at an IPC of 50: 500 instructions a block, 100 blocks in 1,000 cycles.
STEADY = made([50] * 10, [WAVE] * 10)


def test_the_last_three_of_four_waves_are_projected() -> None:
    found = project(STEADY, sized(100, 50_000), waves())
    assert found.stop is not None
    assert (found.stop.sample_index, found.stop.finished_ctas, found.stop.window_samples) == (3, 40, 3)
    assert found.projected_cycles == pytest.approx(1000, rel=1e-12)


def test_the_first_half_wave_does_not_count() -> None:
    cold = made([5, 5, 5, 5, *[50] * 8], [0, 0, 0, 5, *[10] * 8])
    found = project(cold, sized(105, 2000 + 100 * 500), waves())
    # At 35 blocks; the window of 30 took 300 cycles, and 70 are left.
    assert (found.simulated_cycles, found.projected_cycles) == (700, pytest.approx(1400))


def test_the_projection_is_by_instructions_where_blocks_agree() -> None:
    # By blocks 400 + 60 x 10 cycles, by instructions 400 + 40,000 / 50: 20 % apart.
    size = sized(100, 60_000)
    assert project(STEADY, size, waves(21)).projected_cycles == pytest.approx(1200)
    never = project(STEADY, size, waves(19))
    assert never.stop is None
    assert never.reason is not None and never.reason.code == "waves_disagree"
    assert dict(never.reason.parameters)["least_disagreement"] == pytest.approx(20)


def test_the_end_takes_a_fifth_of_the_last_wave_longer_or_what_the_trace_says() -> None:
    # The last tenth of 50,000 instructions at an IPC of 50: 100 cycles.
    assert project(STEADY, LaunchSize(WAVE, 100, 50_000), waves()).projected_cycles == pytest.approx(1020)
    traced = LaunchSize(WAVE, 100, 50_000, end_share=0.3)
    assert project(STEADY, traced, waves()).projected_cycles == pytest.approx(1300)


def test_the_ipc_of_the_two_halves_of_the_window_must_agree() -> None:
    # Blocks of 500 instructions, 38 of them at sample 3, 62 at sample 6. There the halves of the window have
    # an IPC of 50 and 45, then of 40 both; between them they are 25 and 12.5 % apart.
    drifting = made([50, 50, 50, *[40] * 7], [10, 10, 10, *[8] * 7])
    found = project(drifting, sized(100, 50_000), waves())
    assert found.stop is not None
    assert found.stop.sample_index == 6
    assert project(drifting, sized(100, 50_000), waves(12)).stop.sample_index == 3


def test_each_half_of_the_window_has_a_wave_and_a_half() -> None:
    # Half a wave a sample. At sample 6 the halves have an IPC of 50 and 40, at sample 7 of 46.7 and 40.
    slower = made([50, 50, 50, 50, *[40] * 16], [5] * 20)
    found = project(slower, sized(100, 90_500), waves(20))
    assert found.stop is not None and found.stop.sample_index == 7
    assert project(slower, sized(100, 90_500), waves(26)).stop.sample_index == 6


def test_a_phase_whose_blocks_execute_other_instructions_is_seen_coming() -> None:
    # 20 waves of 500 instructions a block, then 20 of 100 that take four times as long.
    ipc, ctas = [50.0] * 20 + [2.5] * 80, [10.0] * 20 + [2.5] * 80
    series, size = made(ipc, ctas), sized(400, 20 * 5000 + 20 * 1000)
    true = 100.0 * 100
    found = project(series, size, waves())
    assert found.stop is not None and found.stop.cycles > 2000
    assert found.projected_cycles == pytest.approx(true, rel=0.05)
    before = project(series, size, ProjectionParameters(rule="instructions", window_cycles=300, s=3))
    assert before.projected_cycles < 0.3 * true


def test_a_phase_with_the_same_instructions_a_block_is_not_seen() -> None:
    series = made([50] * 20 + [5] * 100, [10] * 20 + [1] * 100)
    found = project(series, sized(300, 300 * 500), waves())
    assert found.simulated_cycles == 400
    assert found.projected_cycles == pytest.approx(3000)  # of 12,000: the limit that the docs state


def test_blocks_that_end_together_do_not_mislead() -> None:
    lockstep = made([50] * 40, [0, 0, 0, 10] * 10)
    found = project(lockstep, sized(100, 40 * 5000), waves())
    assert (found.simulated_cycles, found.projected_cycles) == (1600, pytest.approx(4000))


def test_waves_shorter_than_a_sample_are_taken_together() -> None:
    quick = made([50] * 10, [25] * 10)
    found = project(quick, sized(250, 50_000), waves())
    assert (found.simulated_cycles, found.projected_cycles) == (300, pytest.approx(1000))


@pytest.mark.parametrize(
    ("series", "size", "note"),
    [
        (made([], []), LaunchSize(WAVE, 100, 1e5), make_note("no_sample")),
        (STEADY, LaunchSize(WAVE, 34, 1e5), make_note("too_few_waves", blocks=34, wave_blocks=10, least=3.5)),
        (made([50] * 3, [5] * 3), LaunchSize(WAVE, 40, 1e5), make_note("no_sample_after_waves", least=3.5)),
        # All blocks have finished where the fourth wave ends: nothing is left to project.
        (STEADY, LaunchSize(WAVE, 40, 1e5), make_note("no_sample_after_waves", least=3.5)),
        (
            made([50, 0, 0, 0], [10] * 4),
            LaunchSize(WAVE, 99, 1e5),
            make_note("no_sample_after_waves", least=3.5),
        ),
    ],
)
def test_why_it_does_not_stop(series: Series, size: LaunchSize, note: object) -> None:
    found = project(series, size, waves())
    assert (found.stop, found.reason) == (None, note)


def test_it_needs_the_instructions_and_no_other_rule_knows_its_tolerance() -> None:
    with pytest.raises(ParameterError, match="'waves' needs the launch's total"):
        project(STEADY, LaunchSize(WAVE, 100), waves())
    with pytest.raises(RefusedError, match="10,000 thread instructions of 9,000"):
        project(STEADY, LaunchSize(WAVE, 100, 9000), waves())
    with pytest.raises(ParameterError, match="'waves' does not know it"):
        project(STEADY, LaunchSize(WAVE, 100, 50_000), ProjectionParameters(rule="waves", s=3))
    with pytest.raises(ParameterError, match="'paper' does not know it"):
        project(STEADY, LaunchSize(WAVE, 100), ProjectionParameters(rule="paper", tolerance_percent=3))


def test_it_is_the_default_unless_parameters_of_other_rules_are_given() -> None:
    known, unknown = LaunchSize(WAVE, 100, 50_000), LaunchSize(WAVE, 100)
    assert project(STEADY, known).rule == "waves"
    assert project(STEADY, known, ProjectionParameters(tolerance_percent=3)).rule == "waves"
    assert project(STEADY, known, ProjectionParameters(s=3)).rule == "instructions"
    assert project(STEADY, known, ProjectionParameters(window_cycles=1500)).rule == "instructions"
    assert project(STEADY, unknown).rule == "paper"


@pytest.mark.parametrize("known", [True, False])
def test_the_launch_latency_does_not_hide_a_disagreement(known: bool) -> None:
    late = made([0] * 50 + [50] * 10, [0] * 50 + [WAVE] * 10)
    size = sized(100, 60_000, 5000.0 if known else None)
    assert project(late, size, waves(19)).stop is None  # of 6,000 and 6,200 cycles it would be 3 %
    assert project(late, size, waves(21)).projected_cycles == pytest.approx(5000 + 1200)


# Half of the series vary so little that the rule often stops.
SAMPLES = st.lists(st.tuples(st.floats(1, 1000), st.integers(0, 30)), min_size=1, max_size=60) | st.lists(
    st.tuples(st.floats(45, 55), st.integers(7, 9)), min_size=12, max_size=60
)


@given(samples=SAMPLES, tolerance=st.floats(1, 300))
@settings(max_examples=200, deadline=None)
def test_it_never_looks_ahead_and_projects_its_window_by_instructions(
    samples: list[tuple[float, int]], tolerance: float
) -> None:
    series = made([ipc for ipc, _ in samples], [ctas for _, ctas in samples])
    size = LaunchSize(32, 640, float(series.instructions[-1]) + 1e5)
    found = project(series, size, waves(tolerance))
    online = Projector(size, waves(tolerance))
    stops = [online.push(*row) for row in zip(series.cycles, series.instructions, series.ctas, strict=True)]
    if found.stop is None:
        assert stops[-1] is None
        return
    at = found.stop.sample_index
    assert [stop is not None for stop in stops] == [i >= at for i in range(len(stops))]
    first = at - found.stop.window_samples
    done = np.cumsum(series.ctas)
    assert done[at] >= 3.5 * 32 and done[at] - done[first] >= 32
    window = series.cycles[at] - series.cycles[first]
    ipc = (series.instructions[at] - series.instructions[first]) / window
    rest = (size.total_instructions - series.instructions[at]) / ipc
    end = 0.2 * 32 / 640 * size.total_instructions / ipc
    assert found.projected_cycles == pytest.approx(found.simulated_cycles + rest + end, rel=1e-9)


@given(samples=SAMPLES, latency=st.integers(1, 80), known=st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_launch_latency_moves_stop_and_projection_and_nothing_else(
    samples: list[tuple[float, int]], latency: int, known: bool
) -> None:
    ipc, ctas = [ipc for ipc, _ in samples], [float(ctas) for _, ctas in samples]
    idle = 100.0 * latency
    plain, late = made(ipc, ctas), made([0.0] * latency + ipc, [0.0] * latency + ctas)
    total = max(640 / 8 * 5000, float(plain.instructions[-1]) + 1)
    without = project(plain, LaunchSize(32, 640, total, 0.0), waves(20))
    size = LaunchSize(32, 640, total, idle if known else None)
    found = project(late, size, waves(20))
    assert (found.stop is None) == (without.stop is None)
    if found.stop is not None:
        assert found.stop.sample_index == without.stop.sample_index + latency
        assert found.projected_cycles == pytest.approx(without.projected_cycles + idle, rel=1e-9)


@given(samples=SAMPLES, s=st.floats(0.01, 5), tolerance=st.floats(0.01, 20), total_known=st.booleans())
@settings(max_examples=150, deadline=None)
def test_rules_that_would_stop_do_so_at_the_value_named_and_not_below(
    samples: list[tuple[float, int]], s: float, tolerance: float, total_known: bool
) -> None:
    series = made([ipc for ipc, _ in samples], [ctas for _, ctas in samples])
    total = float(series.instructions[-1]) + 1e5 if total_known else None
    size = LaunchSize(32, 640, total)
    asked = ProjectionParameters(window_cycles=300, s=s, tolerance_percent=tolerance)
    named = {each.rule: each for each in rules_that_would_stop(series, size, asked)}
    for rule in ("waves", "instructions", "paper", "artifact"):
        if rule in ("waves", "instructions") and not total_known:
            assert rule not in named
            continue
        parameter = "tolerance_percent" if rule == "waves" else "s"
        given_value = getattr(asked, parameter)

        def at(value: float, rule: str = rule, parameter: str = parameter) -> float | None:
            more = {} if rule == "waves" else {"window_cycles": 300}
            chosen = ProjectionParameters.model_validate({"rule": rule, parameter: value, **more})
            stop = project(series, size, chosen).stop
            return None if stop is None else stop.cycles

        if rule not in named:
            assert at(1e12) is None
            continue
        found = named[rule]
        assert found.parameter == parameter and found.value >= given_value
        assert at(found.value) == found.stop_cycles
        if found.value > given_value:
            assert at(0.989 * found.value) is None


def test_what_would_stop_is_named_in_their_order_with_errors_where_the_truth_is_known() -> None:
    size = LaunchSize(WAVE, 100, 60_000)
    asked = ProjectionParameters(window_cycles=200)
    found = rules_that_would_stop(STEADY, size, asked)
    # Constant IPC: the settling rules stop as given; the two estimates of `waves` are 20 % apart.
    assert [(each.rule, each.parameter, each.value) for each in found] == [
        ("waves", "tolerance_percent", pytest.approx(20, abs=0.11)),
        ("instructions", "s", 0.25),
        ("paper", "s", 0.25),
        ("artifact", "s", 0.25),
    ]
    instructions = found[1].to_dict(1250.0, 250.0)
    assert instructions["projected_cycles"] == pytest.approx(1200)
    assert instructions["signed_error_percent"] == pytest.approx(-4)
    assert instructions["active_error_percent"] == pytest.approx(-5)
    assert found[1].to_dict(None, 0.0)["signed_error_percent"] is None
