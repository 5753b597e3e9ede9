"""Section ``heartbeats``: 500 agents at work, each with a heartbeat every 5 s, and what they cost.

A server process with real sockets, agents that are simulated in this process, as in the section ``lab`` of
``make bench``. No run begins or ends while it is measured.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from assay_client.remote.connection import Connection
from tests.bench.lab.agents import simulated_lab
from tests.bench.lab.campaigns import KIND, campaign_of
from tests.bench.lab.figures import milliseconds
from tests.bench.lab.goals import Goal
from tests.bench.lab.server_process import ServerProcess
from tests.bench.scale.sections import ScaleSize
from tests.services.postgresql import OwnPostgresql, programs

_AGENTS, _SECONDS = 500, 20.0
_MOST_CORES = 1 / 3


@dataclass(frozen=True)
class Measured:
    """Of one round: cores that server and database take, and heartbeats from due to answered (ms)."""

    server_cores: float
    database_cores: float
    p50_ms: float
    p99_ms: float
    late: int


def heartbeats_page(size: ScaleSize, goals: list[Goal]) -> Iterator[str]:
    """The section's lines."""
    with asyncio.Runner() as runner:  # one for all rounds: gRPC keeps the loop that it was first used in
        yield from _lines(size, goals, runner)


def _lines(size: ScaleSize, goals: list[Goal], runner: asyncio.Runner) -> Iterator[str]:
    agents = size.of(_AGENTS)
    yield f"\n## Heartbeats: {agents} agents at work, every 5 s\n"
    yield "| metadata | server, cores | database, cores | p50, ms | p99, ms | late or missed |"
    yield "|---|---:|---:|---:|---:|---:|"
    for title in ("SQLite", "PostgreSQL"):
        if title == "PostgreSQL" and programs() is None:
            yield "\nPostgreSQL was left out: install Debian's package postgresql-15."
            return
        found = [_round(runner, agents, on_postgresql=title == "PostgreSQL") for _ in range(size.rounds)]
        cores = [(each.server_cores, each.database_cores) for each in found]
        server, database = (statistics.median(each) for each in zip(*cores, strict=True))
        p50, p99 = (
            statistics.median(each) for each in zip(*((f.p50_ms, f.p99_ms) for f in found), strict=True)
        )
        late = statistics.median(each.late for each in found)
        yield f"| {title} | {server:.3f} | {database:.3f} | {p50:.1f} | {p99:.1f} | {late:g} |"
        total = statistics.median(map(sum, cores))
        goals.append(
            Goal(
                f"{agents} agents with heartbeats on {title}: cores of server and database",
                f"{total:.3g}",
                f"less than {_MOST_CORES:.3g}",
                total < _MOST_CORES,
            )
        )


def _round(runner: asyncio.Runner, agents: int, *, on_postgresql: bool) -> Measured:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="assay-scale-")))
        database = stack.enter_context(OwnPostgresql()) if on_postgresql else None
        options = () if database is None else ("--database", database.url())
        server = ServerProcess(root / "server", 5_000, 60_000, *options)
        server.start()
        stack.callback(server.stop)
        with Connection(server.address) as client:
            client.submit(campaign_of("long", agents), "long.yaml", "/lab")
        return runner.run(_measured(server, database, agents))


async def _measured(server: ServerProcess, database: OwnPostgresql | None, agents: int) -> Measured:
    async with simulated_lab(server.address, agents, KIND, run_seconds=3600.0) as fleet:
        while len(fleet.counts.leases) < agents:
            await asyncio.sleep(0.1)
        await asyncio.sleep(6.0)  # one interval, so that all have sent their first
        counts, began = fleet.count_anew(), time.perf_counter()
        before = _cpu_seconds(server, database)
        await asyncio.sleep(_SECONDS)
        took = time.perf_counter() - began
        own, its = (
            (now - then) / took for now, then in zip(_cpu_seconds(server, database), before, strict=True)
        )
        fleet.hurry()
        beats = list(counts.heartbeats)
        late = counts.heartbeats_late + counts.heartbeats_missed
        await fleet.rest()
    return Measured(own, its, milliseconds(beats, 50), milliseconds(beats, 99), late)


def _cpu_seconds(server: ServerProcess, database: OwnPostgresql | None) -> tuple[float, float]:
    return server.cpu_seconds, 0.0 if database is None else database.cpu_seconds
