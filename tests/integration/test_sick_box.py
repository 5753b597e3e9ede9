"""A box whose disk is full, beside a healthy one: it costs the campaign nothing, and is said to rest.

Sixty runs in every test, two hundred by ``make kills``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_client.api import Client
from tests.support.integration.harness import Lab, lab, wait_until
from tests.support.integration.kills import MANY_KILLS
from tests.support.integration.made_trace import campaign

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

RUNS = 200 if MANY_KILLS else 60
# No disk has that much space left: every attempt of this agent ends in "disk_full".
FULL = ("--minimum-free", str(1 << 62))


def counts(laboratory: Lab, campaign_id: str) -> dict[str, int]:
    with Client(laboratory.address) as client:
        states = [run["state"] for run in client.status(campaign_id)["runs"]]
    return {state: states.count(state) for state in sorted(set(states))}


def test_all_runs_are_done_beside_a_box_with_a_full_disk(tmp_path: Path) -> None:
    with lab() as laboratory:
        laboratory.start_server()
        laboratory.start_agent("sick", *FULL)
        laboratory.start_agent("healthy")
        campaign_id = laboratory.submit(campaign(tmp_path, RUNS))
        wait_until(
            lambda: not {"running", "waiting"} & counts(laboratory, campaign_id).keys(), "all runs' end", 240
        )
        assert counts(laboratory, campaign_id) == {"done": RUNS}


def test_status_says_which_slot_rests_and_that_a_campaign_waits_for_it(tmp_path: Path) -> None:
    with lab() as laboratory:
        laboratory.start_server()
        laboratory.start_agent("sick", *FULL)
        campaign_id = laboratory.submit(campaign(tmp_path, 2))

        def is_said(what: str, *verb: str) -> bool:
            """In one look: a rest ends by itself, and the next one is longer."""
            said[:] = [laboratory.assay("lab", "status", *verb).stdout]
            return what in said[0]

        said: list[str] = []
        wait_until(lambda: is_said("slot recorded-0 of agent sick rests for"), "a rest")
        assert "must stay free [disk_full]" in said[0]
        waits = "waiting: every slot for the playing of recordings rests, with a retry"
        wait_until(lambda: is_said(waits, campaign_id), "the wait for its end")
        laboratory.start_agent("healthy")
        assert laboratory.wait_for(campaign_id) == "done"
        assert "rests for 5 s (failures in a row: 1)" in (laboratory.root / "server.log").read_text()
