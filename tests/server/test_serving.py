"""The server over real gRPC, in this process, with a client that plays the agent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import RecordedSource
from assay_protos import campaign_pb2, ingest_pb2
from assay_sampling.errors import CampaignError, ParameterError, StorageError
from assay_sampling.readers.opening import open_recording
from assay_server.app import Server, ServerSettings
from assay_server.identity.authority import write_authority
from assay_server.store.model import Segment
from assay_server.store.records import LocalRecordStore
from assay_server.store.segments import unpacked
from tests.support.identity.authorities import made_authority
from tests.support.server.made_segments import MadeSegment, made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import CAMPAIGN, PAGE, REPORT, ROWS, StandInExecutor, eventually


def play_campaign(agent: PlayingAgent) -> str:
    campaign_id = agent.submit(CAMPAIGN)
    agent.play(made_segments((30,), "detailed", counters=2))
    agent.play(made_segments((100, 50)))
    agent.play(made_segments((70,)))
    eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
    return campaign_id


def test_a_campaign_goes_the_whole_way(server: Server, analysis: StandInExecutor) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        registered = agent.register()
        assert (registered.lease_ms, registered.heartbeat_ms) == (60_000, 5_000)
        campaign_id = play_campaign(agent)
        assert campaign_id == "made-1"
        status = agent.status(campaign_id)
        assert [(r.run_id, r.workload, r.device_kind, r.level, r.state, r.launches) for r in status.runs] == [
            ("made-1.0000", "training", "V100", "detailed", "done", 30),
            ("made-1.0001", "training", "V100", "light", "done", 150),
            ("made-1.0002", "training", "A100", "light", "done", 70),
        ]
        assert (status.runs_total, status.runs_done, status.runs_failed) == (3, 3, 0)
        for form, expected in (("json", REPORT), ("html", PAGE)):
            assert b"".join(c.data for c in agent.report(campaign_id, form)) == expected
        files = agent.run("made-1.0001").files
        assert list(files) == ["records/made-1.0001/slice-00000.parquet"]
    with open_recording(server.settings.state_dir / files[0]) as recording:
        launches = [v for batch in recording.batches() for v in batch.records["launch"].to_pylist()]
    assert launches == list(range(150))
    [request] = analysis.requests
    assert [(r.run_id, r.level, r.device_kind, r.launches) for r in request.runs] == [
        ("made-1.0000", "detailed", "V100", 30),
        ("made-1.0001", "light", "V100", 150),
        ("made-1.0002", "light", "A100", 70),
    ]
    assert request.failed_runs == ()
    assert not list((server.settings.state_dir / "staging").iterdir())


def typed(caught: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, dict[str, str]]:
    """Status and the error document in the trailing metadata."""
    metadata = dict(caught.value.trailing_metadata())
    return caught.value.code(), json.loads(metadata["assay-error-bin"])


def test_errors_carry_type_subject_cause_and_remedy(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        with pytest.raises(grpc.RpcError) as caught:
            agent.submit(CAMPAIGN.replace("light: light", "ligth: light"))
        code, document = typed(caught)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert document == {
            "type": "CampaignError",
            "subject": "campaign.yaml:6",
            "cause": "field workloads[0].recordings[0].ligth: unknown key; did you mean 'light'?",
            "remedy": "correct the file; 'assay docs campaign-file' shows every key",
        }
        assert caught.value.details() == f"{document['subject']}: {document['cause']}; {document['remedy']}"
        for ask in (
            lambda: agent.status("made-7"),
            lambda: agent.cancel("made-7"),
            lambda: agent.run("made-7.0000"),
            lambda: agent.report("made-7"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                ask()
            code, document = typed(caught)
            assert (code, document["type"]) == (grpc.StatusCode.NOT_FOUND, "CampaignError")
            assert document["cause"].startswith("the server knows no such ")


@pytest.mark.parametrize("character", ["a", "ä", "\\", "\x01", "😀"])
def test_long_and_foreign_errors_fit_the_wire(server: Server, character: str) -> None:
    name = character * 5000
    with PlayingAgent(server.addresses[0]) as agent, pytest.raises(grpc.RpcError) as caught:
        agent.status(name)
    code, document = typed(caught)
    assert code is grpc.StatusCode.NOT_FOUND
    assert document["subject"].startswith(f"campaign {name[:9]!r}"[:-1])
    assert document["cause"] == "the server knows no such campaign"


def test_a_report_is_refused_until_it_is_there(
    make_server: Callable[..., Server], analysis: StandInExecutor
) -> None:
    release = threading.Event()

    def slow() -> tuple[bytes, bytes, bytes]:
        release.wait(60)
        return REPORT, PAGE, ROWS

    analysis.outcome = slow
    with PlayingAgent(make_server().addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(CAMPAIGN)

        def report(form: str = "json") -> bytes:
            return b"".join(c.data for c in agent.report(campaign_id, form))

        with pytest.raises(grpc.RpcError) as caught:
            report()
        code, document = typed(caught)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert document["cause"] == "it is still running, so there is no report yet"
        with pytest.raises(grpc.RpcError) as caught:
            unknown = campaign_pb2.GetReportRequest(campaign_id=campaign_id, format=77)
            list(agent.campaigns.GetReport(unknown, timeout=60))
        assert typed(caught)[1] == {
            "type": "ParameterError",
            "subject": "made-1",
            "cause": "its ReportFormat has the number 77, which is not one of json, html",
            "remedy": "run the same release of Assay on agent, server and client",
        }
        agent.play(made_segments((30,), "detailed"))
        agent.play(made_segments((100,)))
        agent.play(made_segments((70,)))
        with pytest.raises(grpc.RpcError) as caught:
            report()
        assert typed(caught)[1]["cause"] == "it is still analysing, so there is no report yet"
        release.set()
        eventually(lambda: agent.status(campaign_id).state == "done", "the end of the campaign")
        assert report() == REPORT


def test_a_report_of_many_chunks_comes_whole(
    make_server: Callable[..., Server], analysis: StandInExecutor
) -> None:
    page = bytes(range(256)) * 4096 * 3 + b"end"
    analysis.outcome = lambda: (REPORT, page, ROWS)
    with PlayingAgent(make_server().addresses[0]) as agent:
        agent.register()
        campaign_id = play_campaign(agent)
        chunks = [c.data for c in agent.report(campaign_id, "html")]
    assert [len(c) for c in chunks] == [1 << 20, 1 << 20, 1 << 20, 3]
    assert b"".join(chunks) == page


def test_who_follows_a_campaign_hears_of_every_change_and_its_end(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(CAMPAIGN)
        watch = agent.watch(campaign_id)
        assert next(watch).runs_running == 0
        key = agent.lease().work.key
        status = next(watch)
        assert (status.runs_running, len(status.runs)) == (1, 0)
        agent.upload(key, made_segments((30,), "detailed"))
        agent.finish(key, 1, 30)
        agent.play(made_segments((100,)))
        agent.play(made_segments((70,)))
        statuses = list(watch)
        assert statuses[-1].state == "done"
        assert statuses[-1].runs_done == 3


def test_a_lease_is_what_waits_now(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        assert agent.lease().work is None
        campaign_id = agent.submit(CAMPAIGN)
        answer = agent.lease(wait_ms=5_000)
        assert answer.work.key.run_id == f"{campaign_id}.0000"
        assert answer.work.recorded == RecordedSource(Path("/data/detailed.csv"))
        assert (answer.work.level, answer.work.profiler, answer.work.synthetic) == (
            "detailed",
            "recorded",
            False,
        )
        assert (answer.work.condition.cache, answer.work.condition.sm_percent) == ("none", 100.0)
        assert (answer.work.launch_skip, answer.work.launch_count, answer.work.lease_remaining_ms) == (
            0,
            0,
            60_000,
        )


def test_a_process_that_is_not_registered_is_told_so(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        assert agent.lease().register_again
        assert agent.heartbeat().register_again
        agent.register()
        assert not agent.heartbeat().register_again


def test_a_registration_that_cannot_be_is_refused(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        for slots in (("recorded-0", "recorded-0"), ("",)):
            with pytest.raises(grpc.RpcError) as caught:
                agent.register(slots)
            assert typed(caught)[1]["type"] == "ParameterError"


def test_silent_attempts_expire_and_live_ones_do_not(make_server: Callable[..., Server]) -> None:
    server = make_server(lease_ms=300, heartbeat_ms=100)
    with PlayingAgent(server.addresses[0]) as agent, PlayingAgent(server.addresses[0], "agent-2") as other:
        agent.register(("0", "1"))
        other.register()
        campaign_id = agent.submit(CAMPAIGN)
        alive, silent = agent.lease("0").work.key, agent.lease("1").work.key

        def expired() -> bool:
            assert not agent.heartbeat([alive]).drop
            return agent.status(campaign_id).runs[1].state == "waiting"

        eventually(expired, "the end of the silent lease")
        taken: list[AttemptKey] = []

        def retaken() -> bool:
            work = other.lease().work
            taken[:] = [work.key]
            assert not agent.heartbeat([alive]).drop
            return bool(work.key.run_id == silent.run_id)

        eventually(retaken, "the next lease of the slice")
        assert taken[0].attempt == 2 and taken[0].token > silent.token
        assert list(agent.heartbeat([silent]).drop) == [silent]
        [refusal] = agent.upload(silent, made_segments((10,)))
        assert refusal.refusal.failure_class == "lease_expired"
        assert not agent.finish(silent, 1, 10).published
        detail = agent.run(silent.run_id)
        assert [a.state for a in detail.attempts] == ["superseded", "leased"]
        assert detail.attempts[0].failure.failure_class == "lease_expired"


def test_a_cancelled_campaign_tells_its_agents(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        campaign_id = agent.submit(CAMPAIGN)
        key = agent.lease().work.key
        agent.upload(key, made_segments((10,), "detailed"))
        status = agent.cancel(campaign_id)
        assert (status.state, {r.state for r in status.runs}) == ("cancelled", {"cancelled"})
        assert list(agent.heartbeat([key]).drop) == [key]
        assert not agent.finish(key, 1, 10).published
        assert agent.lease().work is None
        assert not list((server.settings.state_dir / "staging").iterdir())


def test_campaigns_of_one_name_are_numbered_and_listed(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        names = [agent.submit(CAMPAIGN) for _ in range(3)]
        assert names == ["made-1", "made-2", "made-3"]
        listed = agent.listed().campaigns
    assert [(c.campaign_id, c.state, c.runs_total, len(c.runs)) for c in listed] == [
        (name, "running", 3, 0) for name in names
    ]


def test_what_an_attempt_ran_and_said_can_be_read(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent:
        agent.register()
        agent.submit(CAMPAIGN)
        key = agent.lease().work.key
        agent.upload(key, made_segments((10,), "detailed"))
        log = AttemptLog(("play", "x.csv"), {"LANG": "C"}, "begin" + "a" * 300_000 + "end")
        flag = ValidityFlag(name="throttled", detail="81 C", invalidates=True)
        agent.finish(key, 1, 10, log=log, flags=[flag])
        detail = agent.run(key.run_id)
    [attempt] = detail.attempts
    assert (attempt.state, attempt.slot, attempt.agent) == ("published", "recorded-0", "name of agent-1")
    assert (attempt.log.command, attempt.log.environment) == (("play", "x.csv"), {"LANG": "C"})
    text = attempt.log.text
    assert (text[:6], text[-4:], len(text) <= 256 << 10) == ("begina", "aend", True)
    assert "characters left out" in text
    assert [f.name for f in detail.run.flags] == ["condition_assumed", "throttled"]
    assert detail.run.flags[1] == flag
    assert 0 < attempt.leased_at_ms <= attempt.ended_at_ms


class TestUploadProtocol:
    @pytest.fixture
    def agent(self, server: Server) -> PlayingAgent:
        agent = PlayingAgent(server.addresses[0])
        agent.register()
        agent.submit(CAMPAIGN.replace("        detailed: detailed.csv\n", ""))
        return agent

    def test_segments_in_small_chunks_and_many_at_once(self, agent: PlayingAgent) -> None:
        key = agent.lease().work.key
        segments = made_segments([500] * 40)
        messages = [m for s in segments for m in agent.messages(key, s, chunk_bytes=999)]
        answers = list(agent.ingest.Upload(iter(messages), timeout=60))
        assert [(a.ack.segment, a.ack.duplicate) for a in answers] == [(i, False) for i in range(40)]
        assert agent.finish(key, 40, 20_000).published

    def test_a_stream_that_breaks_is_taken_up_where_it_was_acknowledged(self, agent: PlayingAgent) -> None:
        key = agent.lease().work.key
        segments = made_segments([500] * 6)
        messages = [m for s in segments[:3] for m in agent.messages(key, s)]
        stalled = threading.Event()

        def broken() -> object:
            yield from messages[:-1]
            stalled.wait(60)

        call = agent.ingest.Upload(broken(), timeout=60)
        assert [next(call).ack.segment, next(call).ack.segment] == [0, 1]
        call.cancel()
        stalled.set()
        answers = agent.upload(key, segments[1:])
        assert [(a.index, a.duplicate) for a in answers] == [
            (1, True), (2, False), (3, False), (4, False), (5, False),
        ]  # fmt: skip
        assert agent.finish(key, 6, 3000).published

    def test_a_full_disk_ends_the_stream_and_all_is_taken_later(
        self, agent: PlayingAgent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        key = agent.lease().work.key
        segments = made_segments([8_000] * 12)
        stage = LocalRecordStore.stage

        def sometimes_full(self: LocalRecordStore, pieces: Sequence[tuple[Segment, bytes, bytes]]) -> None:
            if any(segment.index >= 5 for segment, _, _ in pieces):
                raise StorageError("staging", "No space left on device", "free some")
            stage(self, pieces)

        monkeypatch.setattr(LocalRecordStore, "stage", sometimes_full)
        with pytest.raises(grpc.RpcError) as caught:
            agent.upload(key, segments)
        code, document = typed(caught)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert document["type"] == "StorageError"
        monkeypatch.undo()
        assert [a.index for a in agent.upload(key, segments)] == list(range(12))
        assert agent.finish(key, 12, 96_000).published

    @pytest.mark.parametrize(
        ("break_it", "cause"),
        [
            (lambda m: m[1:], "a chunk comes before the header of its segment"),
            (lambda m: [m[0], m[0]], "the next segment begins before its end"),
            (lambda m: [m[0], m[2], m[1]], "its chunks do not match its header"),
            (lambda m: [m[0], m[1], m[1]], "its chunks do not match its header"),
            (lambda m: [_with_sizes(m[0], 1 << 30, 1)], "a part of 1,073,741,824 bytes is out of bounds"),
            (lambda m: [_with_sizes(m[0], 0, -1)], "a part of -1 bytes is out of bounds"),
            (lambda m: [_with_sizes(m[0], 0, 0)], "it has no launches"),
            (lambda m: [m[0], _chunk(ingest_pb2.PART_NAMES, b"")], "a chunk of 0 bytes is out of bounds"),
            (
                lambda m: [m[0], _chunk(ingest_pb2.PART_NAMES, bytes((1 << 20) + 1))],
                "a chunk of 1,048,577 bytes is out of bounds",
            ),
        ],
    )  # fmt: skip
    def test_messages_that_break_the_protocol_end_the_stream(
        self, agent: PlayingAgent, break_it: Callable[[list[object]], list[object]], cause: str
    ) -> None:
        key = agent.lease().work.key
        [segment] = made_segments((10,))
        with pytest.raises(grpc.RpcError) as caught:
            list(agent.ingest.Upload(iter(break_it(list(agent.messages(key, segment)))), timeout=60))
        code, document = typed(caught)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert document["cause"].endswith(cause)
        # The attempt itself is unharmed.
        assert agent.upload(key, [segment])[0].index == 0

    def test_a_message_over_two_mebibytes_is_not_taken(self, agent: PlayingAgent) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            list(agent.ingest.Upload(iter([_chunk(ingest_pb2.PART_NAMES, bytes(3 << 20))]), timeout=60))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    def test_a_bomb_is_refused_and_the_server_goes_on(self, agent: PlayingAgent) -> None:
        key = agent.lease().work.key
        # It begins as a launch table does.
        honest = unpacked(made_segments((10,))[0].data).to_pybytes()
        bomb = bytes(pa.compress(honest + bytes(256 << 20), codec="zstd", asbytes=True))
        [answer] = agent.upload(key, [MadeSegment(0, 10, b"", bomb)])
        assert answer.refusal is None and not agent.finish(key, 1, 10).published
        run = agent.run(key.run_id).run
        assert (run.state, run.failure.failure_class) == ("failed", "server_refused")
        assert "unpacks to more than" in run.failure.cause
        agent.play(made_segments((10,)))


def _with_sizes(message: ingest_pb2.UploadRequest, names: int, launches: int) -> ingest_pb2.UploadRequest:
    changed = ingest_pb2.UploadRequest()
    changed.CopyFrom(message)
    changed.header.names_bytes = names
    changed.header.launches_bytes = launches
    return changed


def _chunk(part: ingest_pb2.Part, data: bytes) -> ingest_pb2.UploadRequest:
    return ingest_pb2.UploadRequest(chunk=ingest_pb2.SegmentChunk(part=part, data=data))


def test_a_server_stops_with_its_calls_and_another_takes_over(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    server = make_server()
    agent = PlayingAgent(server.addresses[0])
    agent.register()
    agent.submit(CAMPAIGN.replace("made", "other"))
    key = agent.lease().work.key
    agent.upload(key, made_segments((30,), "detailed"))
    server.stop()
    assert not (short_path / "state" / "address").exists()
    make_server()
    assert agent.heartbeat([key]).drop == ()
    assert agent.finish(key, 1, 30).published
    agent.channel.close()


def test_a_state_directory_has_one_server(make_server: Callable[..., Server], short_path: Path) -> None:
    make_server()
    with pytest.raises(StorageError, match="another assay-server has it"):
        make_server(listen=("127.0.0.1:0",))


def test_a_socket_has_one_server_and_a_port_too(make_server: Callable[..., Server], short_path: Path) -> None:
    first = make_server(listen=("127.0.0.1:0", f"unix:{short_path}/server.sock"))
    write_authority(made_authority(), short_path / "second")
    for address in first.addresses:
        config = ServerSettings(state_dir=short_path / "second", listen=(address,))
        with pytest.raises(ParameterError, match="cannot listen on it"):
            Server(config).start()
    # What failed to start has left nothing that would hinder another.
    make = Server(ServerSettings(state_dir=short_path / "second", listen=("127.0.0.1:0",)))
    make.start()
    make.stop()


def test_a_file_that_is_no_socket_is_not_removed(short_path: Path) -> None:
    (short_path / "precious").write_text("data")
    config = ServerSettings(state_dir=short_path / "state", listen=(f"unix:{short_path}/precious",))
    with pytest.raises(ParameterError, match="the file there is not a socket"):
        Server(config).start()
    assert (short_path / "precious").read_text() == "data"


@pytest.mark.parametrize("address", ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"])
def test_without_an_authority_nothing_listens_on_tcp(tmp_path: Path, address: str) -> None:
    with pytest.raises(ParameterError, match="no certificate authority; make one with: assay-server init"):
        Server(ServerSettings(state_dir=tmp_path, listen=(address,))).start()


@pytest.mark.parametrize(
    ("listen", "join"),
    [("unix:/run/s", "127.0.0.1:0"), ("127.0.0.1:0", "unix:/run/s"), ("127.0.0.1:0", "host")],
)
def test_a_join_address_that_leads_nowhere_is_refused(tmp_path: Path, listen: str, join: str) -> None:
    with pytest.raises(ParameterError):
        ServerSettings(state_dir=tmp_path, listen=(listen,), join=(join,))


@pytest.mark.parametrize(
    "address", ["", "7170", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "unix:", "unix:" + "x" * 200]
)
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ParameterError):
        ServerSettings(state_dir=tmp_path, listen=(address,))


@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "0.0.0.0:80", "lab.example:7170", "[2001:db8::1]:7170", "unix:/run/assay.sock"]
)
def test_hosts_and_sockets_are_taken(tmp_path: Path, address: str) -> None:
    assert ServerSettings(state_dir=tmp_path, listen=(address,)).listen == (address,)


@pytest.mark.parametrize(
    "settings",
    [
        {"lease_ms": 0},
        {"heartbeat_ms": 0},
        {"lease_ms": 1000, "heartbeat_ms": 501},
        {"analysis_workers": 0},
        {"listen": ()},
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, settings: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        ServerSettings(state_dir=tmp_path, **settings)  # type: ignore[arg-type]


def test_the_socket_is_for_its_owner_only(server: Server, short_path: Path) -> None:
    assert (short_path / "server.sock").stat().st_mode & 0o777 == 0o600


def test_a_state_directory_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        Server(ServerSettings(state_dir=tmp_path / "file" / "state", listen=(f"unix:{tmp_path}/s",))).start()


def test_a_campaign_needs_an_absolute_base_for_relative_paths(server: Server) -> None:
    with PlayingAgent(server.addresses[0]) as agent, pytest.raises(grpc.RpcError) as caught:
        agent.submit(CAMPAIGN, base_directory="")
    assert typed(caught)[1]["type"] == CampaignError.__name__
