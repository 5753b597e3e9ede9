"""``evaluate --intervals``: representatives whose simulations end where a rule stops."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Assay = Callable[..., Any]
# summary.csv: active cycles of the five launches of vecadd.base, 95,814 cycles - 5 x 5,000 of launch latency.
TOTAL = 70_814.0
# "assay project --rule waves" stops the fifth launch at cycle 30,500 of 47,164.
PROJECTED = 45_794.3228520959


@pytest.fixture
def logs(shared_data: Path) -> tuple[Path, Path]:
    folder = shared_data / "accel_sim"
    return folder / "vecadd.base.out.gz", folder / "vecadd.base.visualizer.gz"


@pytest.fixture
def selection(assay: Assay, logs: tuple[Path, Path], tmp_path: Path) -> Path:
    """The third and the fifth of five launches, 2.5 each."""
    path = tmp_path / "selection.json"
    ended = assay("select", "systematic", logs[0], "-p", "launches=2", "-p", "start=2", "-o", path)
    assert ended.code == 0, ended.stderr
    return path


def evaluated(assay: Assay, selection: Path, *arguments: object) -> dict[str, Any]:
    ended = assay("evaluate", selection, *arguments, "--json")
    assert ended.code == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_stopped_representative_costs_what_the_rule_projects(
    assay: Assay, logs: tuple[Path, Path], selection: Path
) -> None:
    log, intervals = logs
    document = evaluated(assay, selection, log, "--intervals", intervals, "--rule", "waves")
    whole = 2.5 * (5_765 + 42_164)
    assert (document["cost"]["total"], document["cost"]["projected"]) == (TOTAL, whole)
    found = document["stopped_early"]
    assert (found["rule"], found["representatives"], found["stopped"]) == ("waves", 2, 1)
    stopped = 2.5 * (5_765 + PROJECTED - 5_000)
    assert found["projected"] == pytest.approx(stopped)
    assert found["signed_error_percent"] == pytest.approx(100 * (stopped - TOTAL) / TOTAL)
    assert found["speedup"] == pytest.approx(TOTAL / (5_765 + 30_500 - 5_000))
    parts = found["decomposition"]
    # Each kernel and size has one launch: what is off is what its group has of other sizes.
    assert parts["representatives"] == 0.0
    assert parts["group_spread"] == pytest.approx(100 * (whole - TOTAL) / TOTAL)
    assert parts["projection_within_launches"] == pytest.approx(100 * 2.5 * (PROJECTED - 47_164) / TOTAL)
    assert parts["group_spread"] + parts["projection_within_launches"] == pytest.approx(
        found["signed_error_percent"]
    )
    # Nothing was measured with cold caches; the scores of whole simulations have no such part.
    assert parts["cold_start"] is None
    assert document["decomposition"]["projection_within_launches"] is None


def test_with_the_launch_latency_the_cost_is_of_all_cycles(
    assay: Assay, logs: tuple[Path, Path], selection: Path
) -> None:
    log, intervals = logs
    options = ("--intervals", intervals, "--rule", "waves")
    document = evaluated(assay, selection, log, "--cost", "cycles_simulated", *options)
    found = document["stopped_early"]
    assert found["projected"] == pytest.approx(2.5 * (10_765 + PROJECTED))
    assert found["speedup"] == pytest.approx(95_814 / (10_765 + 30_500))


def test_a_rule_that_does_not_stop_adds_nothing(
    assay: Assay, logs: tuple[Path, Path], selection: Path
) -> None:
    document = evaluated(assay, selection, logs[0], "--intervals", logs[1], "-p", "tolerance_percent=1")
    found = document["stopped_early"]
    assert (found["stopped"], found["projected"]) == (0, document["cost"]["projected"])
    assert found["decomposition"]["projection_within_launches"] == 0.0
    assert found["decomposition"]["group_spread"] == pytest.approx(document["signed_error_percent"])


def test_the_terminal_shows_the_parts(assay: Assay, logs: tuple[Path, Path], selection: Path) -> None:
    log, intervals = logs
    ended = assay("evaluate", selection, log, "--intervals", intervals)
    assert "the default rule stops 1 of 2 representatives" in ended.stdout
    assert (
        "representatives 0.00, group spread +69.21, projection within launches -4.84 points" in ended.stdout
    )


def test_options_that_do_not_fit_are_refused(
    assay: Assay, logs: tuple[Path, Path], selection: Path, shared_data: Path
) -> None:
    log, intervals = logs
    other = shared_data / "accel_sim" / "fma.base.visualizer.gz"
    for arguments, code, said in (
        ((log, "--rule", "waves"), 2, "--rule: it belongs to --intervals"),
        ((log, log, "--intervals", intervals), 2, "--intervals: 2 recordings are given"),
        ((log, "--intervals", intervals, "-p", "total_ctas=8"), 2, "holds it for every launch"),
        ((log, "--intervals", intervals, "--rule", "none"), 2, "parameter 'rule'"),
        ((log, "--intervals", other), 3, "it is not of the same run"),
    ):
        ended = assay("evaluate", selection, *arguments)
        assert (ended.code, said in ended.stderr) == (code, True), ended.stderr


def test_two_recordings_have_both_weights_and_intervals(
    assay: Assay, shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "accel_sim"
    here, there = folder / "mix20.base.out.gz", folder / "mix20.flushL1L2.out.gz"
    path = tmp_path / "drawn.json"
    assay("select", "random", here, "-p", "launches=5", "-o", path)
    both = evaluated(assay, path, here, there)
    alone = [evaluated(assay, path, each) for each in (here, there)]
    for which, one in zip(("first", "second"), alone, strict=True):
        assert both[which]["by_weights"] == one["by_weights"]
        assert set(one["by_weights"]) == {"launches", "light_time"}
    for kind, score in both["by_weights"].items():
        first, second = (both[which]["by_weights"][kind]["projected"] for which in ("first", "second"))
        assert score["speedup_predicted"] == pytest.approx(first / second)
    assert both["by_weights"][both["first"]["weights"]]["speedup_predicted"] == both["speedup_predicted"]
    shown = assay("evaluate", path, here, there).stdout
    for said in ("weights  ", "weights, first", "weights, second", "interval, first", "interval, second"):
        assert said in shown
