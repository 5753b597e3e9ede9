"""Thirty kills in a campaign of 32 recorded runs, of agent, server and both: nothing differs."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest

from assay_core.files.launch_file import new_launch_file
from assay_sampling.launches.table import (
    BASELINE,
    LaunchBatch,
    Names,
    TableMetadata,
    launch_schema,
    make_batch,
)
from tests.support.integration.harness import Lab, lab

pytestmark = pytest.mark.processes

RUNS, KILLS, LAUNCHES = 32, 30, 400
PLAYED_SECONDS = 0.4  # each recording is played at its own pace, so that kills fall into it


def write_recordings(folder: Path) -> str:
    """Synthetic recordings, one a workload, and the text of their campaign."""
    schema = launch_schema(TableMetadata(level="light", origin="synthetic", condition=BASELINE))
    text = "campaign: chaos\nsynthetic: true\nseed: 5\nplayback: recorded_time\n"
    text += "analysis: {methods: [random, systematic]}\nworkloads:\n"
    for number in range(RUNS):
        chance, names = np.random.default_rng(number), Names()
        kernels = np.array([names.intern(f"kernel<{i}>(float*)") for i in range(7)], np.uint64)
        launch = np.arange(LAUNCHES)
        columns = {
            "process": np.zeros(LAUNCHES, np.int32),
            "launch": launch,
            "kernel_id": kernels[chance.integers(0, 7, LAUNCHES)],
            "grid_x": chance.integers(1, 50, LAUNCHES),
            "block_x": np.full(LAUNCHES, 128),
            "start_ns": launch * int(PLAYED_SECONDS * 1e9 / LAUNCHES),
            "duration_ns": chance.integers(500, 90_000, LAUNCHES),
        }
        path = folder / f"recording-{number}.parquet"
        with new_launch_file(path, schema) as writer:
            writer.write(LaunchBatch(make_batch(schema, columns), dict(names.items())))
        text += f"  - {{name: w{number}, recordings: [{{device: V100, light: {path}}}]}}\n"
    return text


def begin(laboratory: Lab, campaign: Path) -> str:
    laboratory.start_server()
    laboratory.start_agent()
    return laboratory.submit(campaign)


def test_thirty_kills_change_neither_the_records_nor_the_report(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text(write_recordings(tmp_path))
    with lab() as laboratory:
        campaign_id = begin(laboratory, campaign)
        assert laboratory.wait_for(campaign_id, 300) == "done"
        records, report = laboratory.store_digest(), laboratory.report(campaign_id)
    assert len(records) == RUNS
    chance = random.Random(11)
    with lab() as laboratory:
        campaign_id = begin(laboratory, campaign)
        for number in range(KILLS):
            time.sleep(chance.uniform(0.0, 0.8))
            for name in (("agent",), ("server",), ("agent", "server"))[number % 3]:
                laboratory.kill(name)
                (laboratory.start_agent if name == "agent" else laboratory.start_server)()
        assert laboratory.wait_for(campaign_id, 300) == "done"
        assert laboratory.store_digest() == records
        assert laboratory.report(campaign_id) == report
        # A kill leaves nothing that a person would have to look at.
        assert json.loads(laboratory.assay("status", "--json").stdout)["set_aside"] == []
