"""Light runs of programs that take longer than their limit, on a virtual GPU whose time is made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.places import virtual_places
from assay_agent.profilers.nsys.profiler import NsightSystemsMeasurement
from assay_agent.profilers.seam import Measurement
from assay_core.processes.tool_run import ToolResult
from assay_core.records.work import Work
from assay_sampling.running.failures import FailureClass
from tests.support.agent.tool_bench import SYSTEMS, WORKLOAD, Bench, failed

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    (place,) = virtual_places([VirtualGPUs("V100")], tmp_path_factory.mktemp("state"))
    folder = tmp_path_factory.mktemp("workloads")
    # Launches are 1 to 1.4 s apart: some ten minutes.
    slow = WORKLOAD.replace("repeat = 60", "repeat = 600")
    (folder / "long.toml").write_text(f"launch_interval_ns = 1_000_000_000\n{slow}")
    return Bench(place, folder)


def limited(bench: Bench, seconds: int, fault: str = "") -> Work:
    work = bench.work(SYSTEMS, fault)
    assert work.command is not None
    return replace(work, command=replace(work.command, argv=("long.toml",), light_limit_s=seconds))


def detail_of(measurement: Measurement) -> str:
    (flag,) = (flag for flag in measurement.flags if flag.name == "light_window")
    return flag.detail


def test_a_program_is_ended_at_the_limit_and_its_launches_until_then_are_named(bench: Bench) -> None:
    whole, _ = bench.measure(limited(bench, 0))
    window, measurement = bench.measure(limited(bench, 120))
    assert len(whole) == 600
    began = np.asarray(whole["start_ns"])
    assert 80 < len(window) < 121
    assert window["launch"].to_pylist() == list(range(len(window)))
    assert began[len(window) - 1] < 120e9 < began[len(window) + 1]
    wanted = f"launches 1 to {len(window)}, the first 120 s of the program, which was ended then"
    assert detail_of(measurement) == wanted
    assert "--duration=120 --kill=sigterm" in measurement.log.text


def test_a_program_that_ends_well_when_it_is_told_to_end_is_named_as_cut(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = NsightSystemsMeasurement._judge_limit

    def ended_well(profiler: NsightSystemsMeasurement, result: ToolResult, database: Path) -> None:
        real(profiler, replace(result, exit_code=0), database)

    monkeypatch.setattr(NsightSystemsMeasurement, "_judge_limit", ended_well)
    window, measurement = bench.measure(limited(bench, 120))
    assert detail_of(measurement).startswith(f"launches 1 to {len(window)}, the first 120 s")


def test_a_program_that_ends_before_its_limit_is_recorded_whole(bench: Bench) -> None:
    table, measurement = bench.measure(limited(bench, 3600))
    assert len(table) == 600
    assert not [flag for flag in measurement.flags if flag.name == "light_window"]


def test_a_program_that_fails_before_its_limit_fails(bench: Bench) -> None:
    error = failed(bench, limited(bench, 3600, "application_failed:7"))
    assert (error.failure_class, "exit status 7" in error.cause) == (FailureClass.APPLICATION_FAILED, True)


def test_launches_that_the_tool_lost_within_the_window_fail_the_run(bench: Bench) -> None:
    error = failed(bench, limited(bench, 120, "lost_events"))
    assert error.failure_class is FailureClass.DROPPED_EVENTS
