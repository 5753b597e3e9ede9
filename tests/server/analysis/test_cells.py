from __future__ import annotations

from dataclasses import replace

import pytest

from assay_sampling.errors import RefusedError
from assay_sampling.launches.table import Condition
from assay_sampling.notes.registry import make_note
from assay_server.analysis.rows import cells_of, refuse_invalid, refuse_mixed_marks
from assay_server.analysis.runs.request import AnalysisRequest, RunData

HALF = Condition("none", "none", 50.0)


def run(run_id: str, device: str = "V100", level: str = "light", **changes: object) -> RunData:
    base = RunData(run_id, "training", device, level)  # type: ignore[arg-type]
    return replace(base, **changes)  # type: ignore[arg-type]


def test_cells_keep_the_order_of_the_campaign() -> None:
    runs = [
        run("0", "V100", "detailed"),
        run("1", "V100", "light"),
        run("2", "A100", "light", workload="inference"),
        run("3", "A100", "light"),
        run("4", "V100", "light", condition=HALF),
    ]
    cells = cells_of([run for run in runs if run.workload == "training"])
    assert [(c.device_kind, c.condition.sm_percent) for c in cells] == [
        ("V100", 100.0), ("A100", 100.0), ("V100", 50.0),
    ]  # fmt: skip
    assert cells[0].detailed is runs[0]
    assert cells[0].whole is runs[1]
    assert cells[0].runs_of("pks", {}) == (runs[0], runs[1])
    assert cells[0].runs_of("random", {}) == (runs[1],)
    assert cells[0].runs_of("random", {"estimator": "ratio"}) == (runs[0], runs[1])
    assert cells[2].runs_of("pks", {}) == (runs[4],)


def test_detailed_alone_is_the_whole() -> None:
    (cell,) = cells_of([run("0", level="detailed")])
    assert cell.whole.run_id == "0"
    assert cell.runs_of("systematic", {}) == (cell.detailed,)


def test_the_first_repeat_counts_and_the_report_says_so() -> None:
    runs = [run("b", repeat=1), run("a", repeat=0), run("c", repeat=2)]
    (cell,) = cells_of(runs)
    assert cell.whole.run_id == "a"
    assert cell.notes == (make_note("repeats_unused", repeats=3, level="light", first_run="a"),)


@pytest.mark.parametrize("synthetic", [True, False])
def test_marks_never_mix(synthetic: bool) -> None:
    request = AnalysisRequest(
        "c-1",
        "c",
        synthetic=synthetic,
        runs=(run("0", synthetic=synthetic), run("1", synthetic=not synthetic)),
    )
    with pytest.raises(RefusedError, match=r"campaign c-1: it is \w+, but its run 1 is (measured|synthetic)"):
        refuse_mixed_marks(request)
    refuse_mixed_marks(replace(request, runs=request.runs[:1]))


def test_only_invalidating_flags_refuse_and_are_named() -> None:
    refuse_invalid([run("0", flags=(("units_assumed", "", False),))])
    with pytest.raises(RefusedError, match=r"run 1: it carries the flag 'throttled' \(8 % of the time\)"):
        refuse_invalid([run("0"), run("1", flags=(("throttled", "8 % of the time", True),))])
