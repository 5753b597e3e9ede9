"""A campaign over many virtual GPUs, through a real server and real agents: planned, scheduled, finished.

What the metadata store and the record store hold afterwards is compared with what the campaign file and the
model of the virtual GPU say. ``make test`` has 20 runs over 10 GPUs, ``make campaigns`` 60 over 20, and
``make scale`` 1,000 over 50 (``ASSAY_SCALE=full``). Everything is synthetic.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_client.api import Client
from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers.opening import read_launches
from assay_server.store.model import Agent, Attempt, Campaign, Run, Slice
from assay_server.store.sqlite import SqliteStore
from assay_virtual.model.gpu import VirtualGPU
from assay_virtual.workloads.loading import load_workload
from tests.support.integration.harness import Lab, lab

WHOLE_CAMPAIGNS = bool(os.environ.get("ASSAY_CAMPAIGNS"))
# One worker runs the whole module: what its tests look at is made once, and takes long.
pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("many_virtual_gpus"),
    *([pytest.mark.campaigns] if WHOLE_CAMPAIGNS else []),
]

KINDS = ("V100", "RTX 2060", "RTX 3070", "A100", "H100") if WHOLE_CAMPAIGNS else ("V100", "RTX 3070", "H100")
LAUNCHES, DETAILED, SLICE = 9, 8, 5
# Detailed and light at the baseline, light at half of the SMs, and at all of them under the same MPS daemon.
RUNS_EACH, SLICES_EACH = 4, 5


@dataclass(frozen=True)
class Size:
    """So many agents, each with so many virtual GPUs of every kind, and so many workloads."""

    agents: int
    gpus_of_a_kind: int
    workloads: int

    @property
    def gpus(self) -> int:
        return self.agents * self.gpus_of_a_kind * len(KINDS)

    @property
    def runs(self) -> int:
        return self.workloads * len(KINDS) * RUNS_EACH

    @property
    def slices(self) -> int:
        return self.workloads * len(KINDS) * SLICES_EACH


if os.environ.get("ASSAY_SCALE") == "full":
    SIZE = Size(5, 2, 50)
else:
    SIZE = Size(2, 2, 3) if WHOLE_CAMPAIGNS else Size(2, 1, 1)


def workload_text(number: int) -> str:
    """A workload whose kernel's name and grids no other has, so that no mix-up can go unseen."""
    steps = ", ".join(f'{{ kernel = "k", grid = {grid} }}' for grid in grids_of(number))
    return f"""\
workload = "w{number}"
seed = {number}
[kernels.k]
name = "void step<{number}>(float*)"
block = 128
instructions = 2000
global_loads = 8
[[phases]]
steps = [{steps}]
"""


def grids_of(number: int) -> list[int]:
    return [40 * (number + 1) + 7 * launch for launch in range(LAUNCHES)]


def write_campaign(folder: Path, size: Size) -> Path:
    for number in range(size.workloads):
        (folder / f"w{number}.toml").write_text(workload_text(number))
    lines = "".join(f"  - {{name: w{n}, command: [w{n}.toml]}}\n" for n in range(size.workloads))
    path = folder / "many.yaml"
    path.write_text(
        f"campaign: many\nsynthetic: true\ngpus: [{', '.join(KINDS)}]\n"
        f"detailed: {{first: {DETAILED}, slice_launches: {SLICE}, sets: features}}\n"
        f"conditions: [{{sm_percent: 50}}]\nworkloads:\n{lines}"
        "analysis: {methods: [random: {launches: 4}]}\n"
    )
    return path


@dataclass(frozen=True)
class Finished:
    """What is left of a campaign that has ended."""

    folder: Path
    records: Path
    campaign: Campaign
    agents: list[Agent]
    runs: dict[str, Run]
    slices: list[Slice]
    attempts: list[Attempt]
    status: dict[str, Any]
    report: dict[str, Any]


@pytest.fixture(scope="module")
def finished() -> Iterator[Finished]:
    """The campaign, run once for all tests of this file."""
    with lab(lease_ms=60_000, heartbeat_ms=5_000) as laboratory:
        campaign = write_campaign(laboratory.root, SIZE)
        laboratory.start_server()
        began = time.monotonic()
        gpus = [f"--virtual={kind}:{SIZE.gpus_of_a_kind}" for kind in KINDS]
        for number in range(SIZE.agents):
            laboratory.start_agent(f"agent-{number}", "--recorded-slots=0", *gpus)
        # Whoever registers late would find nothing left to do.
        laboratory.until_registered(*(f"agent-{number}" for number in range(SIZE.agents)))
        campaign_id = laboratory.submit(campaign)
        status = wait_for_end(laboratory, campaign_id)
        wall_seconds = time.monotonic() - began
        cpu_seconds = {name: cpu_of(process.pid) for name, process in laboratory.processes.items()}
        assert status["state"] == "done", laboratory.logs()
        report = laboratory.report(campaign_id)
        for name in list(laboratory.processes):
            assert laboratory.stop(name) == 0, laboratory.logs()
        made = kept(laboratory, campaign_id, status, report)
        print(figures(made, wall_seconds, cpu_seconds))
        yield made


def wait_for_end(laboratory: Lab, campaign_id: str) -> dict[str, Any]:
    """Ask as rarely as a person would: the asking must not be the load."""
    until = time.monotonic() + 1000
    with Client(laboratory.address) as client:
        while (status := client.status(campaign_id))["state"] in ("running", "analysing"):
            assert time.monotonic() < until, laboratory.logs()
            time.sleep(1.0)
    return dict(status)


def kept(laboratory: Lab, campaign_id: str, status: dict[str, Any], report: dict[str, Any]) -> Finished:
    store = SqliteStore(laboratory.server_state / "metadata.sqlite")
    with store.snapshot() as reader:
        runs = reader.runs(campaign_id)
        slices = [piece for run in runs for piece in reader.slices(run.run_id)]
        attempts = reader.attempts_in(tuple(AttemptState))
        campaign = reader.campaign(campaign_id)
        agents = reader.agents()
    store.close()
    assert campaign is not None
    records = laboratory.server_state / "records"
    by_id = {run.run_id: run for run in runs}
    return Finished(laboratory.root, records, campaign, agents, by_id, slices, attempts, status, report)


def cpu_of(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, children = (sum(map(int, fields[first : first + 2])) for first in (11, 13))
    tick = os.sysconf("SC_CLK_TCK")
    return own / tick, children / tick


def by_gpu(attempts: list[Attempt]) -> dict[str, list[Attempt]]:
    """The attempts of each GPU in the order of their leases."""
    found: dict[str, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda a: a.key.token):
        found.setdefault(attempt.slot_id, []).append(attempt)
    return found


def figures(made: Finished, wall_seconds: float, cpu_seconds: dict[str, tuple[float, float]]) -> str:
    first, last = (f(a.ended_at_ms for a in made.attempts) for f in (min, max))
    ends = sorted(a.ended_at_ms for a in made.attempts)
    nothing_ended = max(b - a for a, b in pairwise(ends))
    idle = max(
        b.leased_at_ms - a.ended_at_ms for of in by_gpu(made.attempts).values() for a, b in pairwise(of)
    )
    longest = max(a.ended_at_ms - a.leased_at_ms for a in made.attempts)
    analysis = made.campaign.ended_at_ms - last
    server = sum(cpu_seconds["server"])
    agents = [cpu for name, cpu in cpu_seconds.items() if name != "server"]
    own, tools = (sum(cpu[part] for cpu in agents) for part in (0, 1))
    return (
        f"\n{len(made.runs):,} runs in {len(made.slices):,} slices on {SIZE.gpus} virtual GPUs of "
        f"{SIZE.agents} agents\n"
        f"  wall {wall_seconds:.1f} s: first end after {(first - made.campaign.created_at_ms) / 1e3:.1f} s, "
        f"{len(made.runs) / wall_seconds:.2f} runs/s, analysis {analysis / 1e3:.1f} s\n"
        f"  CPU of the server {server:.1f} s, of the agents {own:.1f} s, of their tools {tools:.1f} s\n"
        f"  nothing ended for at most {nothing_ended / 1e3:.2f} s, a GPU waited between two of its attempts "
        f"for at most {idle / 1e3:.2f} s, the longest attempt took {longest / 1e3:.1f} s\n"
    )


def test_every_slice_has_exactly_one_attempt_and_it_is_published(finished: Finished) -> None:
    assert finished.campaign.state is CampaignState.DONE
    assert len(finished.runs) == SIZE.runs
    assert len(finished.slices) == SIZE.slices
    assert {run.state for run in finished.runs.values()} == {RunState.DONE}
    assert {a.failure for a in finished.attempts} == {None}
    published = Counter((a.key.run_id, a.key.slice_index) for a in finished.attempts)
    assert published == Counter((piece.run_id, piece.index) for piece in finished.slices)
    assert {a.state for a in finished.attempts} == {AttemptState.PUBLISHED}
    assert finished.status["runs_done"] == SIZE.runs


def test_no_gpu_ever_had_two_attempts_at_once(finished: Finished) -> None:
    gpus = {slot.slot_id: slot for agent in finished.agents for slot in agent.slots}
    assert len(gpus) == SIZE.gpus == sum(len(agent.slots) for agent in finished.agents)
    used = by_gpu(finished.attempts)
    assert set(used) == set(gpus)
    for gpu, attempts in used.items():
        assert {a.agent_id for a in attempts} == {agent_of(finished, gpu)}
        assert {finished.runs[a.key.run_id].device_key for a in attempts} == {gpus[gpu].device_key}
        assert all(a.leased_at_ms < a.ended_at_ms for a in attempts)
        assert all(a.ended_at_ms <= b.leased_at_ms for a, b in pairwise(attempts)), gpu


def agent_of(finished: Finished, gpu: str) -> str:
    [agent] = [a.agent_id for a in finished.agents if any(slot.slot_id == gpu for slot in a.slots)]
    return agent


def test_many_gpus_worked_at_the_same_time(finished: Finished) -> None:
    """Otherwise the test above would say nothing."""
    moments = sorted(
        [(a.leased_at_ms, 1) for a in finished.attempts] + [(a.ended_at_ms, -1) for a in finished.attempts]
    )
    at_once = np.cumsum([change for _, change in moments])
    assert at_once[-1] == 0
    assert at_once.max() > SIZE.gpus / 2


def test_the_store_holds_exactly_the_launches_of_the_model(finished: Finished) -> None:
    made_by = {(a.key.run_id, a.key.slice_index): a.slot_id for a in finished.attempts}
    files = {path.relative_to(finished.records).as_posix() for path in finished.records.rglob("*.parquet")}
    assert files == {piece.file for piece in finished.slices}
    for piece in finished.slices:
        run = finished.runs[piece.run_id]
        launches = read_launches(finished.records / piece.file)
        window = range(piece.launch_skip, DETAILED if run.level == "detailed" else LAUNCHES)
        window = window[: piece.launch_count or None]
        assert launches.column("launch").tolist() == list(window)
        number = int(run.workload.removeprefix("w"))
        assert launches.column("grid_x").tolist() == [grids_of(number)[launch] for launch in window]
        assert names_of(launches) == {f"void step<{number}>(float*)"}
        metadata = launches.metadata
        assert (metadata.synthetic, metadata.level, metadata.condition) == (True, run.level, run.condition)
        [device] = metadata.devices
        assert (device.name, device.uuid) == (
            f"virtual {run.device_kind}",
            made_by[piece.run_id, piece.index],
        )
        check_numbers(finished, run, piece, launches)


def names_of(launches: Launches) -> set[str]:
    return {launches.names[i] for i in set(launches.column("kernel_id").tolist())}


def check_numbers(finished: Finished, run: Run, piece: Slice, launches: Launches) -> None:
    """The model, asked directly, gives what came through tool, agent, wire and store."""
    gpu, workload = VirtualGPU(run.device_kind), load_workload(finished.folder / f"{run.workload}.toml")
    count = piece.launch_count or None
    [expected] = gpu.execute(
        workload, level=run.level, condition=run.condition, skip=piece.launch_skip, count=count
    )
    if run.level == "light":
        assert launches.column("duration_ns").tolist() == expected.duration_ns.tolist()
    else:
        for name in ("instructions", "cycles_gpc_max"):
            np.testing.assert_allclose(launches.column(name), expected.counters[name], rtol=1e-6)


def test_the_report_has_every_cell(finished: Finished) -> None:
    rows = [r for r in finished.report["rows"] if r["status"] == "ok"]
    cells = {(row["workload"], row["device"]) for row in rows}
    assert cells == {(f"w{n}", kind) for n in range(SIZE.workloads) for kind in KINDS}
    assert len(finished.report["runs"]) == SIZE.runs
    assert finished.report["failed_runs"] == []
    assert {run["synthetic"] for run in finished.report["runs"]} == {True}
