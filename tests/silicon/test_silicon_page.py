"""docs/silicon.md says what its recordings give: checked on one pair of GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.silicon.page import keeps, scores_section
from tests.silicon.recordings import TRACES, Case, Goal
from tests.silicon.scores import Bench, Score

PAGE = Path(__file__).resolve().parents[2] / "docs" / "silicon.md"


@pytest.mark.usefixtures("shared_data")
@pytest.mark.parametrize("backwards", [False, True])
def test_the_page_has_the_scores_of_a_real_pair(backwards: bool) -> None:
    pair = TRACES[0].backwards() if backwards else TRACES[0]
    bench = Bench(pair)
    scored = [bench.scored(Case("stem"))]
    lines = scores_section(scored, [bench]).markdown().splitlines()
    rows = [line for line in lines if line.startswith(f"| {pair.workload} |")]
    assert len(rows) == 2
    page = PAGE.read_text()
    assert all(line in page for line in rows)
    assert bench.matched_time_percent == (100, 100)


def score(speedup: float, total: float, group: float, units: int = 100) -> Score:
    return Score("light_time", units, 10, speedup, total, group, None, 100)


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (score(3, 3, 6), True),
        (score(2.9, 3, 6), False),
        (score(3, 3.1, 6), False),
        (score(3, 3, 6.1), False),
        (score(3, 3, 6, units=99), False),
    ],
)
def test_a_goal_is_kept_only_with_all_of_its_bounds(found: Score, kept: bool) -> None:
    assert keeps(Goal(3, 100, 3, 6), found) is kept
