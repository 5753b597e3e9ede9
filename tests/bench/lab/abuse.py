"""Abuse of a server while others work: what it does to their heartbeats (``make abuse``).

python -m tests.bench.lab.abuse [--scale PERCENT]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from assay_client.remote.connection import Connection
from assay_core.records.machine import Inventory, Registration
from assay_protos import agent_pb2_grpc, ingest_pb2_grpc
from tests.bench.lab.agents import Fleet, own_channel, simulated_lab
from tests.bench.lab.campaigns import KIND, campaign_of
from tests.bench.lab.figures import Counts, milliseconds
from tests.bench.lab.server_process import ServerProcess


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


async def _work(fleet: Fleet) -> None:
    """Wait until every agent has a run, which takes until the abuse is over."""
    while not all(agent.busy for agent in fleet.agents) or len(fleet.counts.leases) < len(fleet.agents):
        await asyncio.sleep(0.05)


def main() -> None:
    """Print what the abuse did to heartbeats."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=100.0, help="percent of the connections")
    arguments = parser.parse_args()
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
    main()
