"""A dry run says what would run, and its hours and bytes are the documented sums of its assumptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_sampling.errors import CampaignError, ParameterError
from assay_server.campaign_file.reading import CampaignFile, read_campaign_file
from assay_server.campaigns.planning.forecast import forecast_campaign

LIVE = """\
campaign: lab
synthetic: true
gpus: [V100, A100]
detailed: {first: 1000, slice_launches: 400, sets: features}
conditions: [{cache: all}, {sm_percent: 50}]
workloads:
  - {name: t, command: [./training.toml]}
"""
RECORDED = """\
campaign: lab
workloads:
  - name: t
    recordings:
      - {device: V100, light: here.sqlite, detailed: away.csv}
playback: PLAYBACK
"""
SIMPLE = {
    "launches": "900",
    "program_seconds": "100",
    "start_seconds": "10",
    "trace_slowdown": "2",
    "pass_milliseconds": "1000",
    "restore_milliseconds": "500",
    "launch_bytes": "10",
    "counter_bytes": "1",
}


def read(text: str) -> CampaignFile:
    return read_campaign_file(text, "c.yaml")


def test_live_runs_are_summed_for_each_gpu() -> None:
    document = forecast_campaign(read(LIVE), "/base", SIMPLE)
    rows = [
        (r["level"], r["condition"]["cache"], r["condition"]["sm_percent"], r["slices"], r["passes"],
         r["launches"], r["bytes"], round(r["hours"] * 3600))
        for r in document["runs"]
        if r["device"] == "V100"
    ]  # fmt: skip
    # Of the window of 1,000 the program makes 900 launches; three slices start it three times.
    assert rows == [
        ("detailed", "none", 100.0, 3, 3, 900, 900 * (10 + 15), 3 * 110 + 900 * 3 + 450),
        ("light", "none", 100.0, 1, 0, 900, 9000, 210),
        ("detailed", "all", 100.0, 3, 1, 900, 900 * (10 + 4), 3 * 110 + 900),
        ("light", "none", 50.0, 1, 0, 900, 9000, 210),
        ("light", "none", 100.0, 1, 0, 900, 9000, 210),
    ]
    assert [(g["device"], g["runs"], g["slices"], g["launch_passes"]) for g in document["gpus"]] == [
        ("V100", 5, 9, 3600),
        ("A100", 5, 9, 3600),
    ]
    assert document["total"]["hours"] == pytest.approx(2 * sum(r[-1] for r in rows) / 3600)
    assert document["total"]["bytes"] == 2 * sum(r[-2] for r in rows)
    assert document["missing_files"] == ["/base/training.toml"]


@pytest.mark.parametrize(("playback", "seconds"), [("full_speed", 0.5), ("recorded_time", 60.0)])
def test_recordings_are_played_and_looked_for(tmp_path: Path, playback: str, seconds: float) -> None:
    (tmp_path / "here.sqlite").touch()
    text = RECORDED.replace("PLAYBACK", playback)
    document = forecast_campaign(read(text), str(tmp_path), {})
    assert [r["hours"] * 3600 for r in document["runs"]] == pytest.approx([seconds] * 2)
    assert document["missing_files"] == [str(tmp_path / "away.csv")]


def test_every_assumption_is_told_with_its_meaning() -> None:
    document = forecast_campaign(read(LIVE), "/base", {"launches": "7"})
    assert document["assumptions"]["launches"]["value"] == 7
    assert all(entry["meaning"] for entry in document["assumptions"].values())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"launchs": "1"}, "no assumption 'launchs'"),
        ({"launches": "-1"}, "launches=-1"),
        ({"program_seconds": "nan"}, "program_seconds=nan"),
        ({"playback_launches_per_second": "0"}, "playback_launches_per_second=0"),
    ],
)
def test_an_assumption_that_is_none_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        forecast_campaign(read(LIVE), "/base", given)


def test_a_file_that_is_not_valid_is_refused_with_its_line() -> None:
    with pytest.raises(CampaignError, match=r"c\.yaml:3: field gpu:"):
        forecast_campaign(read(LIVE.replace("gpus:", "gpu:")), "/base", {})


def test_a_window_without_an_end_is_forecast_to_the_programs_end() -> None:
    text = LIVE.replace("first: 1000, slice_launches: 400", "first: auto, time_budget_s: 60")
    document = forecast_campaign(read(text), "/base", {"launches": "1700", "program_seconds": "1"})
    detailed, light = document["runs"][:2]
    assert (detailed["slices"], detailed["launches"], detailed["at_most"]) == (3, 1700, True)
    assert (light["slices"], light["launches"], light["at_most"]) == (1, 1700, False)
    assert forecast_campaign(read(LIVE), "/base", {})["runs"][0]["at_most"] is False


def test_assumptions_size_the_slices_for_which_the_file_says_nothing() -> None:
    text = LIVE.replace("first: 1000, slice_launches: 400", "first: 50000")
    slow = {"launches": "50000", "program_seconds": "5000", "pass_milliseconds": "50"}
    document = forecast_campaign(read(text), "/base", slow)
    features = document["runs"][0]
    assert 0 < features["skipped_percent"] < 20
    assert features["slices"] < forecast_campaign(read(text), "/base", {})["runs"][0]["slices"]
