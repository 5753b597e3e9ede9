"""Ingest: a sealed attempt on an agent's disk, through the uplink and the server, to published Parquet."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq

from assay_agent.daemon.attempts import AttemptRunner
from assay_agent.policy.gate import Gate
from assay_agent.spool.spool import Spool, SpooledAttempt
from assay_agent.uplink.connection import Connection
from assay_agent.uplink.session import Identity
from assay_agent.uplink.uplink import Uplink
from assay_client.remote.connection import Connection as Client
from assay_core.files.launch_file import new_launch_file
from assay_core.records.attempt import AttemptLog
from assay_core.records.lease import LeaseRequest
from assay_core.records.machine import Inventory, Registration, Slot
from assay_core.records.work import Work
from assay_server.app import Server
from assay_server.config import ServerSettings
from tests.bench.made_data import SCHEMA, light_batches
from tests.bench.measure import Measurement

CAMPAIGN = """\
campaign: bench
synthetic: true
workloads:
  - name: bench
    recordings: [{device: none, light: launches.parquet}]
"""
LEASE_MS = 3_600_000
IDENTITY = Identity("bench", "bench")


def _lease(connection: Connection) -> Work:
    """Register as an agent with one slot and take the only run there is."""
    slots = (Slot("recorded-0", ("recorded",)),)
    connection.register(Registration("bench", "bench", "bench", Inventory(), slots), threading.Event())
    work = connection.lease(connection.start_lease(LeaseRequest("bench", "bench", "recorded-0", 5000))).work
    assert isinstance(work, Work)
    return work


def assay(launches: int) -> Measurement:
    """Our own way: launches a second from the agent's spool to published, fsynced Parquet."""
    with tempfile.TemporaryDirectory(prefix="assay-") as directory:
        root = Path(directory)
        config = ServerSettings(
            state_dir=root / "server",
            listen=(f"unix:{root / 'socket'}",),
            lease_ms=LEASE_MS,
            heartbeat_ms=60_000,
        )
        with Server(config) as server:
            address = server.addresses[0]
            _submit(address, root)
            connection = Connection(address)
            spool = Spool(root / "spool", minimum_free_bytes=0)
            attempt = _spooled(spool, _lease(connection), launches)
            measurement = _send(spool, attempt, connection)
            connection.close()
            spool.close()
        published = next((root / "server" / "records").rglob("slice-*.parquet"))
        metadata = pq.read_metadata(published)
        assert metadata.num_rows == launches
        assert metadata.row_group(0).num_rows == min(launches, 131_072)
        return measurement


def _submit(address: str, root: Path) -> None:
    with new_launch_file(root / "launches.parquet", SCHEMA) as writer:
        for batch in light_batches(1):
            writer.write(batch)
    with Client(address) as client:
        client.submit(CAMPAIGN, "bench.yaml", str(root))


def _spooled(spool: Spool, assignment: Work, launches: int) -> SpooledAttempt:
    attempt = spool.create(assignment)
    for batch in light_batches(launches):
        attempt.append(batch)
    attempt.seal([], AttemptLog())
    return attempt


def _send(spool: Spool, attempt: SpooledAttempt, connection: Connection) -> Measurement:
    uplink = Uplink(spool, connection, IDENTITY)
    runner = AttemptRunner(
        IDENTITY, spool, connection, {}, threading.Event(), gate=Gate(None, server_is_ours=True)
    )
    began = time.perf_counter()
    uplink.start()
    seal = attempt.wait_acknowledged()
    durable_seconds = time.perf_counter() - began
    runner.resume(attempt)
    seconds = time.perf_counter() - began
    uplink.stop()
    extra = {
        "segments": seal.segments,
        "durable_seconds": durable_seconds,
        "durable_launches_per_second": seal.launches / durable_seconds,
        "durable_segments_per_second": seal.segments / durable_seconds,
    }
    return Measurement(seal.launches, seconds, extra)
