"""The section on slices: plans for the demo's workloads, and what slices see that windows do not."""

from __future__ import annotations

import pytest

from tests.fidelity import slices
from tests.fidelity.section import Effort


@pytest.mark.parametrize("name", slices.WORKLOADS)
def test_slices_see_what_was_asked_for_with_few_launches(name: str) -> None:
    for share in (5.0, 1.0, 0.0):
        windows = slices.planned(name, share)
        assert slices.unseen_percent(name, windows) <= share
        assert sum(count for _, count in windows) < 0.1 * slices.launches_of(name)


def test_windows_of_as_many_launches_leave_more_unseen() -> None:
    planned = {name: slices.planned(name, 1.0) for name in slices.WORKLOADS}
    first = {name: [(0, sum(count for _, count in windows))] for name, windows in planned.items()}
    worst = max(slices.unseen_percent(name, windows) for name, windows in first.items())
    assert worst > 30.0


def test_the_short_form_has_a_line_for_each_window() -> None:
    found = slices.section(Effort.SHORT)
    assert [row[0] for row in found.rows] == [
        "first 1 %", "first 5 %", "auto, 1 %", "first, as many as auto, 1 %",
    ]  # fmt: skip
    assert found.markdown()
