"""Abuse of a server while others work: what it does to their heartbeats (``make abuse``).

python -m tests.bench.lab.abuse [--scale PERCENT]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil

from assay_client.remote.connection import Connection
from assay_core.records.machine import Inventory, Registration
from assay_protos import agent_pb2_grpc, ingest_pb2_grpc
from tests.bench.lab.agents import Fleet, own_channel, simulated_lab
from tests.bench.lab.campaigns import KIND, campaign_of
from tests.bench.lab.figures import Counts, milliseconds
from tests.bench.lab.server_process import ServerProcess
from tests.support.integration.open_server import OpenServer
from tests.support.machine.strangers import Manner, strangers

HOLD_SECONDS = 12.0
_HEAD = """\
| listener | strangers | heartbeats | late | missed | p99, ms | worst health, ms | CPU, s | MiB | files |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"""


@dataclass(frozen=True)
class Abuse:
    """How much: honest agents, a flood of registrations, and streams on which nothing is sent."""

    agents: int = 50
    flooders: int = 16
    connections: int = 500
    streams_each: int = 20
    seconds: float = 30.0


@contextlib.asynccontextmanager
async def flood(address: str, flooders: int) -> AsyncIterator[list[str]]:
    """Register new agents for ever, as fast as the server answers; gives the answers' codes."""
    codes: list[str] = []
    numbers = itertools.count()

    async def one(channel: grpc.aio.Channel) -> None:
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
        while True:
            name = f"flood-{next(numbers)}"
            message = Registration(name, "s", name, Inventory(), ()).to_proto()
            try:
                await stub.Register(message, timeout=60, wait_for_ready=True)
                codes.append("OK")
            except grpc.aio.AioRpcError as error:
                codes.append(error.code().name)

    async with _on_channels(address, flooders, one):
        yield codes


@contextlib.asynccontextmanager
async def idle_streams(address: str, connections: int, each: int) -> AsyncIterator[list[str]]:
    """Open upload streams and send nothing; gives the codes of those that have ended."""
    codes: list[str] = []

    async def one(channel: grpc.aio.Channel) -> None:
        stub: Any = ingest_pb2_grpc.IngestServiceStub(channel)
        for ended in asyncio.as_completed([stub.Upload().code() for _ in range(each)]):
            codes.append((await ended).name)

    async with _on_channels(address, connections, one):
        yield codes


@contextlib.asynccontextmanager
async def _on_channels(address: str, channels: int, one: Any) -> AsyncIterator[None]:
    opened = [own_channel(address) for _ in range(channels)]
    tasks = [asyncio.ensure_future(one(channel)) for channel in opened]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in opened))


async def heartbeats_under(address: str, abuse: Abuse) -> tuple[Counts, dict[str, list[str]]]:
    """What honest agents saw while the server was abused, and the codes that the abusers got."""
    async with simulated_lab(address, abuse.agents, KIND, run_seconds=3600.0) as fleet:
        await _work(fleet)
        counts = fleet.count_anew()
        async with (
            idle_streams(address, abuse.connections, abuse.streams_each) as ended,
            flood(address, abuse.flooders) as answered,
        ):
            await asyncio.sleep(abuse.seconds)
            told = {"idle streams": list(ended), "registrations": list(answered)}
        fleet.hurry()
        await fleet.rest()
        return counts, told


@dataclass(frozen=True)
class CrowdCost:
    """What strangers at one listener cost: agents' heartbeats, and seconds, MiB and files of the server."""

    listener: str
    manner: Manner
    counts: Counts
    health_seconds: float
    cpu_seconds: float
    memory_mib: float
    files: int


async def crowds(
    server: OpenServer, agents: int, connections: int, hold_seconds: float = HOLD_SECONDS
) -> AsyncIterator[CrowdCost]:
    """Strangers of each manner at each listener, one crowd after the other, while agents work."""
    async with simulated_lab(server.owner, agents, KIND, run_seconds=3600.0) as fleet:
        await _work(fleet)
        for listener, address in server.addresses.items():
            for manner in Manner:
                counts = fleet.count_anew()
                crowd = strangers([address], connections, manner)
                cost = await _cost(server, crowd, hold_seconds)
                yield CrowdCost(listener, manner, counts, *cost)
        fleet.hurry()
        await fleet.rest()


async def _cost(
    server: OpenServer, crowd: AbstractContextManager[object], hold_seconds: float
) -> tuple[float, float, float, int]:
    """The last four of a :class:`CrowdCost`."""
    process = psutil.Process(server.pid)
    before = process.cpu_times()
    await asyncio.to_thread(crowd.__enter__)
    try:
        files, worst, until = 0, 0.0, time.monotonic() + hold_seconds
        while time.monotonic() < until:
            worst = max(worst, await asyncio.to_thread(server.health_seconds))
            files = max(files, server.open_files)
            await asyncio.sleep(min(1.0, hold_seconds / 3))
    finally:
        await asyncio.to_thread(crowd.__exit__, None, None, None)
    after = process.cpu_times()
    cpu_seconds = after.user + after.system - before.user - before.system
    return worst, cpu_seconds, process.memory_info().rss / 2**20, files


async def _work(fleet: Fleet) -> None:
    """Wait until every agent has a run, which takes until the abuse is over."""
    while not all(agent.busy for agent in fleet.agents) or len(fleet.counts.leases) < len(fleet.agents):
        await asyncio.sleep(0.05)


def main() -> int:
    """Print what the abuse did to heartbeats; 0 if strangers made none late."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=100.0, help="percent of the connections")
    arguments = parser.parse_args()
    late = asyncio.run(_print_crowds(max(1, int(10 * arguments.scale))))
    _print_callers(arguments)
    return 1 if late else 0


async def _print_crowds(connections: int) -> int:
    """The table of strangers; returns how many heartbeats were late or missed."""
    lost = 0
    with (
        tempfile.TemporaryDirectory(prefix="assay-abuse-") as root,
        OpenServer(Path(root), "--heartbeat", "5s", "--lease", "60s") as server,
    ):
        with Connection(server.owner) as client:
            client.submit(campaign_of("honest", 10_000), "honest.yaml", "/lab")
        print(f"{connections:,} connections of strangers, held for {HOLD_SECONDS:.0f} s, and 50 agents")
        print(_HEAD, flush=True)
        async for each in crowds(server, 50, connections):
            counts = each.counts
            lost += counts.heartbeats_late + counts.heartbeats_missed
            print(
                f"| {each.listener} | {each.manner} "
                f"| {len(counts.heartbeats)} | {counts.heartbeats_late} | {counts.heartbeats_missed} "
                f"| {milliseconds(counts.heartbeats, 99):.0f} | {1000 * each.health_seconds:.0f} "
                f"| {each.cpu_seconds:.1f} | {each.memory_mib:.0f} | {each.files:,} |",
                flush=True,
            )
    return lost


def _print_callers(arguments: argparse.Namespace) -> None:
    """What those whom the server knows did."""
    abuse = Abuse(connections=max(1, int(Abuse.connections * arguments.scale / 100)))
    with tempfile.TemporaryDirectory(prefix="assay-abuse-") as root:
        server = ServerProcess(Path(root) / "server")
        server.start()
        try:
            with Connection(server.address) as client:
                client.submit(campaign_of("honest", 10_000), "honest.yaml", "/lab")
            before = server.memory_mib
            counts, told = asyncio.run(heartbeats_under(server.address, abuse))
            print(f"{abuse}; server memory {before:.0f} -> {server.memory_mib:.0f} MiB")
        finally:
            server.stop()
    for what, codes in told.items():
        print(what, {code: codes.count(code) for code in sorted(set(codes))})
    p50, p99 = milliseconds(counts.heartbeats, 50), milliseconds(counts.heartbeats, 99)
    print(
        f"heartbeats of {abuse.agents} honest agents: {len(counts.heartbeats):,}, p50 {p50:.0f} ms, "
        f"p99 {p99:.0f} ms, late {counts.heartbeats_late}, missed {counts.heartbeats_missed}"
    )


if __name__ == "__main__":
    sys.exit(main())
