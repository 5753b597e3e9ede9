"""What a server tells Prometheus: exact numbers of a played campaign, and labels that cannot multiply."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_core.identity.roles import OWNER_NAME
from assay_core.program_log import LogFormat, log_formatter
from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.machine import Inventory, Slot
from assay_protos import agent_pb2, archive_pb2, campaign_pb2, ingest_pb2
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass
from assay_server.app import Server
from assay_server.campaigns.scheduling.fitting_slots import AWAY_AFTER_MS
from assay_server.campaigns.scheduling.resting import Rest, SlotKey
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.metrics.server_metrics import OTHER, QueueCollector, ServerMetrics, queue_of
from assay_server.store.model import Agent
from assay_server.store.parts.overviews import StoreLoad
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.support.metrics import fetched, label_values, samples_of, value
from tests.support.server.cancelling import cancel
from tests.support.server.coordinators import coordinator_over
from tests.support.server.desk import Desk
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN, HandClock, eventually

SERVED = {
    method.name
    for module in (agent_pb2, archive_pb2, campaign_pb2, ingest_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
} | {"Check", "Watch"}
ALLOWED = {
    "call": SERVED,
    "code": {code.name for code in grpc.StatusCode},
    "state": {str(s) for s in (*CampaignState, *RunState, *AttemptState)}
    | {"present", "away", "idle", "busy", "resting", "quarantined"},
    "outcome": {*map(str, AttemptState), "done", "failed"},
    "failure_class": {*map(str, FailureClass), OTHER},
    "part": {"wait", "work", "commit"},
    "program": {"assay-server"},
    "certificate": {"authority", "metrics", "server"},
    "task": {"backup", "check"},
}
FREE = {"le", "version", "python"}  # buckets, and one value each


def test_a_played_campaign_is_counted_exactly(make_server: Callable[..., Server]) -> None:
    server = make_server()
    registry = server.metrics.registry
    segments = [*made_segments((100, 50)), *made_segments((70,))]
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(CAMPAIGN)
        assert value(registry, "assay_server_runs", state="waiting") == 3
        agent.fail(agent.work(wait_ms=5000).key)
        agent.play(made_segments((30,), "detailed", counters=2))
        agent.play(segments[:2])
        agent.play(segments[2:])
        agent.heartbeat()
        with pytest.raises(grpc.RpcError):
            agent.status("unknown")
        eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
    total = "assay_server_launches_total"
    assert value(registry, total) == 250
    assert value(registry, "assay_server_segments_total") == 4
    first = made_segments((30,), "detailed", counters=2)
    size = sum(len(s.names) + len(s.data) for s in (*first, *segments))
    assert value(registry, "assay_server_bytes_total") == size
    assert value(registry, "assay_server_attempts_ended_total", outcome="published") == 3
    assert value(registry, "assay_server_attempts_ended_total", outcome="failed") == 1
    assert value(registry, "assay_server_failures_total", failure_class="hang") == 1
    assert value(registry, "assay_server_analyses_total", outcome="done") == 1
    assert value(registry, "assay_server_calls_total", call="Heartbeat", code="OK") == 1
    assert value(registry, "assay_server_calls_total", call="GetStatus", code="NOT_FOUND") == 1
    assert value(registry, "assay_server_calls_total", call="Upload", code="OK") == 3
    assert registry.get_sample_value("assay_server_call_seconds_count", {"call": "Upload"}) is None
    assert value(registry, "assay_server_call_seconds_count", call="Heartbeat") == 1
    assert value(registry, "assay_server_store_seconds_count", part="commit") > 10
    assert value(registry, "assay_server_calls_running", call="Lease") == 0


def test_no_label_can_multiply(make_server: Callable[..., Server]) -> None:
    """Names of campaigns, runs, kernels, agents and calls that somebody makes up reach no label."""
    server = make_server(metrics="127.0.0.1:0")
    with PlayingAgent(server.addresses[0], agent_id="made-up-agent") as agent:
        agent.register(("made-up-slot",))
        agent.submit(CAMPAIGN.replace("campaign: made", "campaign: made-up"))
        key = agent.work("made-up-slot", wait_ms=5000).key
        agent.fail(key, "made-up-class")
        unknown = agent.channel.unary_unary(
            "/assay.v1.AgentService/MadeUp", request_serializer=bytes, response_deserializer=bytes
        )
        with pytest.raises(grpc.RpcError):
            unknown(b"", timeout=60)
    status, text = fetched(server.metrics_address)
    assert status == 200
    samples = samples_of(text)
    assert {s.name for s in samples if s.name.startswith("assay_")} > {"assay_build_info"}
    found = label_values(samples)
    assert set(found) <= set(ALLOWED) | FREE
    for label, values in found.items():
        if label not in FREE:
            assert values <= ALLOWED[label], label
    assert "made-up" not in text.lower().replace("madeup", "made-up")
    assert value(server.metrics.registry, "assay_server_failures_total", failure_class=OTHER) == 1
    assert len(samples) < 1500, "a server has as many series as it will ever have, plus those of RPC statuses"


def test_two_servers_of_one_process_count_apart(make_server: Callable[..., Server]) -> None:
    first = make_server()
    with PlayingAgent(first.addresses[0]) as agent:
        agent.submit(CAMPAIGN)
    second = ServerMetrics(first.settings.state_dir)
    assert value(first.metrics.registry, "assay_server_calls_total", call="Submit", code="OK") == 1
    assert (
        second.registry.get_sample_value("assay_server_calls_total", {"call": "Submit", "code": "OK"}) is None
    )


AGENTS = st.lists(
    st.tuples(
        st.integers(0, 8 * 86_400_000), st.lists(st.sampled_from(["", "lost"]), max_size=4), st.booleans()
    ),
    max_size=6,
)


@given(AGENTS, st.integers(0, 30))
def test_every_slot_of_a_present_agent_counts_once(
    found: list[tuple[int, list[str], bool]], leased: int
) -> None:
    now_ms = 10 * 86_400_000
    agents, rests = [], set()
    for number, (silent_ms, reasons, rest) in enumerate(found):
        slots = tuple(Slot(str(i), ("recorded",), quarantine_reason=r) for i, r in enumerate(reasons))
        agents.append(Agent(str(number), "s", "a", Inventory(), slots, now_ms - silent_ms))
        if rest:
            rests.add((str(number), "0"))
    load = StoreLoad(busy_slots=leased)
    queue = queue_of(load, agents, rests, now_ms)
    present = [each for each in found if each[0] <= AWAY_AFTER_MS]
    assert sum(queue["slots"].values()) == sum(len(reasons) for _, reasons, _ in present)
    assert queue["slots"]["quarantined"] == sum(r == "lost" for _, reasons, _ in present for r in reasons)
    assert min(queue["slots"].values()) >= 0
    known = sum(silent_ms <= 7 * 86_400_000 for silent_ms, _, _ in found)
    assert queue["agents"] == {"present": len(present), "away": known - len(present)}


def test_the_store_counts_what_there_is_to_do() -> None:
    desk = Desk(campaigns=2)
    desk.register()
    desk.do(lambda s: s.lease("a", "0"))
    desk.do(lambda s: s.lease("a", "1"))
    with desk.store.snapshot() as read:
        load = read.load()
    assert load.campaigns == {CampaignState.RUNNING: 2}
    assert load.runs == {RunState.WAITING: 4, RunState.RUNNING: 2}
    assert load.attempts == {AttemptState.LEASED: 2}
    desk.do(lambda s: cancel(s, "made-1"))
    with desk.store.snapshot() as read:
        load = read.load()
    assert load.campaigns == {CampaignState.RUNNING: 1, CampaignState.CANCELLED: 1}
    assert load.runs == {RunState.WAITING: 3}
    assert load.attempts == {}


class _Coordinator:
    """Counts how often it is asked, and how long that seems to take."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.desk = Desk()
        self.asked = 0
        self.seconds = 0.0
        self.passed = 0.0

    def snapshot(self) -> object:
        self.asked += 1
        self.passed += self.seconds
        return self.desk.store.snapshot()

    def resting(self) -> dict[SlotKey, Rest]:
        return {}


def test_reading_often_does_not_ask_the_store_often() -> None:
    coordinator = _Coordinator()
    collector = QueueCollector(coordinator, lambda: coordinator.passed)  # type: ignore[arg-type]
    list(collector.describe())
    assert coordinator.asked == 0
    for _ in range(10):
        assert {family.name for family in collector.collect()} > {"assay_server_runs"}
    assert coordinator.asked == 1
    coordinator.passed, coordinator.seconds = 5.0, 2.0
    list(collector.collect())
    assert coordinator.asked == 2, "five seconds later"
    coordinator.passed = 100.0
    list(collector.collect())
    assert coordinator.asked == 2, "a question of two seconds is not asked again for 100"
    coordinator.passed = 105.0
    list(collector.collect())
    assert coordinator.asked == 3


def test_a_transaction_that_the_store_refuses_is_told_apart(tmp_path: Path) -> None:
    done, refusals = list[tuple[float, ...]](), list[str]()
    coordinator = coordinator_over(
        SqliteStore(None),
        LocalRecordStore(tmp_path),
        SchedulePolicy(),
        HandClock(),
        on_stored=lambda *seconds: done.append(seconds),
        on_refusal=lambda: refusals.append("refused"),
    )
    with coordinator.schedule() as schedule:
        schedule.store.next_token()
    assert len(done) == 1
    assert all(0 <= seconds < 5 for seconds in done[0])
    with pytest.raises(StorageError), coordinator.schedule():
        raise StorageError("disk", "it is full", "free space")
    with pytest.raises(KeyError), coordinator.schedule():
        raise KeyError
    assert (len(done), refusals) == (1, ["refused"])


def test_lines_of_a_call_name_it_and_its_address(
    make_server: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those that a handler writes in its thread."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_formatter(LogFormat.JSON))
    logger = logging.getLogger("assay_server.campaigns.scheduling.resting")
    logger.addHandler(handler)
    try:
        server = make_server()
        with PlayingAgent(server.addresses[0]) as agent:
            agent.register()
            agent.submit(CAMPAIGN)
            agent.fail(agent.work(wait_ms=5000).key, "disk_full")
    finally:
        logger.removeHandler(handler)
    [line] = [json.loads(text) for text in capsys.readouterr().err.splitlines() if "rests for" in text]
    assert line["call"] == "FailAttempt"
    assert line["address"] == "unix"
    assert line["caller"] == OWNER_NAME


def test_the_log_names_each_attempt_that_failed(
    make_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(CAMPAIGN)
        agent.fail(agent.work(wait_ms=5000).key)
        agent.cancel(campaign_id)
    lines = [record.getMessage() for record in caplog.records if "an attempt failed" in record.getMessage()]
    assert lines == [
        "an attempt failed on slot recorded-0 of agent name of agent-1: it made no progress [hang]"
    ]
