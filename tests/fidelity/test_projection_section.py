"""The section on projection: its split, its goal, and what the default rule keeps on real simulator runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_sampling.projection.projector import ProjectionParameters
from assay_sampling.projection.summary import summary_of
from assay_sampling.simulators.accel_sim.launch_traces import launch_work
from tests.fidelity import projection
from tests.fidelity.kernel_families import FAMILIES, FAMILY_OF_KERNEL, Half
from tests.fidelity.recorded_families import RUNS, recorded_launches, write_traces
from tests.fidelity.section import Effort


def test_families_are_never_divided_between_the_halves() -> None:
    choosing, reporting = set(FAMILIES[Half.CHOOSING]), set(FAMILIES[Half.REPORTING])
    assert choosing.isdisjoint(reporting)
    assert choosing | reporting == {*FAMILY_OF_KERNEL.values(), *(run.family for run in RUNS.values())}


def test_a_goal_that_is_missed_is_named() -> None:
    score = {"saved_percent": 35.0, "mean_error_percent": 3.0, "mean_active_error_percent": 3.0}
    assert projection.missed(score) == []
    assert projection.missed({**score, "saved_percent": 34.9}) == ["the default saves 34.9 % of the cycles"]
    assert len(projection.missed({**score, "mean_active_error_percent": 3.1})) == 1


@pytest.mark.shared_data
def test_the_traces_of_recorded_families_are_the_same_each_time(shared_data: Path, tmp_path: Path) -> None:
    first, again = (write_traces(shared_data, "spmv", tmp_path / name, [1]) for name in "ab")
    assert [path.name for path in first] == ["kernel-1.traceg"]
    assert first[0].read_bytes() == again[0].read_bytes()
    launch = next(each for each in recorded_launches() if (each.run, each.number) == ("spmv", 1))
    work = launch_work(first[0])
    assert (work.thread_instructions, len(work.block_warps)) == (launch.instructions, launch.total_ctas)


@pytest.mark.shared_data
def test_the_default_keeps_its_goal_on_families_that_nothing_was_chosen_on(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_SHARED_DATA", str(shared_data))
    section = projection.section(Effort.SHORT)
    assert section.missed == []
    assert "mean error" in section.markdown()
    launches = projection.projections(shared_data, ProjectionParameters())
    score = summary_of(projection.of_half(launches, Half.REPORTING))
    assert (score["launches"], score["stopped"]) == (32, 17)
    assert score["saved_percent"] == pytest.approx(46.7, abs=0.05)
    assert score["mean_error_percent"] == pytest.approx(2.5, abs=0.05)
    assert score["largest_error_percent"] == pytest.approx(10.5, abs=0.05)
    chosen_on = summary_of(projection.of_half(launches, Half.CHOOSING))
    assert (chosen_on["launches"], chosen_on["stopped"]) == (112, 39)
    assert chosen_on["mean_active_error_percent"] == pytest.approx(2.4, abs=0.05)
    # Traces matter where blocks are uneven: without them these are half as far off again.
    untraced = projection.projections(shared_data, ProjectionParameters(), traced=False)
    without = summary_of(projection.of_half(untraced, Half.REPORTING))
    assert without["stopped"] == score["stopped"]
    assert without["mean_error_percent"] == pytest.approx(3.5, abs=0.05)
