"""A registering flood and idle streams, in their short form: honest agents keep their leases."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

from assay_client.remote.connection import Connection
from assay_core.records.campaign import RunState
from tests.bench.lab.abuse import Abuse, CrowdCost, crowds, heartbeats_under
from tests.bench.lab.campaigns import campaign_of
from tests.support.integration.open_server import OpenServer
from tests.support.machine.strangers import Manner

ABUSE = Abuse(agents=6, flooders=4, connections=20, streams_each=5, seconds=3.0)
STREAMS = 40


def test_honest_agents_lose_no_heartbeat_to_a_flood_and_to_idle_streams():
    # In a process of its own: gRPC mixes up the event loops of one process, also those that have ended.
    with (
        tempfile.TemporaryDirectory(prefix="assay-") as folder,
        OpenServer(Path(folder), "--heartbeat", "500ms", "--limit", f"upload_streams={STREAMS}") as server,
    ):
        with Connection(server.owner) as client:
            submitted = client.submit(campaign_of("honest", 12), "honest.yaml", "/lab")
        counts, told = asyncio.run(heartbeats_under(server.owner, ABUSE))
        with Connection(server.owner) as client:
            runs = client.status(submitted.campaign_id).runs

    assert counts.heartbeats_missed == 0
    assert len(counts.heartbeats) >= ABUSE.agents
    assert counts.refused == []
    assert told["registrations"].count("OK") > 0
    # Streams beyond the limit are refused at once; the others hold a place, and nobody's heartbeat.
    refused = told["idle streams"].count("RESOURCE_EXHAUSTED")
    assert refused == ABUSE.connections * ABUSE.streams_each - STREAMS
    assert {run.state for run in runs} <= {RunState.DONE, RunState.WAITING}
    assert sum(run.attempts for run in runs) == len(counts.finished)


def test_strangers_at_any_listener_cost_no_heartbeat():
    # pytest's own folder is too long for a socket.
    with (
        tempfile.TemporaryDirectory(prefix="assay-") as folder,
        OpenServer(Path(folder), "--heartbeat", "500ms", "--lease", "60s") as server,
    ):
        with Connection(server.owner) as client:
            client.submit(campaign_of("honest", 12), "honest.yaml", "/lab")
        costs = asyncio.run(_all(crowds(server, agents=4, connections=40, hold_seconds=1.2)))
        listeners = [*server.addresses]
    assert [(each.listener, each.manner) for each in costs] == [*product(listeners, Manner)]
    assert sum(each.counts.heartbeats_missed for each in costs) == 0
    assert all(len(each.counts.heartbeats) >= 4 for each in costs)
    assert max(each.files for each in costs) > 40, "the strangers were there"


async def _all(costs: AsyncIterator[CrowdCost]) -> list[CrowdCost]:
    return [each async for each in costs]
