"""The section of compared methods: random loses its star on a real recording, and nobody lucky has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fidelity import comparison
from tests.fidelity.section import Effort


@pytest.mark.usefixtures("shared_data")
def test_random_loses_the_star_that_short_launches_gave_it() -> None:
    found = comparison.section(Effort.SHORT)
    assert found.missed == []
    by_method = {row[1]: dict(zip(found.columns, row, strict=True)) for row in found.rows}
    random = by_method["random"]
    assert (random["error % before"], random["speedup before"], random["star before"]) == ("15.8", "9.4", "*")
    assert float(random["fair error %"]) > 40
    assert random["star"] == ""
    assert by_method["stem"]["recommended"] == "yes"


def test_without_recordings_it_is_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASSAY_SHARED_DATA", str(tmp_path / "nowhere"))
    assert comparison.section(Effort.SHORT).rows == []
