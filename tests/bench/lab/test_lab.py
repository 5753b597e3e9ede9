"""The lab in its short form: 40 agents and 2,000 queued runs. Checks what is right, never how fast."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.parquet as pq

from assay_client.remote.connection import Connection
from assay_core.records.campaign import RunState
from assay_server.app import Server
from assay_server.config import ServerSettings
from tests.bench.lab.agents import LAUNCHES, Fleet, simulated_lab
from tests.bench.lab.campaigns import KIND, OTHER_KIND, campaign_of, shared_out
from tests.bench.lab.figures import Counts
from tests.bench.lab.measuring import LabSize, Phase, rows
from tests.support.server.server_support import StandInExecutor

AGENTS, RUNS, CAMPAIGNS, FINISHED = 40, 2_000, 4, 60
_PATIENCE_SECONDS = 60.0  # as for the other calls: how soon a busy machine answers is for the benchmark


async def _play(address: str) -> Counts:
    """Idle agents of a kind that nobody asks for, then work; ends as soon as enough runs have ended."""
    async with (
        simulated_lab(
            address, AGENTS, OTHER_KIND, least_heartbeat_patience_seconds=_PATIENCE_SECONDS
        ) as fleet,
        fleet.watching("lab-0000-1", 1),
    ):
        await _until(lambda: len(fleet.counts.heartbeats) >= AGENTS)
        assert not fleet.counts.leases
        await fleet.become(KIND, over_seconds=0.1)
        await _until(lambda: len(fleet.counts.finished) >= FINISHED)
        return await _at_rest(fleet)


async def _at_rest(fleet: Fleet) -> Counts:
    """The counts once no run is under way: the agents ask for work no longer, and end what they have."""
    await fleet.rest()
    return fleet.counts


async def _until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


def _submit(address: str) -> list[str]:
    with Connection(address) as client:
        return [
            client.submit(campaign_of(name, runs), f"{name}.yaml", "/lab").campaign_id
            for name, runs in shared_out(RUNS, CAMPAIGNS)
        ]


def test_forty_agents_do_each_run_once_and_miss_no_heartbeat(tmp_path: Path):
    settings = ServerSettings(
        state_dir=tmp_path / "state", listen=(f"unix:{tmp_path / 'socket'}",), heartbeat_ms=1000
    )
    with Server(settings, make_executor=StandInExecutor) as server:
        [address] = server.addresses
        campaigns = _submit(address)
        counts = asyncio.run(_play(address))
        with Connection(address) as client:
            statuses = [client.status(campaign_id) for campaign_id in campaigns]

    done = {run.run_id: run for s in statuses for run in s.runs if run.state is RunState.DONE}
    finished = [key.run_id for key in counts.finished]
    assert sum(status.runs_total for status in statuses) == RUNS
    assert len(finished) >= FINISHED
    assert sorted(finished) == sorted(done), "every finished run is done, once, and no other is"
    assert {run.launches for run in done.values()} == {LAUNCHES}
    files = list((tmp_path / "state" / "records").rglob("*.parquet"))
    assert sorted(file.parent.name for file in files) == sorted(done)
    assert {pq.read_metadata(file).num_rows for file in files} == {LAUNCHES}
    assert not list((tmp_path / "state" / "staging").rglob("*.*"))
    assert counts.heartbeats_missed == 0
    assert counts.refused == []
    assert counts.statuses > 0


def test_a_campaign_has_exactly_the_runs_that_are_asked_for():
    assert [runs for _, runs in shared_out(10, 4)] == [3, 3, 2, 2]
    assert "repeats: 1000" in campaign_of("many", 100_000)
    assert campaign_of("many", 100_000).count("command:") == 100
    assert campaign_of("odd", 1009).count("command:") == 1009


def test_a_smaller_lab_keeps_its_phases():
    assert LabSize().scaled(0.02) == LabSize(agents=10, runs=2_000)
    assert LabSize(campaigns=50).scaled(0.0001).campaigns == 10


def test_the_table_counts_what_came_late():
    counts = Counts(leases=[0.010] * 99 + [1.0], refused=["lease: UNAVAILABLE"])
    counts.note_heartbeat(0.9, 1.0)
    counts.note_heartbeat(1.1, 1.0)

    told = list(rows(Phase("idle", 10.0, 0.05, 100.0, 1.0, counts)))

    assert told == [
        "| idle | 0.0 | 10.0 | 19.9 | 2 | 1000.0 | 1098.0 | 1 | 0 | 1 | 0 | 0.05 | 100 | 1.0 |",
        "<!-- refused in idle: {'lease: UNAVAILABLE': 1} -->",
    ]
