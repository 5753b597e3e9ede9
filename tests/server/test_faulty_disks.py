"""A disk that returns an error when data are made durable: nothing is lost, doubled or taken for durable.

Each test makes one campaign without a fault, and then lets each of its syncs fail once, with
every errno that a failing, read-only or full disk gives.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from assay_core.records.failure import Failure
from assay_protos import agent_pb2
from assay_server.app import Server
from tests.support.agent.fake_server import FakeServer, wait_for
from tests.support.agent.recording_agent import agent_of
from tests.support.integration.made_trace import trace
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import eventually

ONE_RUN = """\
campaign: one
workloads: [{name: training, recordings: [{device: V100, light: light.sqlite}]}]
"""
ERRNOS = {"failing": errno.EIO, "read-only": errno.EROFS, "full": errno.ENOSPC}


class FaultySync:
    """Lets the ``fail_at``-th sync of files and folders fail once (0: none), and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lock = threading.Lock()
        self.calls = self.fail_at = 0
        self.errno = errno.EIO
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._in_place_of(getattr(os, name)))

    def _in_place_of(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            with self._lock:
                self.calls += 1
                fails = self.calls == self.fail_at
            if fails:
                raise OSError(self.errno, os.strerror(self.errno))
            real(descriptor)

        return sync

    def begin(self, fail_at: int, number: int) -> None:
        with self._lock:
            self.calls, self.fail_at, self.errno = 0, fail_at, number


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultySync:
    return FaultySync(monkeypatch)


def until_it_takes(call: Callable[[], Any]) -> Any:
    """Call until the server's disk does not refuse it; any other error fails the test."""
    for _ in range(5):
        try:
            return call()
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, error
    raise AssertionError("the disk refuses again and again")


def records_of(state: Path, campaign_id: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((state / "records").glob(f"{campaign_id}.*/*"))]


@pytest.mark.parametrize("how", ERRNOS)
def test_a_server_whose_disk_fails_once_anywhere_ends_each_campaign_the_same(
    make_server: Callable[..., Server], disk: FaultySync, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_server.campaigns.analysing.analyses._DISK_PAUSE_SECONDS", 0.01)
    server = make_server()
    state = server.settings.state_dir
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()

        def played() -> str:
            campaign_id: str = until_it_takes(lambda: agent.submit(ONE_RUN))
            work = agent.work(wait_ms=5000)
            for segment in made_segments((40, 30)):
                [answer] = until_it_takes(lambda s=segment: agent.upload(work.key, [s]))
                assert answer.refusal is None
            assert until_it_takes(lambda: agent.finish(work.key, 2, 70)).published
            eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
            return campaign_id

        disk.begin(0, 0)
        whole = records_of(state, played())
        assert len(whole) == 1
        # How often it syncs depends on which writes meet in one commit: so until no fault takes hold.
        for fail_at in itertools.count(1):
            disk.begin(fail_at, ERRNOS[how])
            campaign_id = played()
            if disk.calls < fail_at:
                break
            assert records_of(state, campaign_id) == whole
            [attempt] = agent.run(f"{campaign_id}.0000").attempts
            assert (attempt.state, attempt.launches) == ("published", 70)
        assert fail_at > 6
        assert agent.listed().set_aside == ()


@pytest.fixture
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    made = FakeServer(tmp_path_factory.mktemp("s"))
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("how", ERRNOS)
def test_an_agent_whose_disk_fails_once_anywhere_delivers_every_launch_once(
    fake: FakeServer, tmp_path: Path, disk: FaultySync, how: str
) -> None:
    recording = str(trace(tmp_path / "trace.json", kernels=200))
    numbers = itertools.count()
    with agent_of(tmp_path / "agent", fake.address):
        wait_for(lambda: fake.registrations)

        def played() -> str:
            run_id = f"c-1.{next(numbers):04d}"
            fake.add_run(run_id, recorded=agent_pb2.RecordedSource(path=recording))
            wait_for(lambda: run_id in fake.published)
            wait_for(lambda: not list((tmp_path / "agent" / "spool").iterdir()))
            return run_id

        disk.begin(0, 0)
        whole = fake.table(played())
        syncs = disk.calls
        assert syncs >= 4
        for fail_at in range(1, syncs + 1):
            disk.begin(fail_at, ERRNOS[how])
            assert fake.table(played()).equals(whole)
    told = [Failure.from_proto(each.failure) for each in fake.failures]
    assert told and {each.failure_class for each in told} == {"disk_full"}
    assert all("E" in each.cause and each.retryable for each in told)
