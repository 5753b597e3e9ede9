"""A full spool: no further run begins, the server hears it, and nothing that was measured is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_agent.spool.damaged import DamagedFiles
from assay_agent.spool.spool import Spool
from assay_core.records.attempt import AttemptKey
from assay_protos import agent_pb2
from tests.support.agent.assignments import assignment
from tests.support.agent.fake_server import FakeServer, batches_of, wait_for
from tests.support.agent.recording_agent import agent_of
from tests.support.integration.made_trace import trace


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    made = FakeServer(tmp_path_factory.mktemp("s"))
    made.start()
    yield made
    made.stop()


def test_no_run_begins_from_three_quarters_until_half(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", minimum_free_bytes=0, flush_seconds=0.0)
    attempt = spool.create(assignment())
    for batch in batches_of(400, 100):
        attempt.append(batch)
    wait_for(lambda: attempt.next_pending(3) == 3)
    used = spool.used_bytes
    spool.limit_bytes = used * 4 // 3 + 4
    assert spool.takes_runs() and not spool.state().waits
    spool.limit_bytes = used * 4 // 3 - 4
    assert not spool.takes_runs()
    assert (spool.state().used_bytes, spool.state().limit_bytes, spool.state().waits) == (
        used, spool.limit_bytes, True,
    )  # fmt: skip
    attempt.acknowledge(0)
    assert spool.limit_bytes / 2 < spool.used_bytes < spool.limit_bytes * 0.75
    assert not spool.takes_runs(), "it would stop and go with every segment"
    attempt.acknowledge(1)
    attempt.acknowledge(2)
    assert spool.takes_runs()
    spool.remove(attempt)
    spool.close()


def test_a_full_spool_takes_no_work_until_the_server_has_taken_some(
    server: FakeServer, tmp_path: Path
) -> None:
    recording = trace(tmp_path / "trace.json", kernels=300)

    def is_full(heartbeat: agent_pb2.HeartbeatRequest, used_bytes: int) -> bool:
        return heartbeat.spool.waits and heartbeat.spool.used_bytes == used_bytes

    def add(run_id: str) -> None:
        server.add_run(run_id, recorded=agent_pb2.RecordedSource(path=str(recording)))

    server.hold_acks.clear()
    add("c-1.0000")
    with agent_of(tmp_path / "agent", server.address):
        wait_for(lambda: list((tmp_path / "agent/spool").glob("*/seal.json")))
        wait_for(lambda: server.heartbeats and server.heartbeats[-1].spool.used_bytes)
    one = server.heartbeats[-1].spool.used_bytes
    options = {"recorded_slots": 2, "spool_limit_bytes": int(2.6 * one)}
    with agent_of(tmp_path / "agent", server.address, **options):
        wait_for(lambda: len(server.registrations) == 2)
        add("c-1.0001")  # one slot takes it; the other asks for work until the spool is full
        wait_for(lambda: is_full(server.heartbeats[-1], 2 * one))
        asked = server.leases_asked
        add("c-1.0002")
        time.sleep(2.5)  # longer than the longest pause
        assert server.leases_asked == asked
        assert [work.key.run_id for work in server.waiting] == ["c-1.0002"]
        server.hold_acks.set()
        wait_for(lambda: len(server.published) == 3)
        wait_for(lambda: not server.heartbeats[-1].spool.waits)
    assert [server.table(f"c-1.000{number}").num_rows for number in range(3)] == [300] * 3


def test_only_the_newest_damaged_files_are_kept(tmp_path: Path) -> None:
    kept = DamagedFiles(tmp_path / "damaged", most=2)
    for number in range(4):
        path = tmp_path / f"segment-{number}"
        path.write_bytes(b"torn")
        kept.put(AttemptKey(f"c-1.000{number}", 0, 1, 1), path, "its header is cut off")
    assert kept.count == 2
    assert sorted(p.name for p in (tmp_path / "damaged").rglob("segment-*")) == ["segment-2", "segment-3"]
    kept.put(AttemptKey("c-1.0009", 0, 1, 1), tmp_path / "gone", "it is gone")
    assert kept.count == 2
