"""A server that was told to end: it gives no more work, tells who watches, and lets calls under way end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from assay_core.records.lease import FinishedAttempt
from assay_server.app import Server
from assay_server.campaigns.ingest.publish import Publisher
from tests.support.metrics import value
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN, eventually


@pytest.fixture
def slow_finish(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Publishing waits for this event."""
    may_end, finish = threading.Event(), Publisher.finish

    def slow(self: Publisher, attempt: FinishedAttempt) -> bool:
        assert may_end.wait(30)
        return finish(self, attempt)

    monkeypatch.setattr(Publisher, "finish", slow)
    yield may_end
    may_end.set()


@contextmanager
def finishing(server: Server) -> Iterator[tuple[PlayingAgent, Future[Any], ThreadPoolExecutor]]:
    """An agent whose FinishAttempt is under way, and threads for more calls."""
    with PlayingAgent(server.addresses[0]) as agent, ThreadPoolExecutor(4) as threads:
        agent.register(("recorded-0", "recorded-1"))
        agent.submit(CAMPAIGN)
        key = agent.work(wait_ms=5000).key
        segments = made_segments((30,), "detailed", counters=2)
        agent.upload(key, segments)
        finished = threads.submit(agent.finish, key, 1, 30)
        registry = server.metrics.registry
        eventually(
            lambda: registry.get_sample_value("assay_server_calls_running", {"call": "FinishAttempt"}) == 1,
            "the call",
        )
        yield agent, finished, threads


def test_a_draining_server_gives_no_work_and_ends_what_was_begun(
    make_server: Callable[..., Server], slow_finish: threading.Event
) -> None:
    server = make_server()
    with finishing(server) as (agent, finished, threads):
        health = health_pb2_grpc.HealthStub(agent.channel)
        stopped = threads.submit(server.stop)
        asked = health_pb2.HealthCheckRequest()
        eventually(
            lambda: health.Check(asked, timeout=60).status == health_pb2.HealthCheckResponse.NOT_SERVING,
            "the drain",
        )
        assert value(server.metrics.registry, "assay_server_draining") == 1
        assert agent.lease("recorded-1").work is None, "two runs wait, but none is given"
        assert not agent.heartbeat().register_again, "signs of life still count"
        assert not stopped.done()
        slow_finish.set()
        assert finished.result(60).published
        stopped.result(60)
    with PlayingAgent(make_server().addresses[0]) as agent:
        assert [(r.state, r.attempts) for r in agent.status("made-1").runs] == [
            ("done", 1), ("waiting", 0), ("waiting", 0),
        ]  # fmt: skip


def test_what_takes_longer_than_the_drain_is_cut_off_and_named(
    make_server: Callable[..., Server], slow_finish: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(drain_seconds=0.2)
    with finishing(server) as (_, finished, threads):
        stopped = threads.submit(server.stop)
        with pytest.raises(grpc.RpcError):
            finished.result(60)
        slow_finish.set()
        stopped.result(60)
    assert "1 calls are cut off: they took longer than --drain" in caplog.text


def test_an_idle_server_ends_at_once(make_server: Callable[..., Server]) -> None:
    """A whole hour was given to calls, and there are none."""
    make_server(drain_seconds=3600.0).stop()
