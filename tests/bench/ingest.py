"""Ingest: sealed attempts on agents' disks, through uplinks and a server, to published Parquet.

The server is a process of its own, as in a lab; the agents share this one.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from assay_agent.daemon.attempts import AttemptRunner
from assay_agent.policy.gate import Gate
from assay_agent.spool.attempt import SpooledAttempt
from assay_agent.spool.spool import Spool
from assay_agent.uplink.connection import Connection
from assay_agent.uplink.session import Identity
from assay_agent.uplink.uplink import Uplink
from assay_client.remote.connection import Connection as Client
from assay_core.files.launch_file import new_launch_file
from assay_core.identity.credentials import CredentialsFolder
from assay_core.identity.roles import Role
from assay_core.records.attempt import AttemptLog
from assay_core.records.lease import LeaseRequest
from assay_core.records.machine import Inventory, Registration, Slot
from assay_core.records.work import Work
from assay_sampling.launches.parquet import ROW_GROUP_ROWS
from assay_server.app import Server
from assay_server.config import ServerSettings
from assay_server.identity.authority import write_authority
from tests.bench.made_data import SCHEMA, light_batches
from tests.bench.measure import Measurement
from tests.bench.served import cpu_seconds, served
from tests.support.identity.authorities import made_authority
from tests.support.identity.tls_lab import joined

LEASE_MS = 3_600_000
MANY = 8
WARM_UP_LAUNCHES = 1_000


def assay(launches: int) -> Measurement:
    """One agent and a server on its machine's socket."""
    return _ingest(launches, agents=1, tls=False)


def assay_tls(launches: int) -> Measurement:
    """One agent over TCP with mutual TLS."""
    return _ingest(launches, agents=1, tls=True)


def assay_many(launches: int) -> Measurement:
    """Eight agents at once, each with its share of the launches."""
    return _ingest(launches, agents=MANY, tls=False)


def assay_many_tls(launches: int) -> Measurement:
    """Eight agents at once over TCP with mutual TLS."""
    return _ingest(launches, agents=MANY, tls=True)


class _NoAnalyses(Executor):
    """Begins no analysis: the server ends when everything is published."""

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        return Future()


@contextmanager
def lab_server(root: Path, agents: int, tls: bool) -> Iterator[str]:
    """A server in this process; yields its socket. Over TLS each agent has joined: see ``agent_folder``."""
    socket = f"unix:{root / 'socket'}"
    settings = ServerSettings(
        state_dir=root / "server",
        listen=("127.0.0.1:0", socket) if tls else (socket,),
        join=("127.0.0.1:0",) if tls else (),
        lease_ms=LEASE_MS,
        heartbeat_ms=60_000,
    )
    if tls:
        settings.state_dir.mkdir(mode=0o700)
        write_authority(made_authority(), settings.state_dir)
    with Server(settings, make_executor=_NoAnalyses) as server:
        for number in range(agents + 1 if tls else 0):
            credentials = joined(server, Role.AGENT, f"box-{number}", identity_of(number).agent_id)
            CredentialsFolder(agent_folder(root, number)).write(credentials)
        yield socket


def agent_folder(root: Path, number: int) -> Path:
    return root / f"agent-{number}"


def identity_of(number: int) -> Identity:
    return Identity(f"{number + 1:032x}", f"session-{number}")


@dataclass
class _Agent:
    """An agent with one sealed attempt in its spool."""

    identity: Identity
    connection: Connection
    spool: Spool
    attempt: SpooledAttempt

    def send(self, began: float) -> float:
        """Send the attempt and see it published; returns when all of it was durable, in seconds."""
        uplink = Uplink(self.spool, self.connection, self.identity)
        gate = Gate(None, server_is_ours=True)
        runner = AttemptRunner(self.identity, self.spool, self.connection, {}, threading.Event(), gate=gate)
        uplink.start()
        self.attempt.wait_acknowledged()
        durable_seconds = time.perf_counter() - began
        runner.resume(self.attempt)
        uplink.stop()
        return durable_seconds

    def close(self) -> None:
        self.connection.close()
        self.spool.close()


def _ingest(launches: int, agents: int, tls: bool) -> Measurement:
    shares = [launches // agents + (n < launches % agents) for n in range(agents)]
    with tempfile.TemporaryDirectory(prefix="assay-") as directory:
        root = Path(directory)
        with served(lab_server, root, agents, tls) as server:
            _submit(server.ready, root, agents + 1)
            _warm_up(_agent(server.ready, root, agents, WARM_UP_LAUNCHES, tls))
            made = [_agent(server.ready, root, n, share, tls) for n, share in enumerate(shares)]
            with ThreadPoolExecutor(agents) as threads:
                own, theirs = cpu_seconds(), server.used()
                began = time.perf_counter()
                durable = list(threads.map(lambda agent: agent.send(began), made))
                seconds = time.perf_counter() - began
                extra: dict[str, float] = {
                    "sender_cpu_seconds": cpu_seconds() - own,
                    "server_cpu_seconds": server.used().cpu_seconds - theirs.cpu_seconds,
                    "server_peak_bytes": float(server.used().peak_bytes),
                }
            for agent in made:
                agent.close()
        _require_published(root, [*shares, WARM_UP_LAUNCHES])
    segments = sum(_seal(agent).segments for agent in made)
    extra |= {
        "segments": segments,
        "durable_seconds": max(durable),
        "durable_launches_per_second": launches / max(durable),
        "durable_segments_per_second": segments / max(durable),
    }
    return Measurement(launches, seconds, extra)


def _warm_up(agent: _Agent) -> None:
    """A server loads modules with the first attempt that it publishes, a tenth of a second of CPU."""
    agent.send(time.perf_counter())
    agent.close()


def _submit(address: str, root: Path, agents: int) -> None:
    with new_launch_file(root / "launches.parquet", SCHEMA) as writer:
        for batch in light_batches(1):
            writer.write(batch)
    lines = ["campaign: bench", "synthetic: true", "workloads:"]
    for number in range(agents):
        lines += [f"  - name: bench-{number}", "    recordings: [{device: none, light: launches.parquet}]"]
    with Client(address) as client:
        client.submit("\n".join(lines) + "\n", "bench.yaml", str(root))


def _agent(socket: str, root: Path, number: int, launches: int, tls: bool) -> _Agent:
    identity = identity_of(number)
    credentials = CredentialsFolder(agent_folder(root, number)).read() if tls else None
    connection = Connection(socket if credentials is None else credentials.server, credentials)
    slot = f"recorded-{number}"
    registration = Registration(
        identity.agent_id, identity.session_id, slot, Inventory(), (Slot(slot, ("recorded",)),)
    )
    connection.register(registration, threading.Event())
    asked = LeaseRequest(identity.agent_id, identity.session_id, slot)
    work = connection.lease(asked).work
    assert isinstance(work, Work)
    spool = Spool(root / f"spool-{number}", minimum_free_bytes=0)
    attempt = spool.create(work)
    for batch in light_batches(launches):
        attempt.append(batch)
    attempt.seal((), AttemptLog())
    return _Agent(identity, connection, spool, attempt)


def _seal(agent: _Agent) -> Any:
    assert agent.attempt.seal_record is not None
    return agent.attempt.seal_record


def _require_published(root: Path, shares: list[int]) -> None:
    """Each share is one file in full row groups."""
    found = sorted((root / "server" / "records").rglob("slice-*.parquet"))
    tables = [pq.read_metadata(path) for path in found]
    assert sorted(table.num_rows for table in tables) == sorted(shares)
    for table in tables:
        groups = [table.row_group(place).num_rows for place in range(table.num_row_groups)]
        assert all(end % ROW_GROUP_ROWS == 0 for end in list(accumulate(groups))[:-1])
