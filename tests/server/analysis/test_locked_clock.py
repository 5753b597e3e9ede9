"""Runs under a locked clock beside those under free ones; cycles that replaying has disturbed are flagged."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from assay_client.cli.reporters.report import render_report
from assay_report.reading import read_report
from assay_report.tables.remarks import remarks
from assay_sampling.launches.table import BASELINE, Condition
from assay_server.analysis.runs.request import RunData
from tests.support.server.compared_runs import (
    AT_ALL,
    AT_HALF,
    FREE,
    KERNELS,
    Counters,
    Lab,
    StoreRun,
    analysed,
)
from tests.support.server.report_forms import render_html, render_markdown

BASE = Condition("none", "base", 100.0)
SLOWER = [12, 24, 36, 48, 60, 72, 84, 96]
CYCLES, FEWER = [1000.0] * 8, [900.0] * 8


@pytest.fixture
def lab(store_run: StoreRun, counters: Counters) -> Lab:
    return Lab(store_run, counters)


def window(
    store_run: StoreRun, cycles: list[float], nanoseconds: float, condition: Condition = BASELINE, **run: Any
) -> RunData:
    """The window in one pass."""
    return store_run(
        "V100", "detailed", KERNELS, cycles_gpc_avg=cycles, instructions=[5.0] * 8,
        profiled_duration_ns=np.full(8, nanoseconds), metadata={"condition": condition},
        run={"live": True, "condition": condition, "costs_only": True, **run},
    )  # fmt: skip


def both_levels(lab: Lab, store_run: StoreRun) -> list[RunData]:
    return [
        window(store_run, CYCLES, 800.0), lab.light(FREE), window(store_run, FEWER, 900.0, BASE),
        lab.light(SLOWER, BASE),
    ]  # fmt: skip


def test_times_and_cycles_stand_beside_the_free_ones(lab: Lab, store_run: StoreRun) -> None:
    runs = both_levels(lab, store_run)
    report = analysed(*runs)
    [entry] = report["locked_clock"]
    assert (entry["status"], entry["condition"], entry["clock_locked"]) == ("ok", BASE.to_dict(), True)
    assert (entry["launches"], entry["window_launches"]) == (8, 8)
    assert (entry["duration_ns"], entry["duration_ns_free"]) == (432.0, 360.0)
    assert entry["duration_ratio"] == pytest.approx(1.2)
    assert (entry["quantity"], entry["cycles"], entry["cycles_free"]) == ("cycles_gpc_avg", 7200.0, 8000.0)
    assert entry["cycles_ratio"] == pytest.approx(0.9)
    assert (entry["clock_mhz"], entry["clock_mhz_free"]) == (pytest.approx(1000.0), pytest.approx(1250.0))
    assert entry["match"]["percent"] == 100.0
    assert set(entry["runs"]) == {run.run_id for run in runs}
    # Selections are scored under free clocks alone.
    assert {row["condition"]["clock"] for row in report["rows"]} == {"none"}


def test_a_lock_that_was_refused_is_said_and_the_numbers_are_kept(lab: Lab, store_run: StoreRun) -> None:
    refused = (("clock_unlocked", "the agent's user may not", False),)
    runs = both_levels(lab, store_run)
    report = analysed(*runs[:3], replace(runs[3], flags=refused))
    [entry] = report["locked_clock"]
    assert (entry["status"], entry["clock_locked"]) == ("ok", False)
    assert entry["duration_ratio"] == pytest.approx(1.2)
    assert [flag["name"] for flag in entry["flags"]] == ["clock_unlocked"]


def test_one_level_is_enough_and_what_the_other_lacks_is_said(lab: Lab, store_run: StoreRun) -> None:
    free, light, _, locked_light = both_levels(lab, store_run)
    [entry] = analysed(free, light, locked_light)["locked_clock"]
    assert (entry["status"], entry["duration_ratio"], entry["cycles_ratio"]) == (
        "ok",
        pytest.approx(1.2),
        None,
    )
    [note] = entry["notes"]
    assert (note["code"], note["level"]) == ("level_not_compared", "detailed")
    assert note["cause"] == note["text"] == "no detailed run under this clock has data"
    [entry] = analysed(locked_light)["locked_clock"]
    assert entry["status"] == "refused"
    assert "no light run with free clocks has data" in entry["reason"]


def test_other_launches_are_not_compared(lab: Lab) -> None:
    other = lab.light(SLOWER, BASE, kernels=["x"] * 8)
    [entry] = analysed(lab.light(FREE), other)["locked_clock"]
    assert entry["status"] != "ok"


def test_shares_and_flushed_caches_under_a_lock_are_compared_under_the_same_lock(
    lab: Lab, store_run: StoreRun
) -> None:
    half, flushed = replace(BASE, sm_percent=50.0), replace(BASE, cache="all")
    report = analysed(
        lab.light(FREE), lab.light(AT_HALF, half, under_mps=True), lab.light(AT_ALL, BASE, under_mps=True),
        window(store_run, CYCLES, 800.0), window(store_run, [1800.0] * 8, 900.0, flushed),
        window(store_run, FEWER, 900.0, BASE),
    )  # fmt: skip
    [share] = report["sm_share"]
    assert (share["speedup_true"], share["clocks_locked"]) == (660 / 368, True)
    [cold] = report["cold_start"]
    assert cold["weighted_difference_percent"] == pytest.approx(100.0)
    console = Console(width=200, record=True)
    render_report(read_report(report), console)
    shown = console.export_text()
    assert "SM shares, condition cache=none clock=base sm=50%" in shown
    assert "Flushed caches, condition cache=all clock=base sm=100%" in shown


def test_every_page_shows_it_and_every_key_is_documented(lab: Lab, store_run: StoreRun) -> None:
    report = analysed(*both_levels(lab, store_run)[:2], *both_levels(lab, store_run)[2:])
    console = Console(width=200, record=True)
    render_report(read_report(report), console)
    shown = console.export_text()
    for page in (render_html(report), render_markdown(report), shown):
        assert "Locked clocks" in page
        assert "1.20" in page and "0.90" in page
        assert "1,250" in page
    page = (Path(__file__).parents[3] / "docs" / "report-format.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    assert set(report["locked_clock"][0]) | {"locked_clock"} <= named
    plain = analysed(lab.light(FREE))
    assert "Locked clocks" not in render_html(plain)
    one = analysed(*both_levels(lab, store_run)[:2], lab.light(SLOWER, BASE))
    assert "training on V100, locked clock: no detailed run under this clock has data" in remarks(
        read_report(one)
    )


def test_warm_cycles_of_several_passes_are_flagged_beside_flushed_ones(
    lab: Lab, store_run: StoreRun, counters: Counters
) -> None:
    flushed = window(store_run, [1500.0] * 8, 900.0, Condition("all", "none", 100.0))
    several = store_run(
        "V100", "detailed", KERNELS, cycles_gpc_avg=CYCLES, replay_passes=[3.0] * 8,
        **counters([5.0] * 8),
        run={"live": True},
    )  # fmt: skip
    [entry] = analysed(lab.light(FREE), several, flushed)["cold_start"]
    assert entry["status"] == "ok"
    assert [(flag["run_id"], flag["name"]) for flag in entry["flags"]] == [
        (several.run_id, "cycles_of_several_passes")
    ]
    assert "took 3 passes" in entry["flags"][0]["detail"]
    # With their cycles from a run in one pass there is nothing to flag.
    joined = replace(several, cycles=window(store_run, CYCLES, 800.0))
    [entry] = analysed(lab.light(FREE), joined, flushed)["cold_start"]
    assert entry["flags"] == []


def test_launches_are_matched_and_not_paired_by_their_places(lab: Lab) -> None:
    """One launch more at the beginning of the locked run: it is left out, and every other meets its own."""
    free = list(range(1, 301))
    report = analysed(
        lab.light(free, kernels=["a", "b", "c"] * 100),
        lab.light([9_000, *(2 * ns for ns in free)], BASE, kernels=["x", *["a", "b", "c"] * 100]),
    )
    [entry] = report["locked_clock"]
    assert (entry["status"], entry["launches"]) == ("ok", 300)
    assert (entry["duration_ns"], entry["duration_ns_free"]) == (2.0 * sum(free), float(sum(free)))
