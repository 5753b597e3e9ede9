"""A small server that implements the wire contract in memory, with switches for what can go wrong.

What it holds outlives :meth:`FakeServer.stop`, so a restarted server is ``stop`` and ``start``.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from assay_protos import agent_pb2, agent_pb2_grpc, common_pb2, ingest_pb2, ingest_pb2_grpc
from assay_sampling.launches.checks import check_batch, check_names, check_schema
from assay_sampling.launches.table import (
    BASELINE,
    CounterColumn,
    LaunchBatch,
    Names,
    TableMetadata,
    launch_schema,
    make_batch,
)


def wait_for(condition: Callable[[], Any], seconds: float = 200.0) -> None:
    """Poll until ``condition`` holds; fails the test where it does not in time."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.005)


def batches_of(launches: int, batch_size: int, *, seed: int = 0, counters: int = 0) -> list[LaunchBatch]:
    """A light (or, with counters, detailed) recording of random launches of 40 kernels."""
    random = np.random.default_rng(seed)
    names = Names()
    kernels = np.array([names.intern(f"void kernel<{seed}, {i}>(float*)") for i in range(40)], np.uint64)
    columns = tuple(CounterColumn(f"counter_{i}", "inst", f"m{i}", "hardware") for i in range(counters))
    schema = launch_schema(
        TableMetadata(level="detailed" if counters else "light", condition=BASELINE), columns
    )
    start_ns = np.cumsum(random.integers(1_000, 9_000, launches))
    kernel = kernels[random.integers(0, 40, launches)]
    given: set[int] = set()
    found = []
    for begin in range(0, launches, batch_size):
        rows = slice(begin, min(begin + batch_size, launches))
        n = rows.stop - rows.start
        new = [i for i in dict.fromkeys(kernel[rows].tolist()) if i not in given]
        given.update(new)
        records = make_batch(
            schema,
            {
                "process": np.zeros(n, np.int32),
                "launch": np.arange(rows.start, rows.stop),
                "kernel_id": kernel[rows],
                "grid_x": random.integers(1, 500, n),
                **{name: np.ones(n, np.int32) for name in ("grid_y", "grid_z", "block_y", "block_z")},
                "block_x": np.full(n, 256, np.int32),
                "start_ns": start_ns[rows],
                "duration_ns": random.integers(900, 90_000, n),
                **{c.name: random.random(n) for c in columns},
            },
        )
        found.append(LaunchBatch(records, {i: names[i] for i in new}))
    return found


def table_of(batches: list[LaunchBatch]) -> pa.Table:
    """All launches of batches as one table."""
    return pa.Table.from_batches([b.records for b in batches]).combine_chunks()


def decode(part: bytes) -> pa.Table:
    """The table in a compressed part."""
    stream = pa.input_stream(pa.BufferReader(part), compression="zstd").read()
    return pa.ipc.open_stream(pa.py_buffer(stream)).read_all()


def joined(segments: list[tuple[bytes, bytes]]) -> pa.Table:
    """The launches of segments in order; fails where a name comes after its first use."""
    names = Names()
    tables = []
    for names_part, launches_part in segments:
        if names_part:
            names.update(dict(Names.from_table(decode(names_part)).items()))
        table = decode(launches_part)
        check_schema(table.schema)
        for batch in table.to_batches():
            check_batch(batch)
            check_names([batch], names)
        assert 0 < table.num_rows <= 65_536
        tables.append(table)
    return pa.concat_tables(tables).combine_chunks()


Key = tuple[str, int, int, int]


def key_of(proto: common_pb2.AttemptKey) -> Key:
    return (proto.run_id, proto.slice, proto.attempt, proto.token)


class FakeServer(agent_pb2_grpc.AgentServiceServicer, ingest_pb2_grpc.IngestServiceServicer):
    """See the module. ``break_stream`` is asked for every message and every ack whether to break there."""

    def __init__(self, directory: Path) -> None:
        self.address = f"unix:{directory / 'server.sock'}"
        self.changed = threading.Condition()
        self.waiting: list[agent_pb2.Work] = []
        self.leased: dict[Key, tuple[str, agent_pb2.Work]] = {}
        self.segments: dict[Key, dict[int, tuple[bytes, bytes]]] = {}
        self.published: dict[str, tuple[Key, agent_pb2.FinishAttemptRequest]] = {}
        self.failures: list[agent_pb2.FailAttemptRequest] = []
        self.registrations: list[agent_pb2.RegisterRequest] = []
        self.leases_asked = 0
        self.heartbeats: list[agent_pb2.HeartbeatRequest] = []
        self.drop_at_heartbeat: set[Key] = set()
        self.refuse: Callable[[Key, int], bool] = lambda key, segment: False
        self.break_stream: Callable[[str], bool] = lambda where: False
        self.hold_acks = threading.Event()
        self.hold_acks.set()
        self.sessions: set[str] = set()
        self.heartbeat_ms = 50
        self.idle_heartbeat_ms = 0
        self.duplicates = 0
        self.received = 0
        self._tokens = 0
        self._server: grpc.Server | None = None

    def start(self) -> None:
        server = grpc.server(ThreadPoolExecutor(16))
        agent_pb2_grpc.add_AgentServiceServicer_to_server(self, server)
        ingest_pb2_grpc.add_IngestServiceServicer_to_server(self, server)
        assert server.add_insecure_port(self.address)
        server.start()
        self._server = server

    def stop(self) -> None:
        """Cut every call off, at once."""
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def add_run(self, run_id: str, **spec: Any) -> agent_pb2.Work:
        self._tokens += 1
        spec = {**spec, "level": f"LEVEL_{spec['level']}".upper()} if "level" in spec else spec
        fields = {
            "level": "LEVEL_LIGHT",
            "workload": "w",
            "profiler": "recorded",
            "device_kind": "V100",
            **spec,
        }
        window = {
            k: fields.pop(k) for k in ("launch_skip", "launch_count", "lease_remaining_ms") if k in fields
        }
        work = agent_pb2.Work(
            key=common_pb2.AttemptKey(run_id=run_id, attempt=1, token=self._tokens),
            write_secret=f"secret {self._tokens}".encode(),
            run=agent_pb2.RunSpec(
                run_id=run_id,
                condition=common_pb2.Condition(cache="CACHE_NONE", clock="CLOCK_NONE", sm_percent=100),
                **fields,
            ),
            **{"lease_remaining_ms": 60_000, **window},
        )
        with self.changed:
            self.waiting.append(work)
            self.changed.notify_all()
        return work

    def table(self, run_id: str) -> pa.Table:
        key, finish = self.published[run_id]
        held = self.segments[key]
        assert sorted(held) == list(range(finish.segments))
        table = joined([held[i] for i in range(finish.segments)])
        assert table.num_rows == finish.launches
        return table

    def _again(self, work: agent_pb2.Work) -> None:
        self._tokens += 1
        again = agent_pb2.Work()
        again.CopyFrom(work)
        again.key.attempt += 1
        again.key.token = self._tokens
        again.write_secret = f"secret {self._tokens}".encode()
        self.waiting.append(again)
        self.changed.notify_all()

    def _is_leased(self, key: common_pb2.AttemptKey, secret: bytes, session: str | None = None) -> bool:
        """Whether an attempt is leased; whoever writes to it must prove that it holds the lease."""
        leased = self.leased.get(key_of(key))
        assert leased is None or leased[1].write_secret == secret, "another secret than that of the lease"
        assert None in (leased, session) or leased[0] == session, "another session than that of the lease"
        return leased is not None

    def Register(self, request: agent_pb2.RegisterRequest, context: Any) -> agent_pb2.RegisterResponse:
        with self.changed:
            self.registrations.append(request)
            self.sessions.add(request.session_id)
            held = {key_of(each.key) for each in request.held}
            resume = [each.key for each in request.held if self._is_leased(each.key, each.write_secret)]
            drop = [each.key for each in request.held if key_of(each.key) not in self.leased]
            for key, (session, work) in list(self.leased.items()):
                if session != request.session_id and key not in held:
                    del self.leased[key]
                    self._again(work)
                elif key in held:
                    self.leased[key] = (request.session_id, work)
            return agent_pb2.RegisterResponse(
                heartbeat_ms=self.heartbeat_ms,
                lease_ms=60_000,
                resume=resume,
                drop=drop,
                server_version="fake",
                idle_heartbeat_ms=self.idle_heartbeat_ms,
            )

    def Heartbeat(self, request: agent_pb2.HeartbeatRequest, context: Any) -> agent_pb2.HeartbeatResponse:
        with self.changed:
            self.heartbeats.append(request)
            for progress in request.attempts:
                self._is_leased(progress.key, progress.write_secret)
            drop = [a.key for a in request.attempts if key_of(a.key) in self.drop_at_heartbeat]
            for key in drop:
                self.leased.pop(key_of(key), None)
            return agent_pb2.HeartbeatResponse(
                drop=drop, register_again=request.session_id not in self.sessions
            )

    def Lease(self, request: agent_pb2.LeaseRequest, context: Any) -> agent_pb2.LeaseResponse:
        with self.changed:
            if request.session_id not in self.sessions:
                return agent_pb2.LeaseResponse(register_again=True)
            self.leases_asked += 1
            if not self.waiting:
                return agent_pb2.LeaseResponse()
            work = self.waiting.pop(0)
            self.leased[key_of(work.key)] = (request.session_id, work)
            return agent_pb2.LeaseResponse(work=work)

    def FinishAttempt(
        self, request: agent_pb2.FinishAttemptRequest, context: Any
    ) -> agent_pb2.FinishAttemptResponse:
        with self.changed:
            key = key_of(request.key)
            before = self.published.get(request.key.run_id)
            if before is not None:
                return agent_pb2.FinishAttemptResponse(published=before[0] == key)
            if not self._is_leased(request.key, request.write_secret, request.session_id):
                return agent_pb2.FinishAttemptResponse(published=False)
            self.published[request.key.run_id] = (key, request)
            del self.leased[key]
            self.changed.notify_all()
        if self.break_stream("finish"):
            context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
        return agent_pb2.FinishAttemptResponse(published=True)

    def FailAttempt(
        self, request: agent_pb2.FailAttemptRequest, context: Any
    ) -> agent_pb2.FailAttemptResponse:
        with self.changed:
            self._is_leased(request.key, request.write_secret, request.session_id)
            self.failures.append(request)
            leased = self.leased.pop(key_of(request.key), None)
            if leased is not None and request.failure.retryable:
                self._again(leased[1])
            self.changed.notify_all()
        return agent_pb2.FailAttemptResponse()

    def Upload(
        self, requests: Iterator[ingest_pb2.UploadRequest], context: Any
    ) -> Iterator[ingest_pb2.UploadResponse]:
        for header, parts in self._received(requests, context):
            names, launches = bytes(parts[ingest_pb2.PART_NAMES]), bytes(parts[ingest_pb2.PART_LAUNCHES])
            assert (len(names), len(launches)) == (header.names_bytes, header.launches_bytes)
            assert _hash(launches) == header.launches_hash
            assert (_hash(names) if names else b"") == header.names_hash
            yield self._taken(header, names, launches, context)

    def _received(
        self, requests: Iterator[ingest_pb2.UploadRequest], context: Any
    ) -> Iterator[tuple[ingest_pb2.SegmentHeader, dict[int, bytearray]]]:
        header, parts = None, {}
        for request in requests:
            self.received += 1
            if self.break_stream("message"):
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
            if request.WhichOneof("message") == "header":
                header = request.header
                parts = {ingest_pb2.PART_NAMES: bytearray(), ingest_pb2.PART_LAUNCHES: bytearray()}
                assert header.launches_bytes > 0
                continue
            assert header is not None and len(request.chunk.data) <= 1 << 20
            if request.chunk.part == ingest_pb2.PART_LAUNCHES:
                assert len(parts[ingest_pb2.PART_NAMES]) == header.names_bytes
            parts[request.chunk.part] += request.chunk.data
            if len(parts[ingest_pb2.PART_LAUNCHES]) == header.launches_bytes:
                yield header, parts

    def _taken(
        self, header: ingest_pb2.SegmentHeader, names: bytes, launches: bytes, context: Any
    ) -> ingest_pb2.UploadResponse:
        key = key_of(header.key)
        with self.changed:
            self._is_leased(header.key, header.write_secret, header.session_id)
            wanted = key in self.leased or self.published.get(key[0], (None,))[0] == key
            if not wanted or self.refuse(key, header.segment):
                refused = common_pb2.Failure(
                    failure_class="server_refused", subject=key[0], cause="refused on purpose", remedy="none"
                )
                return ingest_pb2.UploadResponse(
                    refusal=ingest_pb2.SegmentRefusal(key=header.key, segment=header.segment, failure=refused)
                )
            held = self.segments.setdefault(key, {})
            duplicate = header.segment in held
            self.duplicates += duplicate
            assert duplicate or header.segment == len(held), "segments come in order"
            assert held.setdefault(header.segment, (names, launches)) == (names, launches)
            self.changed.notify_all()
        while not self.hold_acks.wait(0.02):
            if not context.is_active():
                break
        if self.break_stream("ack"):
            context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
        return ingest_pb2.UploadResponse(
            ack=ingest_pb2.SegmentAck(key=header.key, segment=header.segment, duplicate=duplicate)
        )


def _hash(part: bytes) -> bytes:
    return hashlib.blake2b(part, digest_size=32).digest()
