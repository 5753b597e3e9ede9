from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_core.files.launch_file import new_launch_file
from assay_core.records.campaign import RunState
from assay_core.records.failure import Failure
from assay_report.model.report import Report
from assay_report.tables.scores import weights_table
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.launches.table import BASELINE, Condition, Device
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import open_recording
from assay_server.analysis import pipeline
from assay_server.analysis import run_memory as memory
from assay_server.analysis import workload as workload_module
from assay_server.analysis.runs.request import AnalysisRequest, FailedRun, RunData
from tests.support.sampling.published import PUBLISHED_PKS
from tests.support.server.report_forms import render_html, render_markdown


def analyse(asked: AnalysisRequest) -> dict[str, Any]:
    """The report as scripts have it."""
    return pipeline.analyse(asked).to_document()


StoreRun = Callable[..., RunData]
Counters = Callable[[Sequence[float]], dict[str, np.ndarray]]

# Two kernels: six launches of "a", two of "b"; the last "a" and all of "b" differ in cost.
KERNELS = ["a", "a", "b", "a", "a", "b", "a", "a"]
# The whole workload after a window of its first 40 launches, which does not know "new" yet.
WHOLE = [*(["a", "a", "b", "a", "b"] * 20)[:98], "new", "new"]
PKS = (("pks", {}),)
SYSTEMATIC = (("systematic", {"launches": 4, "start": 0}),)


def request(*runs: RunData, methods: Any = SYSTEMATIC, **changes: Any) -> AnalysisRequest:
    return replace(AnalysisRequest("c-1", "c", methods=methods, runs=runs), **changes)


def rows_of(report: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["device"], row["method"]): row for row in report["rows"]}


def test_one_light_run_scored_exactly(store_run: StoreRun) -> None:
    run = store_run("V100", "light", KERNELS, duration_ns=[10, 20, 30, 40, 50, 60, 70, 80])
    report = analyse(request(run))
    (row,) = report["rows"]
    # Launches 0, 2, 4, 6 with weight 2: 2 x (10 + 30 + 50 + 70) = 320 of 360.
    assert row["status"] == "ok"
    assert row["cost"] == {
        "quantity": "duration_ns", "unit": "ns",
        "condition": {"cache": "none", "clock": "none", "sm_percent": 100.0},
        "total": 360.0, "projected": 320.0,
    }  # fmt: skip
    assert row["error_percent"] == pytest.approx(100 * 40 / 360)
    assert row["signed_error_percent"] == pytest.approx(-100 * 40 / 360)
    assert row["group_error_percent"] == pytest.approx(100 * 40 / 360)
    assert row["speedup"] == pytest.approx(360 / 160)
    assert (row["launches"], row["kernels"], row["groups"], row["representatives"]) == (8, 2, 1, 4)
    assert row["parameters"]["launches"] == 4
    assert row["parameters"]["start"] == 0.0
    assert row["asked_parameters"] == {"launches": 4, "start": 0}
    assert row["runs"] == [run.run_id]
    assert row["selected_on"]["device"] == "V100"
    assert row["match"] is None
    (entry,) = report["summary"]
    assert (entry["workload"], entry["device"], entry["method"]) == ("training", "V100", "systematic")
    assert entry["error_percent"] == row["error_percent"]
    selection = report["selections"][row["selection"]]
    assert row["selection"] == "training/systematic"
    assert [r["launch"] for r in selection["groups"][0]["representatives"]] == [0, 2, 4, 6]
    assert selection["profile"]["sources"] == [run.run_id]


def test_the_same_selection_is_scored_on_other_gpus(store_run: StoreRun) -> None:
    first = store_run("V100", "light", KERNELS, duration_ns=[10, 20, 30, 40, 50, 60, 70, 80])
    # Another GPU: another time for each launch, and a grid that its library chose otherwise.
    second = store_run(
        "A100", "light", KERNELS, duration_ns=[8, 7, 6, 5, 4, 3, 2, 1], grid_x=[1, 1, 1, 2, 2, 2, 2, 2]
    )
    row = rows_of(analyse(request(first, second)))["A100", "systematic"]
    # By light time the weight is 360 / (10 + 30 + 50 + 70) = 2.25: 2.25 x (8 + 6 + 4 + 2) = 45 of 36.
    assert (row["cost"]["total"], row["cost"]["projected"]) == (36.0, 45.0)
    assert row["signed_error_percent"] == pytest.approx(100 * 9 / 36)
    assert row["weights"] == "light_time"
    # By launches it is 2, which happens to be nearer: 40 of 36.
    assert row["by_weights"]["launches"]["signed_error_percent"] == pytest.approx(100 * 4 / 36)
    assert row["by_weights"]["launches"]["projected"] == 40.0
    assert row["by_weights"]["light_time"]["projected"] == 45.0
    assert rows_of(analyse(request(first, second)))["V100", "systematic"]["weights"] == "launches"
    assert row["speedup"] == pytest.approx(36 / 20)
    assert row["selected_on"]["device"] == "V100"
    assert row["runs"] == [first.run_id, second.run_id]
    assert row["match"] == {
        "percent": 100.0, "kind": "name_block", "between": "GPUs",
        "exact": 37.5, "name_block": 100.0, "position": 100.0, "at_least": [],
    }  # fmt: skip


def test_where_errors_come_from_and_which_groups_scale_unlike(store_run: StoreRun) -> None:
    first = store_run("V100", "light", KERNELS, duration_ns=[10, 20, 30, 40, 50, 60, 70, 80])
    second = store_run("A100", "light", KERNELS, duration_ns=[8, 7, 6, 5, 4, 3, 2, 1])
    rows = rows_of(analyse(request(first, second)))
    here, there = rows["V100", "systematic"], rows["A100", "systematic"]
    for row in (here, there):
        assert row["decomposition"]["representatives"] == pytest.approx(row["signed_error_percent"])
        assert row["decomposition"]["cold_start"] is None
        assert row["decomposition"]["not_separated"] is None
    assert here["widest_groups"] == []
    [widest] = there["widest_groups"]
    # One group, a tenth as long there: |8 - 1| + |7 - 2| + |6 - 3| + ... of 36.
    assert widest["ratio"] == pytest.approx(36 / 360)
    assert widest["spread_percent"] == pytest.approx(100 * (7 + 5 + 3 + 1 + 1 + 3 + 5 + 7) / 36)
    assert widest["error_points"] == pytest.approx(there["signed_error_percent"])
    assert (widest["kernel"], widest["launches"]) == ("a", 8)


def test_methods_are_compared_fairly_where_they_selected(store_run: StoreRun) -> None:
    rng = np.random.default_rng(1)
    costs = np.where(np.arange(400) % 50 == 0, 10_000, 10) + rng.integers(0, 3, 400)
    asked = (("random", {}), ("stem", {}), ("proportional", {}))
    run = store_run("V100", "light", ["a"] * 400, duration_ns=costs)
    report = analyse(request(run, methods=asked))
    rows = rows_of(report)
    assert {name: rows["V100", name]["star"] for name, _ in asked} == {
        "random": False, "stem": True, "proportional": False,
    }  # fmt: skip
    assert rows["V100", "random"]["fair"]["basis"] == "draws"
    assert rows["V100", "random"]["no_star"]["code"] in ("interval_seldom_held", "error_above_most")
    assert rows["V100", "proportional"]["no_star"]["code"] == "exact_by_construction"
    [advice] = report["recommendations"]
    assert (advice["workload"], advice["device"], advice["method"]) == ("training", "V100", "stem")
    assert advice["selection"] == rows["V100", "stem"]["selection"]
    assert advice["judged_on"] == []
    page = render_markdown(report)
    assert "Which method here" in page


def test_stars_and_the_best_method_follow_the_other_gpus(store_run: StoreRun) -> None:
    """One kernel doubles there and the other halves. At home `random` and `stem` are as good as they are;
    there a method is judged by the total and by kernel, and `proportional` can win."""
    rng = np.random.default_rng(1)
    kernels = ["a", "b"] * 200
    costs = rng.integers(900, 1100, 400)
    asked = (("random", {"launches": 4}), ("balanced", {"launches": 40}), ("proportional", {"launches": 40}))
    run = store_run("V100", "light", kernels, duration_ns=costs)
    ratio = np.where(np.arange(400) % 2 == 0, 2.0, 0.5)
    others = [
        store_run(gpu, "light", kernels, duration_ns=np.round(costs * ratio).astype(int) + more)
        for gpu, more in (("A100", 0), ("H100", 100))
    ]
    report = analyse(request(run, *others, methods=asked))
    rows = rows_of(report)
    [advice] = report["recommendations"]
    assert advice["judged_on"] == ["A100", "H100"]
    assert advice["method"] == "balanced"
    assert rows["V100", "balanced"]["star"]
    assert rows["V100", "balanced"]["fair"]["basis"] == "by_construction"
    # One group for both kernels: each is projected by their common ratio.
    assert rows["A100", "proportional"]["part_error_percent"] > 50
    assert rows["A100", "balanced"]["part_error_percent"] < 5
    assert rows["V100", "proportional"]["no_star"]["code"] == "error_above_most"
    assert advice["worst_error_percent"] == max(
        rows[gpu, "balanced"]["error_percent"] for gpu in ("A100", "H100")
    )
    best = report["verdicts"]["best"]
    assert [(each["method"], each["within_target"], each["of"]) for each in best] == [("balanced", 1, 1)]


def test_a_method_without_a_score_on_one_of_the_gpus_has_no_star(store_run: StoreRun) -> None:
    costs = [1000 + 7 * (index % 13) for index in range(400)]
    asked = (("random", {"launches": 40}), ("balanced", {"launches": 40}))
    run = store_run("V100", "light", ["a"] * 400, duration_ns=costs)
    other = store_run("A100", "light", ["z"] * 400, duration_ns=costs)
    report = analyse(request(run, other, methods=asked))
    [advice] = report["recommendations"]
    assert advice["judged_on"] == []
    assert rows_of(report)["A100", "random"]["status"] != "ok"


def test_repeated_light_runs_count_in_the_mean_light_time(store_run: StoreRun) -> None:
    """The mean of the repeats is 100 for each representative and 50 for each other launch."""
    runs = [
        store_run("V100", "light", KERNELS, duration_ns=[200, 10] * 4),
        store_run("V100", "light", KERNELS, duration_ns=[50, 80] * 4, run={"repeat": 1}),
        store_run("V100", "light", KERNELS, duration_ns=[50, 60] * 4, run={"repeat": 2}),
        store_run("A100", "light", KERNELS, duration_ns=[10] * 8),
    ]
    rows = rows_of(analyse(request(*runs)))
    assert rows["A100", "systematic"]["by_weights"]["light_time"]["projected"] == pytest.approx(4 * 1.5 * 10)
    [note] = rows["V100", "systematic"]["notes"]
    assert note["code"] == "repeats_unused"
    other = store_run("V100", "light", ["z"] * 8, duration_ns=[50, 60] * 4, run={"repeat": 2})
    rows = rows_of(analyse(request(*runs[:2], other, runs[3])))
    assert [note["code"] for note in rows["V100", "systematic"]["notes"]] == [
        "repeats_unused", "light_repeat_unused",
    ]  # fmt: skip
    # (200 + 50) / 2 and (10 + 80) / 2.
    projected = rows["A100", "systematic"]["by_weights"]["light_time"]["projected"]
    assert projected == pytest.approx(4 * (125 + 45) / 125 * 10)


def test_the_report_shows_both_weights_side_by_side(store_run: StoreRun) -> None:
    first = store_run("V100", "light", KERNELS, duration_ns=[10, 20, 30, 40, 50, 60, 70, 80])
    second = store_run("A100", "light", KERNELS, duration_ns=[8, 7, 6, 5, 4, 3, 2, 1])
    report = Report.model_validate(analyse(request(first, second)))
    table = weights_table(report.rows)
    [cells] = [[cell.text for cell in row] for row in table.rows]
    # By launches 40 of 36, by light time 45 of 36; one group, so its error is that of the total.
    assert cells[-6:] == ["launches", "11.11", "11.11", "25.00", "25.00", "light time"]
    assert not weights_table([row for row in report.rows if row.device == "V100"]).rows


def test_other_launches_on_another_gpu_are_refused_with_every_match(store_run: StoreRun) -> None:
    first = store_run("V100", "light", KERNELS, duration_ns=range(1, 9))
    second = store_run("A100", "light", ["a"] * 8, duration_ns=range(1, 9))
    third = store_run("H100", "light", KERNELS[:7], duration_ns=range(1, 8))
    rows = rows_of(analyse(request(first, second, third)))
    row = rows["A100", "systematic"]
    assert row["status"] == "refused"
    assert "only 75 % of the launches match (name_block; 6 of 8)" in row["reason"]
    assert (row["error"]["code"], row["error"]["subject"] in row["reason"]) == ("misaligned", True)
    assert row["error"]["differences"] and row["error"]["differences"][0] not in row["reason"]
    assert row["error_percent"] is None
    assert (row["match"]["exact"], row["match"]["name_block"], row["match"]["position"]) == (
        75.0,
        75.0,
        100.0,
    )
    shorter = rows["H100", "systematic"]
    assert shorter["status"] == "refused"
    assert "different numbers of launches (8 and 7)" in shorter["reason"]
    assert shorter["match"]["position"] == 87.5
    assert rows["V100", "systematic"]["status"] == "ok"


def test_pks_without_counters_is_not_applicable(store_run: StoreRun) -> None:
    runs = [store_run(gpu, "light", KERNELS, duration_ns=range(1, 9)) for gpu in ("V100", "A100")]
    report = analyse(request(*runs, methods=(*PKS, *SYSTEMATIC)))
    rows = rows_of(report)
    for gpu in ("V100", "A100"):
        row = rows[gpu, "pks"]
        assert (row["status"], row["reason"]) == ("not applicable", "PKS not applicable: no counters")
        assert row["error_percent"] is None
        assert rows[gpu, "systematic"]["status"] == "ok"
    assert [entry["method"] for entry in report["summary"]] == ["systematic", "systematic"]


def test_pks_on_a_detailed_run_alone(store_run: StoreRun, counters: Counters) -> None:
    run = store_run(
        "V100", "detailed", KERNELS, cycles_gpc_avg=[100, 100, 1000, 100, 100, 1000, 100, 100],
        **counters([5, 5, 90, 5, 5, 90, 5, 5]),
    )  # fmt: skip
    report = analyse(request(run, methods=(("pks", PUBLISHED_PKS), ("systematic", {"launches": 8}))))
    rows = rows_of(report)
    row = rows["V100", "pks"]
    assert row["status"] == "ok"
    assert (row["groups"], row["representatives"]) == (2, 2)
    assert row["cost"]["quantity"] == "cycles_gpc_avg"
    assert (row["cost"]["total"], row["cost"]["projected"]) == (2600.0, 2600.0)
    assert row["error_percent"] == row["group_error_percent"] == 0.0
    assert row["speedup"] == pytest.approx(2600 / 1100)
    assert row["model"] is None and row["window"] is None and row["match"] is None
    selection = report["selections"]["training/pks"]
    assert [group["launches"] for group in selection["groups"]] == [6, 2]
    assert [group["representatives"][0]["sim_id"] for group in selection["groups"]] == [1, 3]
    # Without a light run the cost is cycles for every method.
    assert rows["V100", "systematic"]["cost"]["quantity"] == "cycles_gpc_avg"


def two_level(store_run: StoreRun, counters: Counters, device: str = "V100", **light: Any) -> list[RunData]:
    """A window of 40 launches of "a" and "b", and 60 launches more, the last two of them of "new"."""
    kernels = WHOLE
    costs = {"a": 100, "b": 1000, "new": 7}
    window = kernels[:40]
    detailed = store_run(
        device, "detailed", window, cycles_gpc_avg=[costs[k] * 1.5 for k in window],
        **counters([{"a": 5, "b": 90}[k] for k in window]),
    )  # fmt: skip
    values: dict[str, Any] = {"duration_ns": [costs[k] for k in kernels], **light}
    return [detailed, store_run(device, "light", values.pop("kernels", kernels), **values)]


def test_two_levels(store_run: StoreRun, counters: Counters) -> None:
    runs = two_level(store_run, counters)
    report = analyse(request(*runs, methods=(("pks", {"model": "scaled_counters"}),)))
    (row,) = report["rows"]
    assert row["status"] == "ok", row["reason"]
    assert row["runs"] == [run.run_id for run in runs]
    assert row["match"] == {
        "percent": 100.0, "kind": "exact", "between": "levels",
        "exact": 100.0, "name_block": 100.0, "position": 100.0, "at_least": [],
    }  # fmt: skip
    # 59 "a", 39 "b" and two "new": every group's first launch costs what each of its launches costs.
    assert row["launches"] == 100
    assert (row["cost"]["quantity"], row["cost"]["total"]) == ("duration_ns", 59 * 100 + 39 * 1000 + 2 * 7)
    assert row["error_percent"] == 0.0
    assert row["groups"] == 3
    assert row["speedup"] == pytest.approx(44914 / 1107)
    assert row["unknown"] == {"launches": 2, "groups": 1, "percent": 2.0}
    window = row["window"]
    assert (window["launches"], window["k"], window["cost"]["quantity"]) == (40, 2, "cycles_gpc_avg")
    assert window["cost"]["total"] == 24 * 150 + 16 * 1500
    model = row["model"]
    assert model["chosen"] == "scaled_counters"
    assert [entry["name"] for entry in model["models"]] == [
        "sgd", "gaussian_nb", "mlp", "combined", "nearest_light_time", "scaled_counters"
    ]  # fmt: skip
    assert [entry["error_percent"] for entry in model["models"]] == [0.0] * 6
    assert model["expected_accuracy_percent"] == 100.0
    assert model["chronological_accuracy_percent"] == 100.0
    assert model["agreement_percent"] == 100.0
    assert model["ambiguous_percent"] == 0.0
    (entry,) = report["summary"]
    assert entry["match_percent"] == 100.0
    assert entry["unknown_launches"] == 2
    assert entry["model"] == "scaled_counters"
    groups = report["selections"]["training/pks"]["groups"]
    assert [group["launches"] for group in groups] == [59, 39, 2]
    assert groups[2]["representatives"][0]["launch"] == 98
    # Labels decide no group here: without a name no model is trained, and the same launches are selected.
    plain = analyse(request(*runs, methods=PKS))
    assert plain["rows"][0]["model"] is None
    assert plain["summary"][0]["model"] is None
    assert plain["selections"]["training/pks"]["groups"] == groups


def test_levels_that_do_not_match_are_refused(store_run: StoreRun, counters: Counters) -> None:
    kernels = ["a", "x", "b", "a", "b"] * 20
    runs = two_level(store_run, counters, kernels=kernels)
    row = rows_of(analyse(request(*runs, methods=PKS)))["V100", "pks"]
    assert row["status"] == "refused"
    assert "only 80 % of the launches match (exact; 32 of 40)" in row["reason"]
    assert "light run has at launch 1 x" in row["error"]["differences"][0]
    assert (row["match"]["exact"], row["match"]["position"]) == (80.0, 100.0)
    # What rests on the light run alone is not touched by that.
    assert rows_of(analyse(request(*runs)))["V100", "systematic"]["status"] == "ok"


def test_two_level_selection_goes_to_light_runs_of_other_gpus(
    store_run: StoreRun, counters: Counters
) -> None:
    runs = two_level(store_run, counters)
    other = store_run("A100", "light", WHOLE, duration_ns=[{"a": 50, "b": 400, "new": 3}[k] for k in WHOLE])
    rows = rows_of(analyse(request(*runs, other, methods=PKS)))
    row = rows["A100", "pks"]
    assert row["status"] == "ok"
    assert (row["cost"]["total"], row["error_percent"]) == (59 * 50 + 39 * 400 + 2 * 3, 0.0)
    assert row["speedup"] == pytest.approx(18556 / 453)
    assert row["runs"] == [runs[0].run_id, runs[1].run_id, other.run_id]
    assert row["model"] == rows["V100", "pks"]["model"]


def test_the_first_gpu_where_the_method_applies_is_the_reference(
    store_run: StoreRun, counters: Counters
) -> None:
    light_only = store_run("V100", "light", WHOLE, duration_ns=[10] * 100)
    runs = two_level(store_run, counters, device="A100")
    rows = rows_of(analyse(request(light_only, *runs, methods=(*PKS, *SYSTEMATIC))))
    assert rows["V100", "pks"]["selected_on"]["device"] == "A100"
    assert (rows["V100", "pks"]["status"], rows["V100", "pks"]["error_percent"]) == ("ok", 0.0)
    assert rows["A100", "systematic"]["selected_on"]["device"] == "V100"
    named = rows_of(analyse(request(light_only, *runs, methods=SYSTEMATIC, reference="A100")))
    assert {row["selected_on"]["device"] for row in named.values()} == {"A100"}
    # In the report, cells stay in the order of the campaign.
    assert [device for device, _ in named] == ["V100", "A100"]


def test_levels_are_never_mixed_between_gpus(store_run: StoreRun, counters: Counters) -> None:
    runs = two_level(store_run, counters)
    detailed_only = two_level(store_run, counters, device="A100")[0]
    row = rows_of(analyse(request(*runs, detailed_only, methods=PKS)))["A100", "pks"]
    assert row["status"] == "refused"
    assert "the selection was made on a light run, and this GPU has no such run" in row["reason"]


def test_invalid_runs_are_refused(store_run: StoreRun, counters: Counters) -> None:
    flags = (("throttled", "for 8 % of the time", True), ("units_assumed", "", False))
    detailed, light = two_level(store_run, counters)
    flagged = replace(detailed, flags=flags)
    asked = request(flagged, light, methods=(*PKS, *SYSTEMATIC))
    rows = rows_of(analyse(asked))
    row = rows["V100", "pks"]
    assert row["status"] == "refused"
    assert "carries the flag 'throttled' (for 8 % of the time)" in row["reason"]
    assert [flag["name"] for flag in row["flags"]] == ["throttled", "units_assumed"]
    # Systematic selection rests on the light run alone.
    assert rows["V100", "systematic"]["status"] == "ok"
    assert rows["V100", "systematic"]["flags"] == []
    assert row["flags"][0] == {
        "run_id": detailed.run_id, "name": "throttled", "detail": "for 8 % of the time", "invalidates": True,
    }  # fmt: skip


def test_an_invalid_run_passes_the_reference_on_unless_it_was_named(store_run: StoreRun) -> None:
    first = store_run(
        "V100", "light", KERNELS, duration_ns=range(1, 9), run={"flags": (("throttled", "", True),)}
    )
    second = store_run("A100", "light", KERNELS, duration_ns=range(1, 9))
    rows = rows_of(analyse(request(first, second)))
    assert rows["V100", "systematic"]["status"] == "refused"
    assert rows["A100", "systematic"]["selected_on"]["device"] == "A100"
    named = rows_of(analyse(request(first, second, reference="V100")))
    assert named["A100", "systematic"]["status"] == "refused"
    assert "there is no selection to score: refused on V100" in named["A100", "systematic"]["reason"]


def test_overlapping_launches_are_flagged(store_run: StoreRun) -> None:
    run = store_run("V100", "light", ["a"] * 4, duration_ns=[100] * 4, start_ns=[0, 50, 200, 300])
    (row,) = analyse(request(run))["rows"]
    assert row["overlap"] == {"sum_ns": 400, "span_ns": 350, "overlap_percent": 12.5}
    assert [(flag["name"], flag["invalidates"]) for flag in row["flags"]] == [("concurrent_launches", False)]


def test_representatives_without_cost_are_flagged(store_run: StoreRun) -> None:
    first = store_run("V100", "light", KERNELS, duration_ns=[10, 20, 30, 40, 50, 60, 70, 80])
    second = store_run("A100", "light", KERNELS, duration_ns=[0, 7, 0, 5, 4, 3, 2, 1])
    report = analyse(request(first, second))
    named = rows_of(report)
    assert named["V100", "systematic"]["flags"] == []
    (flag,) = named["A100", "systematic"]["flags"]
    assert flag == {
        "run_id": second.run_id, "name": "representative_without_cost", "invalidates": False,
        "detail": "2 of 4 cost nothing in duration_ns",
    }  # fmt: skip
    assert "representative_without_cost" in render_html(report)


def test_a_label_that_names_another_gpu_than_the_recording_is_flagged(store_run: StoreRun) -> None:
    def flags_on(label: str, recorded: str) -> list[tuple[str, bool, str]]:
        metadata = {"devices": (Device(0, recorded),)}
        run = store_run(label, "light", KERNELS, device=[0] * 8, duration_ns=[5] * 8, metadata=metadata)
        (row,) = analyse(request(run))["rows"]
        return [(flag["name"], flag["invalidates"], flag["detail"]) for flag in row["flags"]]

    detail = "recorded on Tesla V100-SXM2-16GB, but the campaign file says A100"
    assert flags_on("A100", "Tesla V100-SXM2-16GB") == [("other_gpu_recorded", False, detail)]
    assert flags_on("RTX 3070", "NVIDIA GeForce RTX 3070 Ti")[0][0] == "other_gpu_recorded"
    # A family, the whole name, a text of one's own, and a recording that does not say.
    for label, recorded in (
        ("V100", "Tesla V100-SXM2-16GB"),
        ("V100-SXM2-16GB", "Tesla V100-SXM2-16GB"),
        ("box 3", "Tesla V100-SXM2-16GB"),
        ("A100", ""),
    ):
        assert flags_on(label, recorded) == []


def test_one_recording_given_for_two_gpus_is_refused(store_run: StoreRun) -> None:
    durations = [10, 20, 30, 40, 50, 60, 70, 80]
    same = {"content_hash": "one"}
    first = store_run("V100", "light", KERNELS, duration_ns=durations, run=same)
    second = store_run("A100", "light", KERNELS, duration_ns=durations, run=same)
    row = rows_of(analyse(request(first, second)))["A100", "systematic"]
    assert (row["status"], row["error_percent"]) == ("refused", None)
    assert "one recording was given for both GPUs" in row["reason"]


def test_slices_are_one_run(store_run: StoreRun) -> None:
    costs = [10, 20, 30, 40, 50, 60, 70, 80]
    whole = store_run("V100", "light", KERNELS, duration_ns=costs)
    sliced = store_run("A100", "light", KERNELS, duration_ns=costs, slices=3)
    rows = rows_of(analyse(request(whole, sliced)))
    whole_row, sliced_row = rows["V100", "systematic"], rows["A100", "systematic"]
    assert sliced_row["cost"]["total"] == whole_row["cost"]["total"]
    assert sliced_row["by_weights"]["launches"]["projected"] == whole_row["cost"]["projected"]
    assert sliced_row["cost"]["projected"] == whole_row["cost"]["total"]


def test_conditions_are_cells_of_their_own(store_run: StoreRun) -> None:
    half = Condition("none", "none", 50.0)
    runs = [
        store_run("V100", "light", KERNELS, duration_ns=[1] * 8),
        store_run("V100", "light", KERNELS, duration_ns=[2] * 8, run={"condition": half},
                  metadata={"condition": half}),
    ]  # fmt: skip
    report = analyse(request(*runs))
    assert [row["condition"]["sm_percent"] for row in report["rows"]] == [100.0, 50.0]
    assert [row["cost"]["total"] for row in report["rows"]] == [8.0, 16.0]
    assert [row["selected_on"]["condition"]["sm_percent"] for row in report["rows"]] == [100.0, 100.0]
    assert report["rows"][1]["cost"]["condition"]["sm_percent"] == 50.0


def test_synthetic_and_measured_runs_never_meet(store_run: StoreRun) -> None:
    measured = store_run("V100", "light", KERNELS, duration_ns=range(1, 9))
    with pytest.raises(RefusedError, match=r"it is measured, but its run c-1\.0000 is synthetic"):
        analyse(request(replace(measured, synthetic=True)))
    # The records' own mark decides where it contradicts the run's.
    (row,) = analyse(request(replace(measured, synthetic=True), synthetic=True))["rows"]
    assert row["status"] == "refused"
    assert "its records are measured, the run is synthetic" in row["reason"]


def test_damaged_records_fail_their_rows_only_and_name_no_path(store_run: StoreRun, tmp_path: Path) -> None:
    damaged = store_run("V100", "light", KERNELS, duration_ns=range(1, 9))
    path = Path(damaged.files[0])
    path.write_bytes(path.read_bytes()[:-40])
    whole = store_run("A100", "light", KERNELS, duration_ns=range(1, 9))
    report = analyse(request(damaged, whole))
    rows = rows_of(report)
    assert rows["V100", "systematic"]["status"] == "failed"
    assert rows["V100", "systematic"]["reason"].startswith(f"run {damaged.run_id}: ")
    assert rows["A100", "systematic"]["status"] == "ok"
    assert str(tmp_path) not in json.dumps(report)


def test_runs_over_the_memory_limit_are_refused(store_run: StoreRun) -> None:
    run = store_run("V100", "light", KERNELS, duration_ns=range(1, 9))
    (row,) = analyse(request(run, memory_limit_bytes=1000))["rows"]
    assert row["status"] == "refused"
    assert f"{run.run_id}: holding them takes more than the memory limit of 1,000 bytes" in row["reason"]


def test_a_wrong_parameter_is_the_status_of_its_rows(store_run: StoreRun) -> None:
    runs = [store_run(gpu, "light", KERNELS, duration_ns=range(1, 9)) for gpu in ("V100", "A100")]
    report = analyse(request(*runs, methods=(("random", {"launchs": 3}), *SYSTEMATIC)))
    rows = rows_of(report)
    for gpu in ("V100", "A100"):
        assert rows[gpu, "random"]["status"] == "failed"
        assert "there is no parameter 'launchs'" in rows[gpu, "random"]["reason"]
        assert rows[gpu, "systematic"]["status"] == "ok"


def test_a_level_that_contradicts_the_plan_fails(store_run: StoreRun) -> None:
    run = store_run("V100", "light", KERNELS, duration_ns=range(1, 9))
    (row,) = analyse(request(replace(run, level="detailed")))["rows"]
    assert row["status"] == "failed"
    assert "its records are of the light level, but the detailed level was planned" in row["reason"]


def test_faults_of_the_program_are_not_swallowed(
    store_run: StoreRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(workload_module, "select_and_try", broken)
    with pytest.raises(ZeroDivisionError):
        analyse(request(store_run("V100", "light", KERNELS, duration_ns=range(1, 9))))


def test_two_uses_of_a_method_stay_apart(store_run: StoreRun) -> None:
    run = store_run("V100", "light", KERNELS, duration_ns=range(1, 9))
    methods = (("random", {"launches": 2}), ("random", {"launches": 8}))
    report = analyse(request(run, methods=methods))
    assert [row["selection"] for row in report["rows"]] == ["training/random", "training/random-2"]
    assert [row["representatives"] for row in report["rows"]] == [2, 8]
    assert report["rows"][1]["error_percent"] == 0.0
    assert len(report["selections"]) == 2
    assert "random (launches=8)" in render_html(report)


def test_huge_selections_are_not_carried_whole(store_run: StoreRun) -> None:
    run = store_run("V100", "light", ["a"] * 3000, duration_ns=[1] * 3000)
    methods = (("random", {"launches": 2000}), ("systematic", {"launches": 2001}))
    report = analyse(request(run, methods=methods))
    kept, left_out = report["selections"].values()
    assert len(kept["groups"][0]["representatives"]) == 2000
    assert left_out["groups"] == []
    assert left_out["groups_left_out"] == 1
    assert left_out["note"]["representatives"] == 2001
    assert left_out["error_percent"] == report["rows"][1]["error_percent"]


def test_same_runs_same_bytes(store_run: StoreRun, counters: Counters) -> None:
    asked = request(*two_level(store_run, counters), methods=(*PKS, ("random", {}), *SYSTEMATIC))
    first, second = (json.dumps(analyse(asked), allow_nan=False) for _ in range(2))
    assert first == second


def test_the_document_says_what_it_rests_on(store_run: StoreRun) -> None:
    run = store_run("V100", "light", KERNELS, duration_ns=range(1, 9), run={"flags": (("x", "why", False),)})
    hung = Failure("hang", "w", "it hung", "wait")
    report = analyse(
        request(
            run,
            seed=3,
            failed_runs=(
                FailedRun("c-1.0009", RunState.FAILED, hung, "training", "A100", "light", repeat=1),
            ),
        )
    )
    assert report["format_version"] == 2
    assert report["campaign"] == {
        "id": "c-1", "name": "c", "synthetic": False, "seed": 3, "owner_name": "", "project": "",
    }  # fmt: skip
    assert set(report["versions"]) == {"assay", "numpy", "pyarrow", "scikit-learn", "python"}
    assert report["failed_runs"] == [
        {"run_id": "c-1.0009", "workload": "training", "device": "A100", "level": "light",
         "condition": BASELINE.to_dict(), "repeat": 1, "reason": "hang: w: it hung",
         "failure": {"failure_class": "hang", "subject": "w", "cause": "it hung", "remedy": "wait"}}
    ]  # fmt: skip
    assert report["runs"] == [
        {
            "run_id": run.run_id, "workload": "training", "device": "V100", "level": "light",
            "condition": {"cache": "none", "clock": "none", "sm_percent": 100.0}, "repeat": 0,
            "under_mps": False, "launches": 8, "content_hash": run.content_hash, "synthetic": False,
            "flags": [{"run_id": run.run_id, "name": "x", "detail": "why", "invalidates": False}],
        }
    ]  # fmt: skip


def test_every_kind_of_row_renders(store_run: StoreRun, counters: Counters) -> None:
    good = two_level(store_run, counters)
    hostile = store_run("<i>A100</i>", "light", ["<script>"] * 3, workload="w|<b>", duration_ns=[1, 2, 3])
    report = analyse(request(*good, hostile, methods=(*PKS, ("random", {}))))
    page = render_html(report)
    assert "<script>" not in page
    assert "&lt;i&gt;A100&lt;/i&gt;" in page
    assert "PKS not applicable: no counters" in page
    assert "w\\|\\<b\\>" in render_markdown(report)


def test_a_campaign_without_finished_runs_has_a_report() -> None:
    report = analyse(request(failed_runs=(FailedRun("c-1.0000", RunState.CANCELLED),)))
    assert report["rows"] == [] and report["summary"] == []
    assert "cancelled" in render_html(report)


def test_unknown_methods_name_those_that_exist(store_run: StoreRun) -> None:
    (row,) = analyse(
        request(store_run("V100", "light", KERNELS, duration_ns=range(1, 9)), methods=(("sieves", {}),))
    )["rows"]
    assert row["status"] == "failed"
    assert str(ParameterError("select", "there is no method 'sieves'")) in row["reason"]


def test_two_runs_are_aligned_once_for_all_methods(
    store_run: StoreRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    align = memory.align

    def counting(left: Any, right: Any, kind: Any) -> Any:
        asked.append(kind)
        return align(left, right, kind)

    monkeypatch.setattr(memory, "align", counting)
    runs = [store_run(gpu, "light", KERNELS, duration_ns=range(1, 9)) for gpu in ("V100", "A100", "H100")]
    report = analyse(request(*runs, methods=(("random", {}), *SYSTEMATIC, ("systematic", {}))))
    assert asked == ["exact", "name_block", "position"] * 2
    assert {row["status"] for row in report["rows"]} == {"ok"}


REAL = (
    ("dims", "V100", "kineto/v100_input_dims_9876_kernels.json.gz", 9876),
    ("dims", "A100", "kineto/a100_input_dims_8568_kernels.json.gz", 8568),
    ("nerf", "A100", "nsys/a100_nerf_1106_kernels.sqlite", 1106),
)


@pytest.mark.shared_data
def test_real_recordings(shared_data: Path, tmp_path: Path) -> None:
    runs = []
    for index, (workload, gpu, name, launches) in enumerate(REAL):
        path = tmp_path / f"{index}.parquet"
        options = ReadOptions(condition=BASELINE)
        with (
            open_recording(shared_data / name, options) as recording,
            new_launch_file(path, recording.schema) as writer,
        ):
            for batch in recording.batches():
                writer.write(batch)
        runs.append(RunData(f"real-1.{index}", workload, gpu, "light", files=(str(path),), launches=launches))
    report = analyse(request(*runs, methods=(("pks", {}), ("random", {}))))
    found = [(r["workload"], r["device"], r["method"], r["status"], r["launches"]) for r in report["rows"]]
    assert found == [
        ("dims", "V100", "pks", "not applicable", 9876),
        ("dims", "V100", "random", "ok", 9876),
        ("dims", "A100", "pks", "not applicable", 8568),
        ("dims", "A100", "random", "refused", 8568),
        ("nerf", "A100", "pks", "not applicable", 1106),
        ("nerf", "A100", "random", "ok", 1106),
    ]
    scored, refused = report["rows"][1], report["rows"][3]
    assert scored["cost"]["quantity"] == "duration_ns"
    assert scored["cost"]["total"] == scored["overlap"]["sum_ns"]
    assert [flag["name"] for flag in scored["flags"]] == ["concurrent_launches"]
    assert "different numbers of launches (9,876 and 8,568)" in refused["reason"]
    assert 0 < refused["match"]["exact"] < refused["match"]["name_block"] < 99
    assert refused["match"]["position"] == pytest.approx(100 * 8568 / 9876)
    assert "concurrent_launches" in render_html(report)


def test_the_documented_keys_are_those_of_the_document(store_run: StoreRun) -> None:
    page = (Path(__file__).parents[3] / "docs" / "report-format.md").read_text()
    named = {
        key
        for line in page.splitlines()
        if line.startswith("| `")
        for key in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    report = analyse(request(store_run("V100", "light", KERNELS, duration_ns=range(1, 9))))
    # The page lists the keys of every part; a test of the generated pages holds it to the model.
    assert set(report) | set(report["rows"][0]) <= named
