"""The section at equal speedups: its goals can be missed, and its baseline is what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Device, TableMetadata
from tests.fidelity import equal_speedups
from tests.fidelity.equal_speedups import Found
from tests.fidelity.section import Effort
from tests.support.sampling.made_launches import made_launches


@pytest.mark.shared_data
def test_balanced_keeps_its_goals_and_beats_plain_draws(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_SHARED_DATA", str(shared_data))
    section = equal_speedups.section(Effort.SHORT)
    assert section.missed == []
    assert "synthetic" in section.markdown()
    # Every one of the three reaches both speedups, so that none is compared by luck.
    assert len(section.rows) == 6


def test_a_goal_that_is_missed_is_named() -> None:
    balanced, random = ("balanced", "light_time"), ("random", "light_time")
    good = {balanced: Found(150, 1.0, 3.0, 100.0), random: Found(150, 4.0, 9.0, 95.0)}
    assert equal_speedups.missed_goals(good, 150.0) == []
    bad = {balanced: Found(150, 1.2, 3.0, 100.0), random: Found(150, 1.1, 9.0, 95.0)}
    assert equal_speedups.missed_goals(bad, 150.0) == [
        "balanced has 1.20 % at 150, above 1.1 %",
        "random by light_time has 1.10 % at 150, balanced 1.20 %",
    ]


def test_launches_for_each_kernel_and_grid_stand_for_its_light_time() -> None:
    launches = [
        made_launches(
            ["a", "a", "b", "b", "b"],
            metadata=TableMetadata("light", devices=(Device(0, gpu),)),
            duration_ns=np.array(durations),
            device=[0] * 5,
        )
        for gpu, durations in (("V100", [10, 30, 5, 5, 10]), ("A100", [20, 60, 10, 10, 20]))
    ]
    here, there = (Profile(light=each) for each in launches)
    recording = equal_speedups.by_launch("made", here, [there])
    made = equal_speedups.for_each_part(recording, 1, seed=3)
    assert len(made.representatives.row) == 2
    assert made.evaluation.projected == pytest.approx(60)
    found = recording.targets[0].score(made, "light_time")
    assert (found.signed_error_percent, found.part_error_percent) == pytest.approx((0, 0))
