"""Simulations that were ended from outside, once a rule said so, come back as projected launches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.sampling.solver_traces import write_solver_traces

Assay = Callable[..., Any]


@pytest.fixture
def traces(shared_data: Path, tmp_path: Path) -> Path:
    """The trace of launch 1 of `solver`, as it was simulated."""
    return write_solver_traces(shared_data, tmp_path / "traces", only=1)


@pytest.fixture
def parts(shared_data: Path) -> Path:
    return shared_data / "accel_sim_parts"


def stopped(parts: Path) -> tuple[Path, Path]:
    return parts / "solver.10sm.stopped-1.out.gz", parts / "solver.10sm.stopped-1.visualizer.gz"


def test_project_reads_a_run_that_was_stopped(parts: Path, traces: Path, assay: Assay) -> None:
    log, intervals = stopped(parts)
    ended = assay("project", log, "--intervals", intervals, "--traces", traces, "--json")
    assert ended.code == 0, ended.stderr
    document = json.loads(ended.stdout)
    (launch,) = document["launches"]
    assert (launch["rule"], launch["stop_cycles"], round(launch["projected_cycles"])) == (
        "waves",
        50_500,
        53_809,
    )
    assert (launch["complete"], launch["true_cycles"]) == (False, None)
    assert launch["total_instructions"] == 1_837_432
    assert document["summary"]["stopped"] == document["summary"]["launches"] == 1
    assert round(document["summary"]["projected_cycles"]) == 53_809
    drawn = assay("project", log, "--intervals", intervals, "--traces", traces / "kernelslist.g")
    assert "1 of 1 launches" in drawn.stdout
    assert "53,809" in drawn.stdout


def test_import_takes_a_run_that_was_stopped(parts: Path, traces: Path, assay: Assay, tmp_path: Path) -> None:
    whole, selection = parts / "solver.10sm.out.gz", tmp_path / "first.json"
    made = assay("select", "systematic", whole, "-p", "launches=1", "-p", "start=0", "-o", selection)
    assert made.code == 0, made.stderr
    log, intervals = stopped(parts)
    given = ["import", "accel-sim", log, "--selection", selection, "--full", whole, "--intervals", intervals]
    lacking = assay(*given)
    assert lacking.code == 7
    assert "--traces" in lacking.stderr
    ended = assay(*given, "--traces", traces, "--json")
    assert ended.code == 0, ended.stderr
    document = json.loads(ended.stdout)
    (found,) = document["representatives"]
    assert (found["launch"], found["weight"], found["full_run_cycles"]) == (0, 16, 54_088)
    assert (found["cycles"], found["active_cycles"], found["cold_start_cycles"]) == (None, None, None)
    assert (found["stopped_cycles"], round(found["projected_cycles"])) == (50_500, 53_809)
    all_cycles = document["all_cycles"]
    assert (all_cycles["full_cycles"], all_cycles["pks_cycles"], all_cycles["pks_speedup"]) == (
        816_477,
        None,
        None,
    )
    assert all_cycles["pka_cycles"] == pytest.approx(16 * found["projected_cycles"])
    assert all_cycles["pka_speedup"] == pytest.approx(816_477 / 50_500)
    assert document["active_cycles"]["pka_speedup"] == pytest.approx((816_477 - 16 * 5_000) / 45_500)
    sampled, _ = document["logs"]
    assert (sampled["counted"], sampled["counted_ids"], sampled["ending"]) == (1, "1", "cut off")
    assert "stopped_launches_projected" in {each["code"] for each in sampled["notes"]}
    drawn = assay(*given, "--traces", traces / "kernel-1.traceg")
    assert drawn.code == 0, drawn.stderr
    assert "53,809" in drawn.stdout


def test_a_launch_that_no_rule_stops_does_not_count(
    parts: Path, traces: Path, assay: Assay, tmp_path: Path
) -> None:
    whole, selection = parts / "solver.10sm.out.gz", tmp_path / "first.json"
    made = assay("select", "systematic", whole, "-p", "launches=1", "-p", "start=0", "-o", selection)
    assert made.code == 0, made.stderr
    log, intervals = stopped(parts)
    ended = assay("import", "accel-sim", log, "--selection", selection, "--intervals", intervals,
                  "--traces", traces, "-p", "tolerance_percent=0.001")  # fmt: skip
    assert ended.code == 7
    assert "launch 1" in ended.stderr
