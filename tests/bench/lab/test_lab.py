"""The lab in its short form: 40 agents and 2,000 queued runs. Checks what is right, never how fast."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from assay_client.remote.connection import Connection
from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import RunState
from assay_server.app import Server
from assay_server.config import ServerSettings
from tests.bench.lab.agents import LAUNCHES, Fleet, simulated_lab
from tests.bench.lab.campaigns import KIND, OTHER_KIND, campaign_of, shared_out
from tests.bench.lab.figures import Counts
from tests.bench.lab.goals import Phase, Phases, goals_of, lease_goals
from tests.bench.lab.measuring import LabSize, rows
from tests.bench.leases import lease_labs
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

    told = list(rows(Phase("idle", 10.0, 0.05, 100.0, 1.0, counts, 0.25)))

    assert told == [
        "| idle | 0.0 | 10.0 | 19.9 | 2 | 1000.0 | 1098.0 | 1 | 0 | 1 | 0 | 0.05 | 100 | 1.0 | 0.25 |",
        "<!-- refused in idle: {'lease: UNAVAILABLE': 1} -->",
    ]


def _phase(
    finished: int = 0, cores: float = 0.05, heartbeat: float = 0.1, lease: float = 0.01, mib: float = 100.0
) -> Phase:
    counts = Counts(leases=[lease] * 10, finished=[AttemptKey("r", 0, 1, n) for n in range(finished)])
    counts.note_heartbeat(heartbeat, 1.0)
    return Phase("some", 10.0, cores, mib, 1.0, counts)


@pytest.mark.parametrize(
    ("phases", "broken"),
    [
        (Phases(_phase(), [0.5] * 9, _phase(), _phase(), _phase(340)), []),
        (Phases(_phase(cores=0.51), [0.5] * 9, _phase(), _phase(), _phase(340)), ["9 idle slots"]),
        (Phases(_phase(), [0.5] * 9, _phase(lease=0.101), _phase(), _phase(340)), ["lease call"]),
        (
            Phases(_phase(), [0.5] * 9, _phase(cores=1.01), _phase(), _phase(340)),
            ["server while runs last, cores"],
        ),
        (
            Phases(_phase(), [0.5] * 9, _phase(mib=401), _phase(), _phase(340)),
            ["server while runs last, MiB"],
        ),
        (Phases(_phase(), [0.5] * 9, _phase(), _phase(heartbeat=0.6), _phase(340)), ["heartbeat with"]),
        (Phases(_phase(), [0.5] * 9, _phase(), _phase(), _phase(340, heartbeat=1.1)), ["heartbeats late"]),
        (Phases(_phase(), [0.5] * 9, _phase(), _phase(), _phase(339)), ["finished runs"]),
        (
            Phases(_phase(), [1.1] * 9, _phase(), _phase(), _phase(340)),
            ["idle slot to work that is submitted, m"],
        ),
        (Phases(_phase(), [0.1] * 9 + [2.5], _phase(), _phase(), _phase(340)), ["idle slot to work"]),
    ],
)
def test_each_goal_is_judged_by_the_phase_that_it_is_about(phases: Phases, broken: list[str]):
    told = [goal for goal in goals_of(phases, 9) if not goal.holds]
    assert [goal.text.startswith(start) for goal, start in zip(told, broken, strict=True)] == [True] * len(
        told
    )


def test_leases_are_compared_over_ten_times_the_runs_and_a_thousand_times_the_campaigns():
    labs = [(lab.campaigns, lab.queued) for lab in lease_labs(100_000)]
    assert labs == [(50, 10_000), (50, 100_000), (1, 10_000), (1_000, 10_000)]

    goals = list(lease_goals(dict(zip(labs, (1.0, 1.4, 1.0, 1.6), strict=True))))

    assert [(goal.text, goal.measured, goal.holds) for goal in goals] == [
        ("lease with 100,000 / 10,000 queued runs, CPU time", "1.4", True),
        ("lease with 1,000 / 1 campaigns, CPU time", "1.6", False),
    ]
