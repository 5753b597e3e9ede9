"""Simulated agents: hundreds in one process, each with a connection of its own, as asyncio tasks.

Each registers, sends heartbeats, asks for work and waits for it, uploads a small slice on its stream, and
finishes. Nothing is profiled: a run takes as long as the fleet is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc

from assay_agent.daemon.slots import idle_pauses
from assay_client.remote.connection import FOLLOW_SECONDS
from assay_core.records.attempt import AttemptLog, Claim
from assay_core.records.campaign import StatusRequest
from assay_core.records.lease import (
    AttemptProgress,
    FinishAnswer,
    FinishedAttempt,
    Heartbeat,
    HeartbeatAnswer,
    LeaseAnswer,
    LeaseRequest,
)
from assay_core.records.machine import InstalledDevice, Inventory, Registered, Registration, Slot
from assay_core.records.upload import AnnouncedSegment, SegmentAnswer, SegmentHeader, upload_messages
from assay_core.records.work import Work
from assay_protos import agent_pb2_grpc, campaign_pb2_grpc, ingest_pb2_grpc
from tests.bench.lab.figures import Counts
from tests.support.server.made_segments import MadeSegment, made_segments

PROFILER = "nsight_systems"
LAUNCHES = 50
_PATIENCE_SECONDS = 60.0

MakeChannel = Callable[[str], grpc.aio.Channel]

_log = logging.getLogger(__name__)


def own_channel(address: str) -> grpc.aio.Channel:
    """A channel with a connection of its own: by default gRPC shares one among all of a process."""
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


class SimulatedAgent:
    """One agent with one slot. ``kind``: the name of its GPU. Use it on one event loop."""

    def __init__(
        self, address: str, number: int, kind: str, fleet: Fleet, make_channel: MakeChannel = own_channel
    ) -> None:
        self.agent_id = f"simulated-{number:04d}"
        self.kind = kind
        self._fleet = fleet
        self.heartbeat_seconds = self.idle_heartbeat_seconds = 5.0
        self.busy = False
        self._session_id = uuid.uuid4().hex
        self._slot_id = f"GPU-{number:04d}"
        self._held: Work | None = None
        self._channel = make_channel(address)
        self._agent: Any = agent_pb2_grpc.AgentServiceStub(self._channel)
        self._ingest: Any = ingest_pb2_grpc.IngestServiceStub(self._channel)
        self._stream: Any = None

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        await self._channel.close()

    async def register(self) -> Registered:
        device = InstalledDevice(index=0, uuid=self._slot_id, name=self.kind)
        slot = Slot(self._slot_id, (PROFILER,), synthetic=True, device=device)
        registration = Registration(
            self.agent_id,
            self._session_id,
            self.agent_id,
            Inventory(host=self.agent_id, devices=(device,)),
            (slot,),
        )
        message = registration.to_proto()
        answer = await self._agent.Register(message, timeout=_PATIENCE_SECONDS, wait_for_ready=True)
        registered = Registered.from_proto(answer)
        self.heartbeat_seconds = registered.heartbeat_ms / 1000
        self.idle_heartbeat_seconds = max(registered.heartbeat_ms, registered.idle_heartbeat_ms) / 1000
        return registered

    async def beat(self) -> None:
        """Send a heartbeat each interval, for ever; the first at a random moment of the interval.

        As a real agent, it looks each interval, and is silent longer while it has no run.
        """
        clock = asyncio.get_running_loop().time
        due = clock() + random.uniform(0, self.heartbeat_seconds)
        sent = due - random.uniform(0, self.idle_heartbeat_seconds)
        while True:
            await asyncio.sleep(max(0.0, due - clock()))
            if self._held is None and due - sent + self.heartbeat_seconds / 2 < self.idle_heartbeat_seconds:
                due += self.heartbeat_seconds
                continue
            sent = due
            try:
                answer = await self._heartbeat()
            except grpc.aio.AioRpcError as error:
                self._fleet.counts.heartbeats_missed += 1
                self._fleet.counts.refused.append(f"heartbeat: {error.code().name}")
            else:
                self._fleet.counts.heartbeats_missed += answer.register_again
                self._fleet.counts.note_heartbeat(clock() - due, self.heartbeat_seconds)
            due = max(due + self.heartbeat_seconds, clock())

    async def _heartbeat(self) -> HeartbeatAnswer:
        held = () if self._held is None else (self._held,)
        progress = tuple(AttemptProgress(work.key, 0, work.write_secret) for work in held)
        message = Heartbeat(self.agent_id, self._session_id, progress).to_proto()
        timeout = max(self.heartbeat_seconds, self._fleet.least_heartbeat_patience_seconds)
        return HeartbeatAnswer.from_proto(await self._agent.Heartbeat(message, timeout=timeout))

    async def work(self) -> None:
        """Take runs until the fleet rests; while there is none, ask as often as a real agent."""
        pauses = idle_pauses()
        while not self._fleet.resting:
            self.busy = True
            work = await self.lease()
            if work is not None:
                await self._fleet.run()
                await self.deliver(work)
            self.busy = False
            if work is None:
                await asyncio.sleep(next(pauses))
            else:
                pauses = idle_pauses()

    async def lease(self) -> Work | None:
        """One request for work; only answers with work count as leases."""
        clock = asyncio.get_running_loop().time
        message = LeaseRequest(self.agent_id, self._session_id, self._slot_id).to_proto()
        began = clock()
        try:
            answer = await self._agent.Lease(message, timeout=10)
        except grpc.aio.AioRpcError as error:
            await self._refused("lease", error)
            return None
        told = LeaseAnswer.from_proto(answer)
        if told.register_again:
            await self.register()
        if told.work is not None:
            self._fleet.counts.leases.append(clock() - began)
            self._fleet.counts.leased_at.append(clock())
        self._held = told.work if isinstance(told.work, Work) else None
        return self._held

    async def deliver(self, work: Work, segments: Sequence[MadeSegment] | None = None) -> None:
        """Upload the run's launches, wait until they are durable, finish."""
        parts = _SEGMENTS if segments is None else segments
        clock = asyncio.get_running_loop().time
        claim = Claim(work.key, self.agent_id, self._session_id, work.write_secret)
        launches = sum(part.launches for part in parts)
        finished = FinishedAttempt(claim, len(parts), launches, (), AttemptLog(wall_seconds=1.0)).to_proto()
        began = clock()
        try:
            for part in parts:
                await self._upload(claim, part)
            answer = await self._agent.FinishAttempt(finished, timeout=_PATIENCE_SECONDS)
        except grpc.aio.AioRpcError as error:
            self._stream = None
            await self._refused("finish", error)
            return
        finally:
            self._held = None
        if FinishAnswer.from_proto(answer).published:
            self._fleet.counts.finishes.append(clock() - began)
            self._fleet.counts.finished.append(work.key)
        else:
            self._fleet.counts.refused.append("finish: not wanted")

    async def _upload(self, claim: Claim, segment: MadeSegment) -> None:
        if self._stream is None or self._stream.done():  # the server ends streams that are idle
            self._stream = self._ingest.Upload()
        announced = AnnouncedSegment(claim, _header(segment))
        for message in upload_messages(announced, segment.names, segment.data):
            await self._stream.write(message)
        answer = await self._stream.read()
        if answer is grpc.aio.EOF or SegmentAnswer.from_proto(answer).refusal is not None:
            self._fleet.counts.refused.append("upload")

    async def _refused(self, call: str, error: grpc.aio.AioRpcError) -> None:
        _log.warning("%s was refused: %s", call, error.debug_error_string())
        self._fleet.counts.refused.append(f"{call}: {error.code().name}")
        await asyncio.sleep(random.uniform(0.1, 0.5))


def _header(segment: MadeSegment) -> SegmentHeader:
    return SegmentHeader(
        segment.index,
        segment.launches,
        len(segment.names),
        len(segment.data),
        segment.names_hash,
        segment.launches_hash,
    )


_SEGMENTS = made_segments((LAUNCHES,), synthetic=True)


class Fleet:
    """Simulated agents that share their counts and the length of their runs."""

    def __init__(self, address: str, agents: int, kind: str, make_channel: MakeChannel) -> None:
        self.run_seconds = 0.0
        self.least_heartbeat_patience_seconds = 2.0  # as of a real agent
        self.resting = False
        self.counts = Counts()
        self._make_channel = make_channel
        self._address = address
        self._hurry = asyncio.Event()
        self.agents = [SimulatedAgent(address, n, kind, self, make_channel) for n in range(agents)]

    def count_anew(self) -> Counts:
        """New counts from now on; returns them."""
        self.counts = Counts()
        return self.counts

    def hurry(self) -> None:
        """From now on runs take no time, also those that have begun."""
        self.run_seconds = 0.0
        self._hurry.set()

    async def run(self) -> None:
        """Wait as long as a run takes."""
        if self.run_seconds:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self.run_seconds)

    async def rest(self) -> None:
        """Ask for no more work, and end the runs that have begun."""
        self.resting = True
        while any(agent.busy for agent in self.agents):
            await asyncio.sleep(0.01)

    async def register(self) -> None:
        await asyncio.gather(*(agent.register() for agent in self.agents))

    async def become(self, kind: str, over_seconds: float) -> None:
        """Have each agent's GPU be of another kind, one after another."""
        for agent in self.agents:
            agent.kind = kind
            await agent.register()
            await asyncio.sleep(over_seconds / len(self.agents))

    @contextlib.asynccontextmanager
    async def watching(self, campaign_id: str, watchers: int) -> AsyncIterator[None]:
        """Watch a campaign on so many connections while the block runs, counting statuses."""
        channels = [self._make_channel(self._address) for _ in range(watchers)]
        async with _running([self._watch(channel, campaign_id) for channel in channels]):
            yield
        await asyncio.gather(*(channel.close() for channel in channels))

    async def _watch(self, channel: grpc.aio.Channel, campaign_id: str) -> None:
        campaigns: Any = campaign_pb2_grpc.CampaignServiceStub(channel)
        asked, last = StatusRequest(campaign_id, without_runs=True, following=True).to_proto(), None
        while True:  # as often as the client
            told = await campaigns.GetStatus(asked, timeout=_PATIENCE_SECONDS)
            self.counts.statuses += told != last
            last = told
            await asyncio.sleep(FOLLOW_SECONDS)


@contextlib.asynccontextmanager
async def simulated_lab(
    address: str,
    agents: int,
    kind: str,
    make_channel: MakeChannel = own_channel,
    *,
    run_seconds: float = 0.0,
    least_heartbeat_patience_seconds: float = 2.0,
) -> AsyncIterator[Fleet]:
    """A fleet that works while the block runs: every agent asks for work and sends heartbeats.

    ``least_heartbeat_patience_seconds``: how long an agent waits for the answer to a heartbeat, or as long as
    the interval between two if that is longer; by default as a real agent.
    """
    fleet = Fleet(address, agents, kind, make_channel)
    fleet.run_seconds = run_seconds
    fleet.least_heartbeat_patience_seconds = least_heartbeat_patience_seconds
    try:
        await fleet.register()
        tasks = [task for agent in fleet.agents for task in (agent.beat(), agent.work())]
        async with _running(tasks):
            yield fleet
    finally:
        await asyncio.gather(*(agent.close() for agent in fleet.agents))


@contextlib.asynccontextmanager
async def _running(tasks: Sequence[Any]) -> AsyncIterator[None]:
    """Run coroutines while the block runs, then cancel them; raises what one of them raised."""
    begun = [asyncio.ensure_future(task) for task in tasks]
    try:
        yield
        for task in begun:
            if task.done() and not task.cancelled():
                task.result()
    finally:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
