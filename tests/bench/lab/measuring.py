"""Section ``lab`` of ``make bench``: one server, hundreds of simulated agents, 100,000 queued runs on SQLite.

Agents and watchers share this process; the server has its own. Phases follow one another on one state
folder; each begins with new counts.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil

from assay_core.records.campaign import Submission
from assay_protos import campaign_pb2_grpc
from tests.bench.lab.agents import Fleet, simulated_lab
from tests.bench.lab.campaigns import KIND, OTHER_KIND, SUDDEN_KIND, WATCHED_KIND, campaign_of, shared_out
from tests.bench.lab.figures import milliseconds
from tests.bench.lab.goals import Goal, Phase, Phases, goals_of, lease_goals
from tests.bench.lab.server_process import ServerProcess
from tests.bench.leases import lease_labs, measured_leases

_COLUMNS = (
    "phase", "finished a second", "lease p50, ms", "p99, ms", "heartbeats", "p50, ms", "p99, ms", "late",
    "missed", "refused calls", "statuses", "server, cores", "server, MiB", "this process late p99, ms",
    "its cores",
)  # fmt: skip
_HEAD = (f"| {' | '.join(_COLUMNS)} |", f"|---|{'---:|' * (len(_COLUMNS) - 1)}")
_WATCHERS = 4
_SUBMIT_SECONDS = 600  # a campaign of 100,000 runs, on a busy machine
_PROBE_SECONDS = 0.01


@dataclass(frozen=True)
class LabSize:
    """How much is simulated. ``run_seconds``: how long a run takes, except in the last phase."""

    agents: int = 500
    runs: int = 100_000
    campaigns: int = 50
    phase_seconds: float = 20.0
    run_seconds: float = 25.0

    def scaled(self, scale: float) -> LabSize:
        """As many agents and runs as ``scale`` of these; the phases stay as long."""
        campaigns = max(1, min(self.campaigns, int(self.runs * scale)))
        runs = max(campaigns, int(self.runs * scale))
        return LabSize(
            max(1, int(self.agents * scale)), runs, campaigns, self.phase_seconds, self.run_seconds
        )


def lab_page(size: LabSize, goals: list[Goal]) -> Iterator[str]:
    """The section's lines as they are measured; adds to ``goals`` what they come to."""
    load = psutil.getloadavg()[0]
    yield f"\n## A lab on one server: {size.agents} agents, {size.runs:,} queued runs\n"
    yield f"Load average before: {load:.1f}. Latencies are those of the agents, which share one process.\n"
    with tempfile.TemporaryDirectory(prefix="assay-lab-") as root:
        yield from _measured(size, Path(root), goals)
    medians = {}
    yield "\n| lease inside the server, without gRPC | p50, ms | p99, ms | CPU, p50, ms |"
    yield "|---|---:|---:|---:|"
    for lab in lease_labs(size.runs):
        taken = measured_leases(replace(lab, agents=size.agents))
        (clock, cpu), (high, _) = np.percentile(taken, [50, 99], axis=0)
        medians[lab.campaigns, lab.queued] = float(cpu)
        title = f"{lab.campaigns:,} campaigns, {lab.queued:,} queued runs"
        yield f"| {title} | {clock:.2f} | {high:.2f} | {cpu:.2f} |"
    goals.extend(lease_goals(medians))


def _measured(size: LabSize, root: Path, goals: list[Goal]) -> Iterator[str]:
    server = ServerProcess(root / "server")
    try:
        empty_seconds, empty_mib = server.start(), server.memory_mib
        began = time.perf_counter()
        _submit(server.address, size)
        submitted_seconds = time.perf_counter() - began
        server.stop()
        full_seconds, full_mib = server.start(), server.memory_mib
        yield f"- start-up: {empty_seconds:.1f} s without runs, {full_seconds:.1f} s with; "
        yield f"  memory {empty_mib:.0f} MiB, {full_mib:.0f} MiB; submitting took {submitted_seconds:.1f} s\n"
        yield from _HEAD
        seen: list[Phase] = []
        starts: list[float] = []
        with asyncio.Runner() as runner:
            phases = _phases(server, size, starts)
            while (phase := runner.run(anext(phases, None))) is not None:
                seen.append(phase)
                yield from rows(phase)
        goals.extend(goals_of(Phases(seen[0], starts, *seen[1:]), size.agents))
    finally:
        server.stop()


def _submit(address: str, size: LabSize) -> None:
    """Submit the queued campaigns, and one as large as all of them together, which will be watched."""
    texts = {name: campaign_of(name, runs) for name, runs in shared_out(size.runs, size.campaigns)}
    texts["watched"] = campaign_of("watched", size.runs, WATCHED_KIND)
    with grpc.insecure_channel(address) as channel:
        campaigns: Any = campaign_pb2_grpc.CampaignServiceStub(channel)  # type: ignore[no-untyped-call]
        for name, text in texts.items():
            submission = Submission(text, f"{name}.yaml", "/lab").to_proto()
            campaigns.Submit(submission, timeout=_SUBMIT_SECONDS, wait_for_ready=True)


async def _started(server: ServerProcess, fleet: Fleet) -> list[float]:
    """Seconds from a submission to the lease of each of a tenth of the agents, while all are idle."""
    few = fleet.agents[::10]
    for agent in few:
        agent.kind = SUDDEN_KIND
        await agent.register()
    counts = fleet.count_anew()
    text = campaign_of("sudden", len(few), SUDDEN_KIND)
    async with grpc.aio.insecure_channel(server.address) as channel:
        campaigns: Any = campaign_pb2_grpc.CampaignServiceStub(channel)
        await campaigns.Submit(Submission(text, "sudden.yaml", "/lab").to_proto(), timeout=_SUBMIT_SECONDS)
    submitted_at = asyncio.get_running_loop().time()
    while len(counts.leased_at) < len(few):
        await asyncio.sleep(_PROBE_SECONDS)
    return [max(0.0, at - submitted_at) for at in counts.leased_at]


async def _phases(server: ServerProcess, size: LabSize, starts: list[float]) -> AsyncIterator[Phase]:
    """The phases one after another; fills ``starts`` after the first."""
    async with simulated_lab(server.address, size.agents, OTHER_KIND) as fleet:
        watch_it = Stopwatch(server, fleet)
        began = time.perf_counter()
        await fleet.register()
        rate = size.agents / (time.perf_counter() - began)
        yield await watch_it.phase(f"idle ({rate:,.0f} registrations a second)", size.phase_seconds)
        starts.extend(await _started(server, fleet))
        fleet.run_seconds = size.run_seconds
        await fleet.become(KIND, over_seconds=size.run_seconds)
        await asyncio.sleep(size.run_seconds / 2)
        paced = f"runs of {size.run_seconds:g} s"
        yield await watch_it.phase(paced, size.phase_seconds)
        await fleet.become(WATCHED_KIND, over_seconds=size.run_seconds)
        async with fleet.watching("watched-1", _WATCHERS):
            title = f"{paced}, {_WATCHERS} watchers of their campaign"
            yield await watch_it.phase(title, size.phase_seconds)
        await fleet.become(KIND, over_seconds=1.0)
        fleet.hurry()
        await asyncio.sleep(2.0)
        yield await watch_it.phase("runs of 0 s", size.phase_seconds)


class Stopwatch:
    """Measures a server and its fleet for some seconds at a time."""

    def __init__(self, server: ServerProcess, fleet: Fleet) -> None:
        self._server = server
        self._fleet = fleet

    async def phase(self, title: str, seconds: float) -> Phase:
        counts = self._fleet.count_anew()
        cpu, own, began = self._server.cpu_seconds, time.process_time(), time.perf_counter()
        late = await _lateness(seconds)
        took = time.perf_counter() - began
        cores = (self._server.cpu_seconds - cpu) / took
        self._fleet.count_anew()
        own_cores = (time.process_time() - own) / took
        memory = self._server.memory_mib
        return Phase(title, took, cores, memory, milliseconds(late, 99), counts, own_cores)


async def _lateness(seconds: float) -> list[float]:
    """How much later than asked this loop wakes, over ``seconds``."""
    clock, late = asyncio.get_running_loop().time, []
    ends = clock() + seconds
    while (asked := clock() + _PROBE_SECONDS) < ends:
        await asyncio.sleep(_PROBE_SECONDS)
        late.append(clock() - asked)
    return late


def rows(phase: Phase) -> Iterator[str]:
    """The phase's row in the table, and what was refused, by kind."""
    yield f"| {' | '.join(_cells(phase))} |"
    if phase.counts.refused:
        yield f"<!-- refused in {phase.title}: {dict(Counter(phase.counts.refused))} -->"


def _cells(phase: Phase) -> list[str]:
    counts = phase.counts
    return [
        phase.title,
        f"{len(counts.finished) / phase.seconds:.1f}",
        f"{milliseconds(counts.leases, 50):.1f}",
        f"{milliseconds(counts.leases, 99):.1f}",
        f"{len(counts.heartbeats):,}",
        f"{milliseconds(counts.heartbeats, 50):.1f}",
        f"{milliseconds(counts.heartbeats, 99):.1f}",
        f"{counts.heartbeats_late:,}",
        f"{counts.heartbeats_missed:,}",
        f"{len(counts.refused):,}",
        f"{counts.statuses:,}",
        f"{phase.server_cores:.2f}",
        f"{phase.memory_mib:.0f}",
        f"{phase.loop_late_ms:.1f}",
        f"{phase.own_cores:.2f}",
    ]
