"""Kills of agent, server and both in a campaign of recorded runs: nothing differs.

Nine kills in 12 runs; ``make kills`` kills thirty times in 32.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from tests.support.integration.harness import Lab, lab
from tests.support.integration.kills import MANY_KILLS
from tests.support.integration.paced_recordings import write_paced_recordings

pytestmark = pytest.mark.processes

LAUNCHES = 400
RUNS, KILLS = (32, 30) if MANY_KILLS else (12, 9)
PLAYED_SECONDS = 0.4  # each recording is played at its own pace, so that kills fall into it


def begin(laboratory: Lab, campaign: Path) -> str:
    laboratory.start_server()
    laboratory.start_agent()
    return laboratory.submit(campaign)


def test_kills_change_neither_the_records_nor_the_report(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text(
        write_paced_recordings(tmp_path, runs=RUNS, launches=LAUNCHES, seconds=PLAYED_SECONDS)
    )
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
        assert json.loads(laboratory.assay("lab", "status", "--json").stdout)["set_aside"] == []
