"""The short form of the fidelity bench's section on intervals, and what counts as a missed bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fidelity.coverage import Cell, section
from tests.fidelity.section import Effort


def test_intervals_cover_on_a_recording_and_on_heavy_tails(shared_data: Path) -> None:
    found = section(Effort.SHORT)
    assert found.missed == []
    cells = {(row[0], row[1]): row for row in found.rows}
    huge = cells["made/rare_huge", "random"]
    assert float(huge[3]) < 25
    assert float(huge[5]) > 90
    assert {row[-1] for row in found.rows} == {"0"}


@pytest.mark.parametrize(
    ("method", "after", "skewness", "missed"),
    [
        ("random", (0.95, 1.0), 0.0, 0),
        ("random", (0.92, 1.0), 3.0, 1),
        ("random", (0.99, 1.4), 0.1, 2),
        ("random", (0.99, 1.4), 2.0, 0),
        ("random", None, 0.0, 1),
        ("sieve, launches_per_group=2", None, 0.0, 0),
    ],
)
def test_which_bounds_a_cell_misses(
    method: str, after: tuple[float, float | None] | None, skewness: float, missed: int
) -> None:
    assert len(list(Cell("made", method, 10, None, after, skewness).missed(0.93))) == missed
