"""No client stops the others: every limit on what one may ask for, as it is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from assay_core.records.attempt import AttemptKey, Claim
from assay_core.records.upload import AnnouncedSegment, SegmentHeader
from assay_protos import ingest_pb2
from assay_server.app import Server
from assay_server.campaigns.ingest.segments import Answer, Ingest, Upload
from assay_server.limits import AgentLimits, CallLimits, Limits, QueryLimits, UploadLimits
from assay_server.store.sqlite import SqliteStore
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN, eventually

MakeServer = Callable[..., Server]


def code(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code().name, caught.value.details()


def header(size: int = 8 << 20) -> ingest_pb2.UploadRequest:
    """Announces a segment."""
    claim = Claim(AttemptKey("made-1.0000", 0, 1, 1), "", "", b"")
    announced = AnnouncedSegment(claim, SegmentHeader(0, 1, 0, size, b"", b"h"))
    return ingest_pb2.UploadRequest(header=announced.to_proto())


def running(server: Server, call: str) -> float | None:
    """How many calls of this name the server is answering."""
    return server.metrics.registry.get_sample_value("assay_server_calls_running", {"call": call})


def slowly(
    end: threading.Event, *messages: ingest_pb2.UploadRequest, drip: bool = False
) -> Iterator[ingest_pb2.UploadRequest]:
    """These messages, and then none until the end; ``drip``: a byte now and then."""
    yield from messages
    while not end.wait(0.1):
        if drip:
            chunk = ingest_pb2.SegmentChunk(part=ingest_pb2.PART_LAUNCHES, data=b"x")
            yield ingest_pb2.UploadRequest(chunk=chunk)


def test_what_is_announced_and_never_sent_holds_nobody_up(make_server: MakeServer) -> None:
    """Headers for twice as many bytes as the server takes; a real upload goes through all the same."""
    server = make_server(limits=Limits(uploads=UploadLimits(upload_held_bytes=64 << 20)))
    end = threading.Event()
    with PlayingAgent(server.addresses[0]) as agent:
        held = [agent.ingest.Upload(slowly(end, header())) for _ in range(16)]
        agent.submit(CAMPAIGN)
        agent.register()
        agent.play(made_segments((30,), "detailed"))
        end.set()
        for call in held:
            call.cancel()


@pytest.mark.parametrize("drip", [False, True])
def test_a_segment_that_is_not_complete_in_time_ends_its_stream(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, drip: bool
) -> None:
    monkeypatch.setattr(UploadLimits, "upload_idle_seconds", 60 if drip else 1)
    monkeypatch.setattr(UploadLimits, "upload_segment_seconds", 2)
    server = make_server()
    end = threading.Event()
    with PlayingAgent(server.addresses[0]) as agent:
        name, said = code(lambda: list(agent.ingest.Upload(slowly(end, header(), drip=drip), timeout=30)))
        end.set()
    assert name == "INVALID_ARGUMENT"
    assert ("was not complete after 2 s" if drip else "nothing came for 1 s") in said


def test_a_stream_that_says_nothing_at_all_ends_too(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UploadLimits, "upload_idle_seconds", 1)
    server = make_server()
    end = threading.Event()
    with PlayingAgent(server.addresses[0]) as agent:
        name, _ = code(lambda: list(agent.ingest.Upload(slowly(end), timeout=30)))
        end.set()
    assert name == "INVALID_ARGUMENT"


def test_bytes_that_came_and_find_no_room_end_their_stream_for_later(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UploadLimits, "upload_wait_seconds", 1)
    server = make_server(limits=Limits(uploads=UploadLimits(upload_held_bytes=3 << 20)))
    end = threading.Event()
    chunk = ingest_pb2.SegmentChunk(part=ingest_pb2.PART_LAUNCHES, data=b"x" * (1 << 20))
    sent = [header(), *[ingest_pb2.UploadRequest(chunk=chunk)] * 4]
    with PlayingAgent(server.addresses[0]) as agent:
        name, said = code(lambda: list(agent.ingest.Upload(slowly(end, *sent), timeout=30)))
        end.set()
    assert (name, "not yet stored" in said) == ("RESOURCE_EXHAUSTED", True)


def test_streams_that_break_off_within_a_segment_leave_nothing_held(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a budget of 3 MiB each stream held 2: the second would be refused, were they not given back."""
    monkeypatch.setattr(UploadLimits, "upload_wait_seconds", 2)
    server = make_server(limits=Limits(uploads=UploadLimits(upload_held_bytes=3 << 20)))
    chunk = ingest_pb2.SegmentChunk(part=ingest_pb2.PART_LAUNCHES, data=b"x" * (1 << 20))
    sent = [header(), *[ingest_pb2.UploadRequest(chunk=chunk)] * 2]
    with PlayingAgent(server.addresses[0]) as agent:
        answers = [list(agent.ingest.Upload(iter(sent), timeout=30)) for _ in range(4)]
        agent.submit(CAMPAIGN)
        agent.register()
        agent.play(made_segments((30,), "detailed"))
    assert answers == [[]] * 4


def test_streams_beyond_the_limit_are_refused_and_signs_of_life_are_not(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the test takes longer than streams may be idle.
    monkeypatch.setattr(UploadLimits, "upload_idle_seconds", 3600)
    monkeypatch.setattr(UploadLimits, "upload_segment_seconds", 3600)
    limits = Limits(uploads=UploadLimits(upload_streams=3), queries=QueryLimits(watch_streams=2))
    server = make_server(limits=limits)
    end = threading.Event()
    with PlayingAgent(server.addresses[0]) as agent:
        agent.submit(CAMPAIGN)
        health, request = health_pb2_grpc.HealthStub(agent.channel), health_pb2.HealthCheckRequest()
        watches = [health.Watch(request) for _ in range(2)]
        assert [next(watch).status for watch in watches] == [health_pb2.HealthCheckResponse.SERVING] * 2
        assert code(lambda: next(health.Watch(request, timeout=60)))[0] == "RESOURCE_EXHAUSTED"
        uploads = [agent.ingest.Upload(slowly(end, header())) for _ in range(3)]
        eventually(lambda: running(server, "Upload") == 3, "the uploads")
        name, said = code(lambda: list(agent.ingest.Upload(iter(()), timeout=60)))
        assert (name, "it has 3 uploads already" in said) == ("RESOURCE_EXHAUSTED", True)
        agent.register()
        assert not agent.heartbeat([agent.lease().work.key]).drop
        end.set()
        for call in (*watches, *uploads):
            call.cancel()
        eventually(lambda: not _refused(lambda: health.Watch(request, timeout=60).next()), "a place")


def test_registrations_and_heartbeats_are_bounded(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AgentLimits, "registration_bytes", 10_000)
    monkeypatch.setattr(AgentLimits, "registration_slots", 3)
    monkeypatch.setattr(AgentLimits, "registration_attempts", 2)
    monkeypatch.setattr(AgentLimits, "heartbeat_attempts", 5)
    server = make_server()
    keys = [AttemptKey("r", 0, 1, i) for i in range(6)]
    with PlayingAgent(server.addresses[0]) as agent:
        said = code(lambda: agent.register([f"recorded-{i}" for i in range(4)]))
        assert said[0] == "INVALID_ARGUMENT" and "4 slots; at most 3 are taken" in said[1]
        said = code(lambda: agent.register(["x" * 10_000]))
        assert "bytes; at most 10,000 are taken" in said[1]
        said = code(lambda: agent.register(sealed=keys[:3]))
        assert "3 attempts; at most 2 are taken" in said[1]
        agent.register()
        said = code(lambda: agent.heartbeat(keys))
        assert "6 attempts; at most 5 are taken" in said[1]


def test_agents_that_were_away_longest_are_forgotten_unless_they_hold_a_run(make_server: MakeServer) -> None:
    server = make_server(limits=Limits(agents=AgentLimits(agents_remembered=3)))
    with PlayingAgent(server.addresses[0], "busy") as busy:
        busy.submit(CAMPAIGN)
        busy.register()
        busy.lease()
        for i in range(9):
            with PlayingAgent(server.addresses[0], f"agent-{i}") as agent:
                agent.register()
                time.sleep(0.005)
    store = SqliteStore(server.settings.state_dir / "metadata.sqlite")
    with store.snapshot() as read:
        assert [agent.agent_id for agent in read.agents()] == ["agent-6", "agent-7", "agent-8", "busy"]
    store.close()


def test_bytes_that_are_no_request_get_one_line_and_a_typed_error(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_server.rpc.interceptors.BAD_REQUESTS_LOGGED_PER_MINUTE", 2)
    server = make_server()
    channel = grpc.insecure_channel(server.addresses[0])
    for method in ("AgentService/Heartbeat", "CampaignService/GetStatus", "AgentService/Register"):
        call = channel.unary_unary(f"/assay.v1.{method}")
        name, said = code(lambda call=call: call(b"\xff\xff\xff", timeout=60))  # type: ignore[misc]
        assert (name, "its bytes are not such a request" in said) == ("INVALID_ARGUMENT", True)
    report = channel.unary_stream("/assay.v1.CampaignService/GetReport")
    assert code(lambda: next(report(b"\xff\xff", timeout=60)))[0] == "INVALID_ARGUMENT"
    upload = channel.stream_stream("/assay.v1.IngestService/Upload")
    assert code(lambda: next(upload(iter([b"\xff\xff"]), timeout=60)))[0] == "INVALID_ARGUMENT"
    channel.close()
    lines = [record for record in caplog.records if "cannot be decoded" in record.getMessage()]
    assert len(lines) == 2
    assert all(record.exc_info is None for record in caplog.records)


def test_messages_beyond_their_bytes_and_calls_beyond_their_number_are_refused(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CallLimits, "request_bytes", 5_000)
    server = make_server(limits=Limits(calls=CallLimits(calls=2)))
    end = threading.Event()
    with PlayingAgent(server.addresses[0]) as agent:
        name, said = code(lambda: agent.submit(CAMPAIGN + "#" * 5_000))
        assert (name, "5000" in said) == ("RESOURCE_EXHAUSTED", True)
        assert agent.submit(CAMPAIGN) == "made-1"
        uploads = [agent.ingest.Upload(slowly(end, header())) for _ in range(2)]
        # A status that came before them would take the place of one.
        eventually(lambda: running(server, "Upload") == 2, "the uploads")
        eventually(lambda: _refused(lambda: agent.status("made-1")), "a refusal")
        end.set()
        for call in uploads:
            call.cancel()
        eventually(lambda: not _refused(lambda: agent.status("made-1")), "a free place")


def _refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        return True
    return False


def test_an_answer_beyond_its_bytes_ends_its_call_and_nothing_else(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CallLimits, "answer_bytes", 100)
    server = make_server()
    with PlayingAgent(server.addresses[0]) as agent:
        campaign_id = agent.submit(CAMPAIGN)
        assert code(lambda: agent.status(campaign_id))[0] == "RESOURCE_EXHAUSTED"
        assert agent.submit(CAMPAIGN) == "made-2"


def test_a_chunk_beyond_its_bytes_ends_its_stream(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UploadLimits, "upload_chunk_bytes", 1_000)
    server = make_server()
    chunk = ingest_pb2.SegmentChunk(part=ingest_pb2.PART_LAUNCHES, data=b"x" * 1_001)
    sent = [header(), ingest_pb2.UploadRequest(chunk=chunk)]
    with PlayingAgent(server.addresses[0]) as agent:
        name, said = code(lambda: list(agent.ingest.Upload(iter(sent), timeout=60)))
        assert (name, "a chunk of 1,001 bytes is out of bounds" in said) == ("INVALID_ARGUMENT", True)


def test_no_more_segments_are_read_than_may_be_in_flight(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def never_stored(_ingest: Ingest, upload: Upload) -> Future[Answer]:
        taken.append(upload.index)
        return Future()

    monkeypatch.setattr(Ingest, "take", never_stored)
    monkeypatch.setattr(UploadLimits, "upload_segments_in_flight", 3)
    server = make_server()
    chunk = ingest_pb2.SegmentChunk(part=ingest_pb2.PART_LAUNCHES, data=b"x" * 10)
    end = threading.Event()
    with PlayingAgent(server.addresses[0]) as agent:
        sent = [header(10), ingest_pb2.UploadRequest(chunk=chunk)] * 9
        call = agent.ingest.Upload(slowly(end, *sent))
        eventually(lambda: len(taken) >= 3, "three segments")
        time.sleep(0.5)
        assert len(taken) == 3
        end.set()
        call.cancel()
