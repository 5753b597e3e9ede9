"""The uplink: every segment reaches the server once and in order, whatever happens to the stream."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay_agent.spool.attempt import AttemptEnded, SpooledAttempt
from assay_agent.spool.spool import Spool
from assay_agent.uplink.connection import Connection
from assay_agent.uplink.session import Identity
from assay_agent.uplink.uplink import Uplink
from assay_core.records.attempt import AttemptKey
from assay_core.records.work import Work
from assay_sampling.errors import NotReadyError, ParameterError
from assay_sampling.launches.table import BASELINE
from tests.support.agent.assignments import LOG
from tests.support.agent.fake_server import FakeServer, batches_of, joined, table_of, wait_for


@contextmanager
def sending(spool: Spool, server: FakeServer, **options: float) -> Iterator[Uplink]:
    connection = Connection(server.address)
    uplink = Uplink(spool, connection, Identity("agent", ""), **{"idle_seconds": 0.2, **options})  # type: ignore[arg-type]
    uplink.start()
    try:
        yield uplink
    finally:
        uplink.stop()
        connection.close()
        assert not uplink.alive


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "spool", minimum_free_bytes=0, flush_seconds=0.0)
    yield made
    made.close()


def lease(server: FakeServer, run_id: str = "campaign-1.0000") -> Work:
    """Work that the server holds to be leased, as an assignment."""
    work = server.add_run(run_id)
    server.waiting.remove(work)
    key = AttemptKey.from_proto(work.key)
    server.leased[key.run_id, key.slice_index, key.attempt, key.token] = ("", work)
    secret = work.write_secret
    return Work(
        key=key,
        campaign_id="campaign-1",
        workload="w",
        device_kind="V100",
        level="light",
        condition=BASELINE,
        profiler="recorded",
        write_secret=secret,
    )


def fill(attempt: SpooledAttempt, launches: int, batch_size: int, seed: int = 0) -> None:
    for batch in batches_of(launches, batch_size, seed=seed):
        attempt.append(batch)
    attempt.seal((), LOG)


def stored(server: FakeServer, attempt: SpooledAttempt) -> list[tuple[bytes, bytes]]:
    key = attempt.key
    held = server.segments[key.run_id, key.slice_index, key.attempt, key.token]
    return [held[i] for i in range(len(held))]


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_that_breaks_anywhere_loses_nothing_and_doubles_nothing(
    spool: Spool, server: FakeServer, seed: int
) -> None:
    chance = random.Random(seed)
    server.break_stream = lambda where: chance.random() < 0.06
    attempts = [spool.create(lease(server, f"run.{i}")) for i in range(3)]
    with sending(spool, server):
        for i, attempt in enumerate(attempts):
            fill(attempt, 3_000, 100, seed=i)
        for attempt in attempts:
            assert attempt.wait_acknowledged().segments == 30
    for i, attempt in enumerate(attempts):
        assert joined(stored(server, attempt)).equals(table_of(batches_of(3_000, 100, seed=i)))
    assert server.duplicates > 0


def test_large_segments_travel_in_chunks_of_1_mib(tmp_path: Path, server: FakeServer) -> None:
    spool = Spool(tmp_path / "large", minimum_free_bytes=0)
    attempt = spool.create(lease(server))
    batches = batches_of(120_000, 65_536, counters=30)
    with sending(spool, server):
        for batch in batches:
            attempt.append(batch)
        attempt.seal((), LOG)
        attempt.wait_acknowledged()
    assert max(len(launches) for _, launches in stored(server, attempt)) > 2 << 20
    assert joined(stored(server, attempt)).equals(table_of(batches))
    spool.close()


def test_a_server_that_comes_late_gets_everything(spool: Spool, server: FakeServer) -> None:
    attempt = spool.create(lease(server))
    server.stop()
    with sending(spool, server):
        fill(attempt, 1_000, 100)
        time.sleep(0.3)
        assert server.received == 0
        server.start()
        assert attempt.wait_acknowledged().launches == 1_000
    assert joined(stored(server, attempt)).equals(table_of(batches_of(1_000, 100)))


def test_a_server_that_is_killed_and_restarted_gets_the_rest(spool: Spool, server: FakeServer) -> None:
    attempt = spool.create(lease(server))
    with sending(spool, server):
        for number, batch in enumerate(batches_of(2_000, 50)):
            attempt.append(batch)
            if number in (10, 20, 30):
                wait_for(lambda least=number - 5: len(server.segments.get(_key(attempt), {})) > least)
                server.stop()
                server.start()
        attempt.seal((), LOG)
        attempt.wait_acknowledged()
    assert joined(stored(server, attempt)).equals(table_of(batches_of(2_000, 50)))


def _key(attempt: SpooledAttempt) -> tuple[str, int, int, int]:
    return (attempt.key.run_id, attempt.key.slice_index, attempt.key.attempt, attempt.key.token)


def test_at_most_a_window_of_segments_is_on_its_way(spool: Spool, server: FakeServer) -> None:
    attempt = spool.create(lease(server))
    server.hold_acks.clear()
    fill(attempt, 2_000, 50)
    with sending(spool, server, window_segments=5):
        wait_for(lambda: len(server.segments.get(_key(attempt), {})) == 1)
        wait_for(lambda: server.received == 1 + 2)  # the next one waits behind the held acknowledgement
        server.hold_acks.set()
        attempt.wait_acknowledged()
    assert joined(stored(server, attempt)).num_rows == 2_000


def test_segments_go_on_while_earlier_ones_are_unanswered(spool: Spool, server: FakeServer) -> None:
    attempt = spool.create(lease(server))
    fill(attempt, 400, 50)
    server.hold_acks.clear()
    with sending(spool, server, window_segments=4) as uplink:
        wait_for(lambda: len(uplink._stream.in_flight) == 4)
        time.sleep(0.1)
        assert len(uplink._stream.in_flight) == 4
        server.hold_acks.set()
        attempt.wait_acknowledged()


def test_a_refusal_ends_the_attempt_and_leaves_others_alone(
    spool: Spool, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.refuse = lambda key, segment: key[0] == "unwanted" and segment == 3
    unwanted, wanted = spool.create(lease(server, "unwanted")), spool.create(lease(server, "wanted"))
    with sending(spool, server):
        fill(wanted, 500, 50)
        with pytest.raises(AttemptEnded) as caught:
            fill(unwanted, 500, 50)
            unwanted.wait_acknowledged()
        assert caught.value.failure is None
        assert "run unwanted slice 0 attempt 1 is refused: refused on purpose" in caplog.text
        wanted.wait_acknowledged()
    assert joined(stored(server, wanted)).num_rows == 500


def test_a_segment_that_vanished_ends_its_attempt_only(spool: Spool, server: FakeServer) -> None:
    attempt, other = spool.create(lease(server, "damaged")), spool.create(lease(server, "other"))
    fill(attempt, 500, 50)
    fill(other, 500, 50)
    (attempt.directory / "segment-00000004.seg").write_bytes(b"torn")
    with sending(spool, server):
        with pytest.raises(AttemptEnded, match=r"segment-00000004\.seg: its header is cut off"):
            attempt.wait_acknowledged()
        other.wait_acknowledged()


def test_a_server_that_stops_answering_is_left_for_a_new_stream(spool: Spool, server: FakeServer) -> None:
    attempt = spool.create(lease(server))
    server.hold_acks.clear()
    fill(attempt, 500, 50)
    with sending(spool, server, answer_seconds=0.1) as uplink:
        wait_for(lambda: server.received > 0)
        time.sleep(0.2)
        first = uplink._stream
        uplink.watch()
        wait_for(lambda: uplink._stream is not first)
        server.hold_acks.set()
        attempt.wait_acknowledged()
    assert joined(stored(server, attempt)).num_rows == 500


def test_an_idle_stream_is_closed_and_opened_again_when_needed(spool: Spool, server: FakeServer) -> None:
    with sending(spool, server, idle_seconds=0.05) as uplink:
        for name in ("first", "second"):
            attempt = spool.create(lease(server, name))
            fill(attempt, 100, 50)
            attempt.wait_acknowledged()
            wait_for(lambda: uplink._stream.closed)
    assert not [t for t in threading.enumerate() if t.name == "assay-uplink"]


@pytest.mark.parametrize(
    "address", ["", "unix:", "host", "127.0.0.1:", "127.0.0.1:0", ":80", "127.0.0.1:70000"]
)
def test_addresses_that_are_none_are_refused(address: str) -> None:
    with pytest.raises(ParameterError, match=r"is not an address|does not name a socket"):
        Connection(address)


@pytest.mark.parametrize("address", ["10.0.0.1:7170", "lab-server:7170", "127.0.0.1:7170", "localhost:1"])
def test_over_tcp_nothing_is_sent_without_a_certificate(address: str) -> None:
    with pytest.raises(NotReadyError, match="assay-agent join HOST:PORT --token TOKEN"):
        Connection(address)
