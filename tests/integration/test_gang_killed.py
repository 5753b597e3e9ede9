"""Runs over all GPUs of a box while its agent, their tool or the server is killed (-9): nothing is lost or
doubled, and both GPUs are free again.

Everything is synthetic: the tool's process plays all ranks, so whoever kills it kills
them all, as a launcher such as torchrun does when one of its ranks dies.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay_client.api import Client
from assay_core.records.campaign import AttemptState
from assay_server.store.sqlite import SqliteStore
from tests.support.integration.harness import Lab, lab, wait_until
from tests.support.integration.kills import MANY_KILLS
from tests.support.machine.commands import running_commands

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

RUNS, ROUNDS, SEED = (4, 6, 23) if MANY_KILLS else (3, 1, 23)
LONGEST_MOMENT_S = 1.0
ENDED = 1 << 30
WORKLOAD = """\
workload = "ranks{number}"
seed = {number}
[kernels.one]
name = "one"
block = 256
instructions = 100
[kernels.two]
name = "two"
block = 128
instructions = 900
[[phases]]
repeat = 8000
variables.size = {{ choices = [1, 2, 4], probabilities = [0.5, 0.3, 0.2] }}
steps = [{{ kernel = "one", grid = 40, grid_by = "size" }}, {{ kernel = "two", grid = 320 }}]
"""
CAMPAIGN = """\
campaign: {name}
synthetic: true
gpus: [V100]
detailed: none
workloads:
{workloads}
analysis: {{methods: [random: {{launches: 4}}]}}
"""
GANGS = [f"  - {{name: w{n}, command: [ranks{n}.toml], gang: 2}}" for n in range(RUNS)]
SINGLES = [f"  - {{name: w{n}, command: [ranks{n}.toml]}}" for n in range(2)]


def start_agent(laboratory: Lab) -> None:
    laboratory.start_agent("agent", "--recorded-slots=0", "--virtual=V100:2")


def submit(laboratory: Lab, name: str, workloads: list[str]) -> str:
    for number in range(RUNS):
        (laboratory.root / f"ranks{number}.toml").write_text(WORKLOAD.format(number=number))
    path = laboratory.root / f"{name}.yaml"
    path.write_text(CAMPAIGN.format(name=name, workloads="\n".join(workloads)))
    return laboratory.submit(path)


def tools_of(laboratory: Lab) -> list[int]:
    """The processes that play gangs of this lab's agent: children of it that name a workload file."""
    agent = laboratory.processes["agent"].pid
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            session = int((place / "stat").read_text().rpartition(")")[2].split()[3])
            words = (place / "cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            continue
        ours = os.fsencode(str(laboratory.root)) in words and b"ranks" in words
        if ours and int(place.name) != agent and session != os.getsid(0):
            found.append(int(place.name))
    return found


def kill(laboratory: Lab, what: str) -> bool:
    """Kill it, and start it again; whether there was something to kill."""
    if what == "tool":
        killed = False
        for process in tools_of(laboratory):
            try:
                os.kill(process, signal.SIGKILL)
                killed = True
            except ProcessLookupError:
                pass
        return killed
    laboratory.kill(what)
    if what == "server":
        laboratory.start_server()
    else:
        start_agent(laboratory)
    return True


def kill_again_and_again(laboratory: Lab, campaign_id: str) -> dict[str, int]:
    """Kill each kind of process within attempts of the campaign; how often each was."""
    moments, killed = random.Random(SEED), {"agent": 0, "tool": 0, "server": 0}
    for what in ("tool", "agent", "server") * ROUNDS:
        before = begun(laboratory, campaign_id)
        if what == "tool":
            wait_until(
                lambda: bool(tools_of(laboratory)) or begun(laboratory, campaign_id) == ENDED, "a tool", 120
            )
            time.sleep(moments.uniform(0, LONGEST_MOMENT_S / 10))
        else:
            wait_until(lambda before=before: begun(laboratory, campaign_id) > before, "the next attempt", 120)
            time.sleep(moments.uniform(0, LONGEST_MOMENT_S))
        killed[what] += kill(laboratory, what)
    return killed


def begun(laboratory: Lab, campaign_id: str) -> int:
    with Client(laboratory.address) as client:
        status = client.status(campaign_id)
        return ENDED if status["state"] != "running" else sum(run["attempts"] for run in status["runs"])


def test_gangs_that_are_killed_at_many_moments_make_the_same_records() -> None:
    with lab(lease_ms=20_000, heartbeat_ms=500) as undisturbed:
        undisturbed.start_server()
        start_agent(undisturbed)
        assert undisturbed.wait_for(submit(undisturbed, "gangs", GANGS), 300) == "done", undisturbed.logs()
        expected = published(undisturbed)
    assert len(expected) == RUNS
    with lab(lease_ms=20_000, heartbeat_ms=500) as laboratory:
        laboratory.start_server()
        start_agent(laboratory)
        campaign_id = submit(laboratory, "gangs", GANGS)
        killed = kill_again_and_again(laboratory, campaign_id)
        assert laboratory.wait_for(campaign_id, 300) == "done", laboratory.logs()
        assert published(laboratory) == expected
        print(f"\nkilled: {killed}")
        # Both GPUs are free: runs on one GPU each get them.
        after = submit(laboratory, "after", SINGLES)
        assert laboratory.wait_for(after, 120) == "done", laboratory.logs()
        with Client(laboratory.address) as client:
            slots = [slot for agent in client.agents()["agents"] for slot in agent["slots"]]
            assert len(slots) == 2 and not any(slot["run_id"] or slot["leased_at"] for slot in slots)
        for name in list(laboratory.processes):
            assert laboratory.stop(name) == 0, laboratory.logs()
        assert tools_left(laboratory) == []
        check_attempts(laboratory, campaign_id, killed)


def published(laboratory: Lab) -> dict[str, pa.Table]:
    """Every published launch, by file; without the metadata, which name the GPUs of this lab."""
    records = laboratory.server_state / "records"
    return {
        str(path.relative_to(records)): pq.read_table(path).replace_schema_metadata()
        for path in sorted(records.rglob("*.parquet"))
    }


def tools_left(laboratory: Lab) -> list[str]:
    """What is left of the agents' tools once all have ended."""
    root = os.fsencode(str(laboratory.root))
    return [
        words.replace(b"\0", b" ").decode(errors="replace")
        for _, words in running_commands()
        if root in words
    ]


def check_attempts(laboratory: Lab, campaign_id: str, killed: dict[str, int]) -> None:
    store = SqliteStore(laboratory.server_state / "metadata.sqlite")
    with store.snapshot() as read:
        attempts = [a for run in read.runs(campaign_id) for a in read.attempts(run.run_id)]
        every = read.attempts_in((AttemptState.LEASED, AttemptState.PUBLISHING))
    store.close()
    assert every == []
    whole = [a.key.run_id for a in attempts if a.state is AttemptState.PUBLISHED]
    assert len(whole) == len(set(whole)) == RUNS
    # Each attempt had both GPUs, and a kill cost at most the attempt that it hit.
    assert all(len(set(a.slots)) == 2 for a in attempts)
    assert killed["agent"] == ROUNDS and killed["tool"] >= 1 and killed["server"] == ROUNDS
    assert 1 <= len(attempts) - RUNS <= sum(killed.values())
