"""Runs compared over conditions and repeats: SM shares, flushed caches, noise; exact numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_core.records.campaign import RunState
from assay_core.records.failure import Failure
from assay_sampling.errors import RefusedError
from assay_sampling.launches.table import BASELINE, Device
from assay_sampling.notes.registry import make_note
from assay_server.analysis.runs.request import FailedRun
from tests.support.server.compared_runs import (
    AT_ALL,
    AT_HALF,
    FLUSHED,
    FREE,
    HALF,
    KERNELS,
    SYSTEMATIC,
    Counters,
    Lab,
    StoreRun,
    analysed,
)
from tests.support.server.report_forms import render_html, render_markdown

SELECTION = {"method": "systematic", "selection": "training/systematic"}


@pytest.fixture
def lab(store_run: StoreRun, counters: Counters) -> Lab:
    return Lab(store_run, counters)


def test_an_sm_share_is_compared_with_all_sms_under_the_same_daemon(lab: Lab) -> None:
    runs = [lab.light(FREE), lab.light(AT_HALF, HALF, under_mps=True), lab.light(AT_ALL, under_mps=True)]
    report = analysed(*runs)
    # Runs under other conditions are compared; selections are scored on the baseline alone.
    assert [(row["condition"], row["status"]) for row in report["rows"]] == [(BASELINE.to_dict(), "ok")]
    [entry] = report["sm_share"]
    assert (entry["workload"], entry["device"], entry["condition"]) == ("training", "V100", HALF.to_dict())
    assert (entry["sm_percent"], entry["effective_sms"], entry["all_sms"]) == (50.0, 40, 81)
    assert (entry["duration_ns"], entry["duration_ns_all_sms"]) == (660.0, 368.0)
    assert entry["speedup_true"] == 660 / 368
    # The representatives are launches 0, 2, 4 and 6, each with 360 / 160 of the light time.
    [prediction] = entry["predictions"]
    assert prediction == {
        **SELECTION, "status": "ok", "reason": "", "error": None, "speedup_predicted": 640 / 328,
        "speedup_error_percent": pytest.approx(100 * (640 / 328 / (660 / 368) - 1)),
        "error_percent": pytest.approx(100 * 60 / 660), "within_target": False,
    }  # fmt: skip
    assert entry["match"] == {
        "percent": 100.0, "kind": "name_block", "between": "SM shares", "exact": 100.0, "name_block": 100.0,
        "position": 100.0, "at_least": [],
    }  # fmt: skip
    assert entry["runs"] == [runs[1].run_id, runs[2].run_id]
    assert entry["flags"] == [] and entry["clocks_locked"] is False
    assert report["summary"][0]["sm_share"] == [
        {
            "sm_percent": 50.0,
            "sm_share": "limit",
            "effective_sms": 40,
            "speedup_true": 660 / 368,
            "speedup_predicted": 640 / 328,
        }
    ]
    assert "cold_start" not in report and "noise" not in report
    assert "flushed_difference_percent" not in report["summary"][0]


def test_a_partition_is_a_share_of_its_own_beside_the_one_by_percentage(lab: Lab) -> None:
    """Both are compared with the same run at all SMs, and each says which kind of share it is."""
    partition = replace(HALF, sm_share="partition")
    runs = [
        lab.light(FREE), lab.light(AT_HALF, HALF, under_mps=True),
        lab.light(AT_HALF, partition, under_mps=True), lab.light(AT_ALL, under_mps=True),
    ]  # fmt: skip
    report = analysed(*runs)
    found = [(entry["sm_share"], entry["status"], entry["condition"]) for entry in report["sm_share"]]
    assert found == [
        ("limit", "ok", HALF.to_dict()),
        ("partition", "ok", {**HALF.to_dict(), "sm_share": "partition"}),
    ]
    assert [entry["runs"][1] for entry in report["sm_share"]] == [runs[3].run_id] * 2


def test_the_free_run_stands_in_for_the_one_under_the_daemon_and_is_flagged(lab: Lab) -> None:
    [entry] = analysed(lab.light(FREE), lab.light(AT_HALF, HALF, under_mps=True))["sm_share"]
    assert entry["speedup_true"] == 660 / 360
    assert [flag["name"] for flag in entry["flags"]] == ["not_under_mps"]


def test_a_selection_of_one_gpu_predicts_the_share_on_another(lab: Lab) -> None:
    twice = [2 * value for value in AT_HALF]
    runs = [
        lab.light(FREE), lab.light(FREE, gpu="A100"), lab.light(twice, HALF, gpu="A100", under_mps=True),
        lab.light(AT_ALL, gpu="A100", under_mps=True),
    ]  # fmt: skip
    report = analysed(*runs)
    [entry] = report["sm_share"]
    assert (entry["device"], entry["predictions"][0]["speedup_predicted"]) == ("A100", 1280 / 328)
    assert [entry.get("sm_share") for entry in report["summary"]] == [
        [],
        [
            {
                "sm_percent": 50.0,
                "sm_share": "limit",
                "effective_sms": 40,
                "speedup_true": 1320 / 368,
                "speedup_predicted": 1280 / 328,
            }
        ],
    ]


def test_a_share_whose_launches_differ_is_refused_with_its_match(lab: Lab) -> None:
    runs = [
        lab.light(FREE), lab.light(AT_HALF, HALF, under_mps=True, kernels=["a"] * 8),
        lab.light(AT_ALL, under_mps=True),
    ]  # fmt: skip
    report = analysed(*runs)
    [entry] = report["sm_share"]
    assert entry["status"] == "refused"
    assert "only 75 % of the launches match (name_block; 6 of 8)" in entry["reason"]
    assert (entry["match"]["percent"], entry["match"]["position"]) == (75.0, 100.0)
    assert (entry["speedup_true"], entry["predictions"]) == (None, [])
    for page in (render_html(report), render_markdown(report)):
        assert "only 75 % of the launches match" in page


def test_without_a_run_at_all_sms_there_is_no_speedup(lab: Lab) -> None:
    report = analysed(lab.light(AT_HALF, HALF, under_mps=True))
    [entry] = report["sm_share"]
    assert entry["status"] == "refused"
    assert "no light run at 100 % has data" in entry["reason"]
    assert report["rows"] == report["summary"] == []


def test_a_run_that_is_flagged_invalid_is_not_compared(lab: Lab) -> None:
    flags = (("mps_not_in_force", "40 of 80 SMs asked, 80 seen", True),)
    runs = [lab.light(FREE), lab.light(AT_HALF, HALF, under_mps=True, flags=flags)]
    [entry] = analysed(*runs)["sm_share"]
    assert entry["status"] == "refused" and "'mps_not_in_force'" in entry["reason"]


def test_flushed_caches_are_compared_launch_by_launch(lab: Lab) -> None:
    runs = [
        lab.light(FREE), lab.detailed([100, 100, 100, 100]),
        lab.detailed([150, 90, 100, 125], FLUSHED, counted=False),
    ]  # fmt: skip
    report = analysed(*runs)
    [entry] = report["cold_start"]
    assert (entry["quantity"], entry["unit"], entry["launches"]) == ("cycles_gpc_avg", "cycle", 4)
    assert entry["condition"] == FLUSHED.to_dict()
    assert entry["weighted_difference_percent"] == 100 * (50 + 10 + 0 + 25) / 400
    assert entry["median_difference_percent"] == 12.5
    assert entry["mean_difference_percent"] == 65 / 4
    assert entry["worst"] == {
        "process": 0, "launch": 0, "kernel": "a", "difference_percent": 50.0, "warm": 100.0, "flushed": 150.0,
    }  # fmt: skip
    # IPC falls by 33.3, rises by 11.1, stays, and falls by 20 percent; all have the same instructions.
    assert entry["instruction_shares"] == [
        {"ipc_difference_percent": 5.0, "share_percent": 75.0},
        {"ipc_difference_percent": 10.0, "share_percent": 75.0},
        {"ipc_difference_percent": 15.0, "share_percent": 50.0},
        {"ipc_difference_percent": 20.0, "share_percent": 50.0},
    ]
    # Of the representatives 0, 2, 4 and 6, the first two lie in the window.
    assert entry["selections"] == [
        {**SELECTION, "status": "ok", "reason": "", "error": None, "representatives": 4,
         "representatives_in_window": 2, "weighted_difference_percent": 25.0, "started_cold": None}
    ]  # fmt: skip
    assert entry["match"]["kind"] == "exact" and entry["match"]["between"] == "caches"
    assert report["summary"][0]["flushed_difference_percent"] == 21.25
    assert report["summary"][0]["flushed_difference_of_selection_percent"] == 25.0
    assert "sm_share" not in report and "sm_share" not in report["summary"][0]


def test_a_detailed_selection_of_another_gpu_shows_its_flushed_difference(lab: Lab) -> None:
    warm = [100.0] * 8
    runs = [
        lab.detailed(warm), lab.detailed(warm, gpu="A100"),
        lab.detailed([200, 100, 100, 100, 100, 100, 100, 100], FLUSHED, gpu="A100", counted=False),
    ]  # fmt: skip
    [entry] = analysed(*runs)["cold_start"]
    assert entry["device"] == "A100"
    assert entry["weighted_difference_percent"] == 12.5
    [chosen] = entry["selections"]
    assert chosen["weighted_difference_percent"] == 25.0
    # Started cold, launch 0 costs 200 instead of 100; it stands for two of the eight.
    parts = chosen["started_cold"]
    assert (parts["cold_start"], parts["representatives"]) == (25.0, 0.0)
    assert parts["labels"] is None and parts["not_separated"] is None


def test_what_stands_in_the_way_of_a_flushed_difference_is_said(lab: Lab) -> None:
    alone = analysed(lab.detailed([1, 2], FLUSHED))["cold_start"][0]
    assert alone["status"] == "refused"
    assert "no detailed run with caches left alone has data" in alone["reason"]
    other = analysed(lab.detailed([1, 2]), lab.detailed([1, 2], FLUSHED, kernels=["a", "b"]))["cold_start"][0]
    assert other["status"] == "refused" and "only 50 % of the launches match" in other["reason"]
    light_here = [lab.light(FREE, gpu="A100"), lab.detailed([1, 2]), lab.detailed([2, 2], FLUSHED)]
    entry = analysed(*light_here, reference="A100")["cold_start"][0]
    assert entry["weighted_difference_percent"] == pytest.approx(100 / 3)
    [chosen] = entry["selections"]
    assert chosen["status"] == "refused"
    assert "V100 has no light run to find its launches in" in chosen["reason"]


def test_noise_is_told_of_every_kind_of_run_that_was_repeated(lab: Lab) -> None:
    runs = [
        lab.light([9] * 10, kernels=["a"] * 10), lab.light([11] * 10, kernels=["a"] * 10, repeat=1),
        lab.detailed([100, 200]), lab.detailed([100, 200], repeat=1), lab.detailed([100, 200], FLUSHED),
        lab.light([5] * 9, under_mps=True, kernels=["a"] * 9),
        lab.light([5] * 10, under_mps=True, kernels=["a"] * 10, repeat=1),
    ]  # fmt: skip
    detailed, light, under_mps = analysed(*runs)["noise"]
    assert (detailed["level"], detailed["quantity"], detailed["unit"]) == (
        "detailed",
        "cycles_gpc_avg",
        "cycle",
    )
    assert (detailed["mean_total"], detailed["relative_standard_deviation_percent"]) == (300.0, 0.0)
    assert (light["repeats"], light["quantity"], light["mean_total"]) == (2, "duration_ns", 100.0)
    assert light["relative_standard_deviation_percent"] == pytest.approx(
        100 * np.std([90, 110], ddof=1) / 100
    )
    assert light["notes"] == [] and light["runs"] == [runs[0].run_id, runs[1].run_id]
    assert under_mps["under_mps"] and under_mps["notes"] == [
        make_note("repeats_differ", launches=(9, 10)).to_dict()
    ]


def test_repeats_are_compared_with_their_own(lab: Lab) -> None:
    double = [2 * value for value in AT_ALL]
    runs = [
        lab.light(FREE),
        lab.light(AT_HALF, HALF, under_mps=True, repeat=1),
        lab.light(AT_ALL, under_mps=True),
        lab.light(double, under_mps=True, repeat=1),
    ]
    [entry] = analysed(*runs)["sm_share"]
    assert entry["runs"] == [runs[1].run_id, runs[3].run_id]


@pytest.mark.parametrize("level", ["detailed", "light"])
def test_a_row_without_counters_names_the_detailed_run_that_failed(lab: Lab, level: str) -> None:
    hung = Failure("hang", "w", "no progress")
    gone = FailedRun("c-1.0009", RunState.FAILED, hung, "training", "V100", level)
    report = analysed(lab.light(FREE), methods=(("pks", {}), *SYSTEMATIC), failed_runs=(gone,))
    pks, systematic = report["rows"]
    if level == "detailed":
        assert (pks["status"], pks["reason"]) == (
            "failed", "no counters: the detailed run c-1.0009 has no data: hang: w: no progress",
        )  # fmt: skip
    else:
        assert (pks["status"], pks["reason"]) == ("not applicable", "PKS not applicable: no counters")
    assert systematic["status"] == "ok"


def test_slices_of_a_run_may_come_from_several_gpus_of_one_kind(store_run: StoreRun) -> None:
    first, second, third = (
        store_run(
            "V100", "light", KERNELS[:2], launch=[2 * i, 2 * i + 1], duration_ns=[1, 3],
            device=np.full(2, index, np.int32),
            metadata={"devices": (Device(index, "V100", uuid, "7.0", 80),)},
        )
        for i, (index, uuid) in enumerate([(0, "GPU-a"), (0, "GPU-b"), (3, "GPU-a")])
    )  # fmt: skip
    files = (*first.files, *second.files, *third.files)
    run = replace(first, files=files, launches=6, slice_launches=(2, 2, 2))
    report = analysed(run, methods=(("random", {"launches": 2}),))
    [row] = report["rows"]
    assert (row["status"], row["launches"], row["cost"]["total"]) == ("ok", 6, 12.0)
    [selection] = report["selections"].values()
    assert selection["profile"]["devices"] == ["V100", "V100"]


def test_slices_that_do_not_fit_together_are_refused(store_run: StoreRun) -> None:
    one, other = (
        store_run(
            "V100", "light", KERNELS[:2], launch=[2 * i, 2 * i + 1], duration_ns=[1, 3],
            metadata={"devices": (Device(0, name, "GPU-a", "7.0", 80),)},
        )
        for i, name in enumerate(["V100", "A100"])
    )  # fmt: skip
    mixed = replace(one, files=one.files + other.files, slice_launches=(2, 2))
    [row] = analysed(mixed)["rows"]
    assert row["status"] == "failed" and "its slices differ in counters, level" in row["reason"]
    gap = replace(one, files=one.files + one.files, slice_launches=(2, 0, 2))
    [row] = analysed(gap)["rows"]
    assert row["status"] == "failed" and "its slice 1 has no launches but a later one has" in row["reason"]
    ended = replace(one, slice_launches=(2, 0, 0))
    assert analysed(ended, methods=(("random", {"launches": 1}),))["rows"][0]["status"] == "ok"


def test_synthetic_and_measured_runs_never_meet_in_a_comparison(lab: Lab) -> None:
    runs = [lab.light(FREE), lab.light(AT_HALF, HALF, under_mps=True, synthetic=True)]
    with pytest.raises(RefusedError, match="put synthetic and measured data into separate campaigns"):
        analysed(*runs)


def test_records_that_contradict_the_mark_of_their_run_are_not_compared(
    store_run: StoreRun, lab: Lab
) -> None:
    lying = store_run(
        "V100", "light", KERNELS, duration_ns=AT_HALF, metadata={"condition": HALF, "origin": "synthetic"},
        run={"live": True, "condition": HALF, "under_mps": True},
    )  # fmt: skip
    [entry] = analysed(lab.light(FREE), lying)["sm_share"]
    assert entry["status"] == "refused" and "its records are synthetic" in entry["reason"]


def everything(lab: Lab) -> dict[str, Any]:
    warm, cold = [100.0] * 8, [150.0, *[100.0] * 7]
    return analysed(
        lab.light(FREE), lab.light(FREE, repeat=1), lab.light(AT_HALF, HALF, under_mps=True),
        lab.light(AT_ALL, under_mps=True), lab.detailed(warm), lab.detailed(cold, FLUSHED, counted=False),
    )  # fmt: skip


def test_every_key_is_documented(lab: Lab) -> None:
    page = (Path(__file__).parents[3] / "docs" / "report-format.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    report = everything(lab)
    assert {"sm_share", "cold_start", "noise"} <= set(report)
    for part in ("sm_share", "cold_start", "noise", "summary", "runs", "failed_runs"):
        for entry in report[part]:
            assert set(entry) <= named, part
    for inner in (
        report["sm_share"][0]["predictions"][0],
        report["cold_start"][0]["selections"][0],
        report["cold_start"][0]["worst"],
        report["cold_start"][0]["instruction_shares"][0],
        report["summary"][0]["sm_share"][0],
    ):
        assert set(inner) <= named


def test_every_page_shows_what_was_compared(lab: Lab) -> None:
    report = everything(lab)
    html, markdown = render_html(report), render_markdown(report)
    for page in (html, markdown):
        for title in ("SM shares", "Flushed caches", "Noise over repeats"):
            assert title in page
        assert "1.79" in page and "1.95" in page  # 660 / 368 and 640 / 328
        assert "6.25" in page  # 50 of 800 cycles
    assert html.count("<svg") == 12  # each figure for desks and for phones
    plain = analysed(lab.light(FREE))
    for page in (render_html(plain), render_markdown(plain)):
        assert not re.search("SM share|Flushed caches|Noise over", page)
