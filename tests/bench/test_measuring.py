"""The benchmark at a small scale: it measures what it says, and divides by no zero."""

from __future__ import annotations

import math

from assay_sampling.projection.projector import Projector
from tests.bench.__main__ import exit_code
from tests.bench.lab.goals import Goal
from tests.bench.measure import Result
from tests.bench.streaming import project


def test_projecting_fewer_samples_than_a_chunk_still_pushes_every_sample(monkeypatch):
    pushed = []
    push = Projector.push
    monkeypatch.setattr(Projector, "push", lambda self, *sample: (pushed.append(1), push(self, *sample)))

    measured = project(15)

    assert len(pushed) == measured.launches == 15
    assert measured.seconds > 0


def test_a_case_faster_than_the_clock_has_a_rate():
    result = Result("quick", 1, 1000, 0.0, 1, {})

    assert math.isfinite(result.launches_per_second)
    assert result.launches_per_second > 0


def test_a_missed_goal_ends_the_command_with_an_error_that_names_it(capsys):
    kept = Goal("leases", "10", "at most 20", True)
    missed = Goal("finished runs a second", "59", "at least 60", False)

    assert exit_code([]) == exit_code([kept]) == 0
    assert exit_code([kept, missed]) == 1
    assert capsys.readouterr().err == "missed: finished runs a second: 59, at least 60\n"
