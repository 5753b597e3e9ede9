"""Two levels by default hold on the next GPU, whatever the window, where published groups do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from tests.fidelity import two_levels_on_gpus
from tests.fidelity.section import Effort
from tests.support.sampling.published import PUBLISHED_PKS


@pytest.mark.shared_data
def test_the_short_section_keeps_its_bounds(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_SHARED_DATA", str(shared_data))
    section = two_levels_on_gpus.section(Effort.SHORT)
    assert section.missed == []
    assert [row[3] for row in section.rows] == ["2 of 2", "2 of 2"]
    assert "Synthetic" in section.markdown()


@pytest.mark.shared_data
def test_published_groups_miss_them(shared_data: Path) -> None:
    folder, options = shared_data / "three_gpus", ReadOptions(synthetic=True)
    light = read_launches(folder / "v100_light.json.gz", options)
    window = read_launches(folder / "v100.csv.gz", options).slice(0, 200)
    cost = read_launches(folder / "rtx2060.csv.gz", options).column("cycles_gpc_avg")
    made = select("pks", Profile(detailed=window, light=light), PUBLISHED_PKS)
    errors = two_levels_on_gpus.errors_on(made, light, np.asarray(cost))
    assert errors.total > 15 and errors.groups > 20 and not errors.kept
