"""Detailed runs with fewer launches than asked for, beside light runs that show how many there are."""

from __future__ import annotations

from typing import Any

import pytest

from assay_server.analysis.runs.request import RunData
from assay_server.campaigns.analysing.request_builder import launches_asked, with_short_windows
from assay_server.store.model import Slice


def run(level: Any, launches: int, number: int = 0, **changes: Any) -> RunData:
    given = {"workload": "w", "device_kind": "V100", "live": True, **changes}
    return RunData(run_id=f"c-1.000{number}", level=level, launches=launches, **given)


def flags(*runs: RunData) -> list[tuple[str, str, bool]]:
    return [flag for run in with_short_windows(runs) for flag in run.flags]


def test_one_launch_of_120_beside_a_light_run_of_5000_invalidates() -> None:
    [(name, detail, invalid)] = flags(run("detailed", 1, launches_asked=120), run("light", 5000, 1))
    assert (name, invalid) == ("window_short", True)
    assert detail == (
        "1 of the first 120 launches have counters, and the light run c-1.0001 has 5,000 launches"
    )


@pytest.mark.parametrize(
    ("launches", "asked", "whole", "short"),
    [
        (60, 120, [60], False),  # the workload has no more
        (120, 120, [5000], False),
        (119, 120, [5000], False),  # 99 % is what alignments ask for
        (118, 120, [5000], True),
        (60, 0, [60], False),  # to the end
        (60, 0, [61], True),
        (60, 120, [90, 60], False),  # a workload that launches another number each time
        (60, 120, [], False),  # nothing shows it
        (0, 120, [5000], False),  # the run has failed, or has a flag of its own
    ],
)
def test_what_is_short(launches: int, asked: int, whole: list[int], short: bool) -> None:
    light = [run("light", number, index) for index, number in enumerate(whole, 1)]
    assert bool(flags(run("detailed", launches, launches_asked=asked), *light)) is short


@pytest.mark.parametrize(
    "other",
    [
        {"workload": "x"}, {"device_kind": "A100"}, {"live": False},
        {"flags": (("launches_dropped", "", True),)}, {"level": "bare"},
    ],
)  # fmt: skip
def test_only_a_sound_light_run_of_the_same_workload_on_the_same_gpu_tells(other: dict[str, Any]) -> None:
    level = other.pop("level", "light")
    found = flags(run("detailed", 1, launches_asked=120), run(level, 5000, 1, **other))
    assert "window_short" not in {name for name, _, _ in found}


def test_a_recording_has_no_window_that_was_asked_for() -> None:
    assert flags(run("detailed", 1, live=False), run("light", 5000, 1)) == []


def test_what_the_slices_were_to_have_together() -> None:
    slices = [Slice("r", 0, 0, 500, launches=500), Slice("r", 1, 500, 300, launches=1)]
    assert launches_asked(slices) == 800
    assert launches_asked([*slices, Slice("r", 2, 800, 0)]) == 0
    assert launches_asked([]) == 0
