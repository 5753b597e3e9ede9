"""The section on intervals of other GPUs, in its short form."""

from __future__ import annotations

import pytest

from tests.fidelity import target_coverage
from tests.fidelity.section import Effort, Section


@pytest.fixture(scope="module")
def short() -> Section:
    return target_coverage.section(Effort.SHORT)


def test_every_pair_has_every_design(short: Section) -> None:
    cells = {(row[0], row[1], row[2]) for row in short.rows}
    pairs = {pair for pair, _, _ in cells}
    assert {"made", "virtual solver V100 to RTX 2060"} <= pairs
    assert len(cells) == len(short.rows) == len(pairs) * 3 * 2
    assert "## Intervals of the total on another GPU" in short.markdown()


def test_few_launches_are_withheld_and_fifty_hold_the_truth(short: Section) -> None:
    for _, _, drawn, *_, held, half, _ in short.rows:
        assert (held == "withheld") == (drawn == "2")
        if drawn == "50":
            assert float(held.removesuffix(" %")) >= 80, "of 60 samples; the full bench has 2,000"
            assert 0 <= float(half.removesuffix(" %")) < 30
