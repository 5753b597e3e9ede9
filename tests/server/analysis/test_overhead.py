"""What profilers add against bare runs, and runs that do not launch the same kernels; exact numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay_sampling.launches.table import Condition
from assay_server.analysis.runs.request import RunData
from tests.support.server.compared_runs import FREE, KERNELS, Lab, analysed
from tests.support.server.report_forms import render_html, render_markdown


@pytest.fixture
def lab(store_run: Any, counters: Any) -> Lab:
    return Lab(store_run, counters)


def bare(seconds: float, busy: float | None = None, repeat: int = 0) -> RunData:
    return RunData(
        f"c-1.b{repeat}", "training", "V100", "bare", live=True, repeat=repeat, executions=1,
        wall_seconds=seconds, busy_seconds=busy,
    )  # fmt: skip


def test_overheads_are_means_over_repeats_of_one_execution(lab: Lab) -> None:
    light = lab.light(FREE, executions=1, wall_seconds=3.0, busy_seconds=2.2)
    detailed = lab.detailed(FREE[:4], executions=2, wall_seconds=50.0)
    report = analysed(bare(2.0, 1.5), bare(3.0, 2.5, repeat=1), light, detailed)
    at_light, at_detailed = report["overhead"]
    assert (at_light["level"], at_light["bare_repeats"], at_light["executions"]) == ("light", 2, 1.0)
    assert (at_light["bare_wall_seconds"], at_light["wall_seconds"]) == (2.5, 3.0)
    assert at_light["overhead_percent"] == pytest.approx(20.0)
    assert at_light["busy_overhead_percent"] == pytest.approx(10.0)
    assert at_light["runs"] == ["c-1.b0", "c-1.b1", light.run_id]
    assert at_light["flags"] == []
    assert (at_detailed["level"], at_detailed["wall_seconds"]) == ("detailed", 25.0)
    assert at_detailed["overhead_percent"] == pytest.approx(900.0)
    assert at_detailed["busy_overhead_percent"] is None
    # A detailed run costs what it costs; only of a light one must a reader beware.
    assert at_detailed["flags"] == []
    assert [row["runs"] for row in report["rows"]] == [[light.run_id]]
    page = render_markdown(report)
    assert "Overhead of profilers" in page and "20.0" in page
    assert "Overhead of profilers" in render_html(report)


def test_a_light_run_that_takes_more_than_twice_as_long_is_flagged(lab: Lab) -> None:
    light = lab.light(FREE, executions=1, wall_seconds=4.1)
    [entry] = analysed(bare(2.0), light)["overhead"]
    [flag] = entry["flags"]
    assert (flag["name"], flag["run_id"], flag["invalidates"]) == (
        "profiler_overhead_high", light.run_id, False,
    )  # fmt: skip
    assert flag["detail"] == "105 % more wall time than the bare run"


def test_without_bare_runs_or_times_there_is_nothing_to_say(lab: Lab) -> None:
    assert "overhead" not in analysed(lab.light(FREE, executions=1, wall_seconds=4.1))
    assert "overhead" not in analysed(bare(2.0), lab.light(FREE))


def test_runs_that_launch_the_same_are_not_reported(lab: Lab) -> None:
    report = analysed(lab.light(FREE), lab.light(FREE, repeat=1), lab.detailed(FREE[:5]))
    assert "sequences" not in report


def test_another_kernel_in_a_repeat_is_the_autotuners_choice(lab: Lab) -> None:
    kernels = [*KERNELS]
    kernels[2], kernels[6] = "c", "c"
    first, again = lab.light(FREE), lab.light(FREE, kernels=kernels, repeat=1)
    [entry] = analysed(first, again)["sequences"]
    assert (entry["reference"], entry["run"], entry["differing"]) == (first.run_id, again.run_id, 2)
    found = entry["first_difference"]
    assert (found["process"], found["launch"]) == (0, 2)
    assert found["reference"].startswith("b [") and found["run"].startswith("c [")
    [flag] = entry["flags"]
    assert (flag["name"], flag["run_id"], flag["invalidates"]) == (
        "kernel_choice_differs", again.run_id, False,
    )  # fmt: skip
    assert "2 launches differ, the first is launch 2 of process 0: c [" in flag["detail"]


def test_another_number_of_launches_is_another_sequence(lab: Lab) -> None:
    first, again = lab.light(FREE), lab.light(FREE[:6], kernels=KERNELS[:6], repeat=1)
    [entry] = analysed(first, again)["sequences"]
    assert entry["flags"][0]["name"] == "sequence_differs"
    assert (entry["differing"], entry["first_difference"]["launch"]) == (2, 6)
    assert entry["first_difference"]["run"] == "nothing"


def test_a_window_is_compared_with_its_part_and_shares_are_not_compared(lab: Lab) -> None:
    half = Condition("none", "none", 50.0)
    others = ["z"] * 8
    light, shared = lab.light(FREE), lab.light(FREE, half, under_mps=True, kernels=others)
    detailed = lab.detailed(FREE[:3], kernels=["a", "x", "b"])
    report = analysed(light, shared, detailed)
    [entry] = report["sequences"]
    assert (entry["run"], entry["differing"]) == (detailed.run_id, 1)
    assert entry["flags"][0]["name"] == "kernel_choice_differs"
    assert "Launch sequences that differ" in render_markdown(report)


def test_other_shapes_count_and_a_process_more_does_too(lab: Lab) -> None:
    processes = np.array([0] * 8 + [1] * 8, np.int32)
    ordinals = np.tile(np.arange(8, dtype=np.int64), 2)
    first = lab.light(FREE)
    more = lab._store(
        "V100", "light", KERNELS * 2, duration_ns=FREE * 2, process=processes, launch=ordinals,
        run={"live": True, "repeat": 1},
    )  # fmt: skip
    [entry] = analysed(first, more)["sequences"]
    assert entry["differing"] == 8
    assert entry["first_difference"] | {"run": ""} == {
        "process": 1, "launch": 0, "reference": "nothing", "run": "",
    }  # fmt: skip


def test_an_overhead_that_rests_on_an_invalid_run_is_refused(lab: Lab) -> None:
    throttled = (("throttled_thermal", "3 of 3 samples", True),)
    report = analysed(bare(2.0), lab.light(FREE, executions=1, wall_seconds=3.0, flags=throttled))
    [entry] = report["overhead"]
    assert (entry["status"], entry["overhead_percent"]) == ("refused", None)
    assert "throttled_thermal" in entry["reason"]
    assert "refused" in render_markdown(report)
