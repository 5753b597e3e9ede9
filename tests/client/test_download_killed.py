"""A download of launches goes on where it was after the server was killed and started again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import assay
from tests.support.integration.harness import Lab

LAUNCHES = 200_000
CAMPAIGN = """\
campaign: long
synthetic: true
seed: 3
workloads:
  - name: long
    recordings:
      - {device: V100, light: long.parquet}
analysis:
  methods:
    - random: {launches: 5}
"""


@pytest.fixture
def root() -> Iterator[Path]:
    # The path of a Unix socket has at most about 100 bytes: the folders of pytest are too deep.
    folder = Path(tempfile.mkdtemp(prefix="assay-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.processes
def test_a_download_goes_on_after_the_server_was_killed(root: Path) -> None:
    times = np.arange(LAUNCHES, dtype=float) % 977 + 100
    frame = pd.DataFrame({"kernel": "k", "grid_x": 64, "block_x": 128, "duration_ns": times})
    profile = assay.Profile.from_pandas(frame, synthetic=True, device="Tesla V100-SXM2-16GB")
    profile.write(root / "long.parquet")
    (root / "campaign.yaml").write_text(CAMPAIGN)
    with assay.Server.local(root) as server:
        identifier = server.submit(root / "campaign.yaml").wait().id
    lab = Lab(root, f"unix:{root}/lab")
    try:
        lab.start_server()
        with assay.Server(lab.address) as server:
            stream = server.campaign(identifier).records().batches(["launch", "duration_ns"])
            batches = [next(stream)]
            assert 0 < batches[0].num_rows < LAUNCHES
            lab.kill("server")
            lab.start_server()
            batches += stream
        found = [
            np.concatenate([batch[name].to_numpy() for batch in batches])
            for name in ("launch", "duration_ns")
        ]
        assert np.array_equal(found[0], np.arange(LAUNCHES)) and np.array_equal(found[1], times)
    finally:
        for name in tuple(lab.processes):
            lab.kill(name)
