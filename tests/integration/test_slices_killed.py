"""Slices of a detailed run while its agent is killed (-9), and shared by two equal GPUs: the same profile.

``make slices`` runs the long form: 100,000 launches and 20 kills (``ASSAY_SLICES=full``). Everything is
synthetic. Nothing here is about speed: the work of GPUs is counted in launches that
their tools went through, never in seconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from assay_client.api import Client
from assay_core.records.campaign import AttemptState
from assay_sampling.launches.in_memory import Launches
from assay_server.analysis.runs.loading import load_run
from assay_server.campaigns.analysing.analyses import analysis_request
from assay_server.store.model import Attempt, Run, Slice
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.integration.harness import Lab, lab, wait_until

# One worker runs the whole module: what its tests look at is made once, and takes long.
pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("slices_killed"),
]

FULL = os.environ.get("ASSAY_SLICES") == "full"
LAUNCHES, SLICE, KILLS = (100_000, 5_000, 20) if FULL else (5_000, 1_000, 5)
SEED = 11
LONGEST_MOMENT_S = 3.0 if FULL else 1.0
WORKLOAD = f"""\
workload = "long"
seed = 5
[buffers]
x = "8 MiB"
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
global_stores = 2
reads = {{ x = 1.0 }}
writes = {{ x = 0.5 }}
[kernels.sum]
name = "void sum<float>(float const*, float*)"
block = 256
instructions = 900
global_loads = 8
global_atomics = 0.5
[[phases]]
repeat = {LAUNCHES // 5}
variables.size = {{ choices = [1, 2, 4], probabilities = [0.5, 0.3, 0.2] }}
steps = [
    {{ kernel = "scale", grid = 64, grid_by = "size", times = 3 }},
    {{ kernel = "sum", grid = 320, times = 2 }},
]
"""
CAMPAIGN = """\
campaign: {name}
synthetic: true
gpus: [{kind}]
detailed: {{first: {launches}, slice_launches: {slice}, sets: features}}
workloads: [{{name: long, command: [long.toml]}}]
analysis: {{methods: [random: {{launches: 4}}]}}
"""


@dataclass(frozen=True)
class Profiled:
    """The detailed run of a campaign that has ended: its launches, slices and attempts."""

    run: Run
    slices: list[Slice]
    attempts: list[Attempt]
    launches: Launches

    @property
    def content(self) -> dict[str, pa.ChunkedArray]:
        """Every column but those that tell how it was made: the place in a tool's report, and the GPU."""
        table = self.launches.table.combine_chunks()
        return {name: table[name] for name in table.schema.names if name not in ("report_id", "device")}

    def work_by_gpu(self) -> dict[str, int]:
        """Launches that the tools of each GPU went through, skipped or profiled, for what was published."""
        work: dict[str, int] = defaultdict(int)
        for attempt in self.attempts:
            if attempt.state is AttemptState.PUBLISHED:
                piece = self.slices[attempt.key.slice_index]
                work[attempt.slot_id] += piece.launch_skip + piece.launch_count
        return dict(work)


@dataclass(frozen=True)
class Finished:
    """Three campaigns of one workload: killed, in one slice undisturbed, and on two GPUs."""

    killed: Profiled
    whole: Profiled
    shared: Profiled
    kills: int


@pytest.fixture(scope="module")
def finished() -> Iterator[Finished]:
    with lab(lease_ms=60_000, heartbeat_ms=500) as laboratory:
        (laboratory.root / "long.toml").write_text(WORKLOAD)
        laboratory.start_server()
        killed = submit(laboratory, "killed", SLICE)
        kills = kill_again_and_again(laboratory, killed)
        whole = submit(laboratory, "whole", LAUNCHES)
        assert [laboratory.wait_for(c, 900) for c in (killed, whole)] == ["done", "done"], laboratory.logs()
        assert laboratory.stop("agent") == 0
        laboratory.start_agent("pair", "--recorded-slots=0", "--virtual=V100:2")
        shared = submit(laboratory, "shared", SLICE)
        assert laboratory.wait_for(shared, 900) == "done", laboratory.logs()
        for name in list(laboratory.processes):
            assert laboratory.stop(name) == 0, laboratory.logs()
        yield Finished(*(profiled(laboratory, c) for c in (killed, whole, shared)), kills)


def submit(laboratory: Lab, name: str, slice_launches: int) -> str:
    path = laboratory.root / f"{name}.yaml"
    path.write_text(CAMPAIGN.format(name=name, kind="V100", launches=LAUNCHES, slice=slice_launches))
    return laboratory.submit(path)


def start(laboratory: Lab) -> None:
    laboratory.start_agent("agent", "--recorded-slots=0", "--virtual=V100")


def kill_again_and_again(laboratory: Lab, campaign_id: str) -> int:
    """Kill the agent at a random moment of an attempt, and start it again; how often before the run's end."""
    moments = random.Random(SEED)
    with Client(laboratory.address) as client:
        for kill in range(KILLS):
            before = attempts_of(client, campaign_id)
            start(laboratory)
            wait_until(
                lambda before=before: attempts_of(client, campaign_id) > before, "the next attempt", 120
            )
            if client.status(campaign_id)["runs"][0]["state"] == "done":
                return kill
            time.sleep(moments.uniform(0, LONGEST_MOMENT_S))
            laboratory.kill("agent")
        start(laboratory)
    return KILLS


def attempts_of(client: Client, campaign_id: str) -> int:
    status = client.status(campaign_id)
    return int(status["runs"][0]["attempts"]) if status["runs"][0]["state"] != "done" else 1 << 30


@contextlib.contextmanager
def opened(laboratory: Lab) -> Iterator[SqliteStore]:
    store = SqliteStore(laboratory.server_state / "metadata.sqlite")
    try:
        yield store
    finally:
        store.close()


def profiled(laboratory: Lab, campaign_id: str) -> Profiled:
    records = LocalRecordStore(laboratory.server_state)
    with opened(laboratory) as store, store.snapshot() as read:
        run = read.runs(campaign_id)[0]
        request = analysis_request(read, campaign_id, records)
        data = next(data for data in request.runs if data.run_id == run.run_id)
        slices, attempts = read.slices(run.run_id), read.attempts(run.run_id)
    return Profiled(run, slices, attempts, load_run(data, 4 << 30))


def test_the_agent_was_killed_as_often_as_planned_and_attempts_were_lost(finished: Finished) -> None:
    assert finished.kills == KILLS
    made = finished.killed
    states = [attempt.state for attempt in made.attempts]
    assert states.count(AttemptState.PUBLISHED) == len(made.slices) == LAUNCHES // SLICE
    lost = [attempt for attempt in made.attempts if attempt.state is not AttemptState.PUBLISHED]
    print(f"\n{KILLS} kills, {len(made.slices)} slices, {len(lost)} attempts lost")
    # A kill costs at most the one slice that was being made.
    assert 1 <= len(lost) <= KILLS
    causes = {attempt.failure.failure_class for attempt in lost if attempt.failure}
    assert causes <= {"agent_restarted", "lease_expired"}


def test_a_restarted_agent_goes_on_at_the_next_slice(finished: Finished) -> None:
    """In the order of leases no slice comes back after a later one has been begun on the one GPU."""
    order = [a.key.slice_index for a in sorted(finished.killed.attempts, key=lambda a: a.key.token)]
    assert order == sorted(order)


def test_the_profile_is_that_of_one_undisturbed_run(finished: Finished) -> None:
    killed, whole = finished.killed, finished.whole
    assert (len(killed.slices), len(whole.slices)) == (LAUNCHES // SLICE, 1)
    assert len(killed.launches) == len(whole.launches) == LAUNCHES
    assert killed.launches.table["launch"].to_pylist() == list(range(LAUNCHES))
    ours, theirs = killed.content, whole.content
    assert ours.keys() == theirs.keys() and "cycles_gpc_avg" in ours and "replay_passes" in ours
    for name, column in ours.items():
        assert column.equals(theirs[name]), name
    assert dict(killed.launches.names.items()) == dict(whole.launches.names.items())
    assert killed.launches.metadata == whole.launches.metadata
    assert killed.run.flags == whole.run.flags == ()


def test_two_equal_gpus_make_the_same_profile_side_by_side(finished: Finished) -> None:
    shared, killed = finished.shared, finished.killed
    for name, column in shared.content.items():
        assert column.equals(killed.content[name]), name
    assert len(shared.launches.metadata.devices) == 2
    work = shared.work_by_gpu()
    share = max(work.values()) / sum(work.values())
    print(
        f"\ntwo GPUs: {sorted(work.values())} launches gone through, the busier did {share:.3f} of the work"
    )
    assert len(work) == 2
    assert sum(work.values()) == sum(killed.work_by_gpu().values())
    # Which GPU takes the fifth of five slices is chance; tests of the scheduler show the share of many.
    assert share <= 0.6 or not FULL
    assert shared.run.flags == ()
