"""The section on what predicts errors runs, and its bounds hold in short."""

from __future__ import annotations

from pathlib import Path

from tests.fidelity import window_predictors
from tests.fidelity.section import Effort


def test_the_errors_to_expect_predict_those_on_other_gpus(shared_data: Path) -> None:
    assert shared_data.is_dir()
    section = window_predictors.section(Effort.SHORT)
    assert [row[0] for row in section.rows] == [name for name in window_predictors.GROUPS for _ in range(6)]
    assert section.missed == []
    assert "What predicts" in section.markdown()
