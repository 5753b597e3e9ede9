"""A client that speaks the agent's side of the wire, and nothing else: every call is one line in a test."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from assay_core.records.attempt import AttemptKey, AttemptLog, Claim, HeldAttempt
from assay_core.records.campaign import (
    CampaignsPage,
    CampaignStatus,
    NamedCampaign,
    Overview,
    ReportChunk,
    ReportFormat,
    ReportRequest,
    StatusRequest,
    Submission,
    Submitted,
)
from assay_core.records.failure import Failure
from assay_core.records.lease import (
    AttemptProgress,
    FailedAttempt,
    FinishAnswer,
    FinishedAttempt,
    Heartbeat,
    HeartbeatAnswer,
    LeaseAnswer,
    LeaseRequest,
)
from assay_core.records.machine import Inventory, Registered, Registration, Slot
from assay_core.records.runs import NamedRun, RunDetail, RunsAction, RunsAnswer, RunsRequest
from assay_core.records.upload import AnnouncedSegment, SegmentAnswer
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work
from assay_protos import agent_pb2_grpc, campaign_pb2_grpc, ingest_pb2, ingest_pb2_grpc
from tests.support.server.made_segments import MadeSegment

_CHUNK = 1 << 20
_POLL_SECONDS = 0.02


class PlayingAgent:
    """An agent with some recorded slots, and beside it what a person may ask."""

    def __init__(self, address: str, agent_id: str = "agent-1", session_id: str = "session-1") -> None:
        options = [
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.max_receive_message_length", 64 << 20),
        ]
        self._speak(grpc.insecure_channel(address, options=options), agent_id, session_id)

    @classmethod
    def over(cls, channel: grpc.Channel, agent_id: str, session_id: str = "session-1") -> Self:
        """An agent over a given channel, say one with a certificate."""
        made = cls.__new__(cls)
        made._speak(channel, agent_id, session_id)
        return made

    def _speak(self, channel: grpc.Channel, agent_id: str, session_id: str) -> None:
        self.agent_id = agent_id
        self.session_id = session_id
        self._secrets: dict[AttemptKey, bytes] = {}
        self.channel = channel
        self.agent: Any = agent_pb2_grpc.AgentServiceStub(self.channel)
        self.ingest: Any = ingest_pb2_grpc.IngestServiceStub(self.channel)
        self.campaigns: Any = campaign_pb2_grpc.CampaignServiceStub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.channel.close()

    def submit(self, text: str, base_directory: str = "/data") -> str:
        asked = Submission(text, "campaign.yaml", base_directory).to_proto()
        return Submitted.from_proto(
            self.campaigns.Submit(asked, timeout=120, wait_for_ready=True)
        ).campaign_id

    def status(self, campaign_id: str, first: int = 0, most: int = 0, *, runs: bool = True) -> CampaignStatus:
        asked = StatusRequest(campaign_id, first, most, without_runs=not runs).to_proto()
        return CampaignStatus.from_proto(self.campaigns.GetStatus(asked, timeout=20, wait_for_ready=True))

    def watch(self, campaign_id: str, timeout: float = 60) -> Iterator[CampaignStatus]:
        """Each new status, without runs, until the campaign has ended."""
        asked = StatusRequest(campaign_id, without_runs=True, following=True).to_proto()
        last, until = None, time.monotonic() + timeout
        while last is None or not last.ended:
            assert time.monotonic() < until, "the campaign does not end"
            status = CampaignStatus.from_proto(self.campaigns.GetStatus(asked, timeout=timeout))
            if status != last:
                yield status
            last = status
            time.sleep(_POLL_SECONDS)

    def cancel(self, campaign_id: str) -> CampaignStatus:
        asked = NamedCampaign(campaign_id).to_proto()
        return CampaignStatus.from_proto(self.campaigns.Cancel(asked, timeout=20))

    def ask(self, action: RunsAction, campaign_id: str, **asked: Any) -> RunsAnswer:
        """Pause, resume, cancel or retry runs."""
        call = {RunsAction.CANCEL: "CancelRuns"}.get(action, action.capitalize())
        message = RunsRequest(campaign_id, **asked).to_proto()
        return RunsAnswer.from_proto(getattr(self.campaigns, call)(message, timeout=60))

    def listed(self, first: int = 0, most: int = 0) -> Overview:
        asked = CampaignsPage(first, most).to_proto()
        return Overview.from_proto(self.campaigns.ListCampaigns(asked, timeout=20))

    def report(self, campaign_id: str, form: str = "json", timeout: float = 60) -> list[ReportChunk]:
        asked = ReportRequest(campaign_id, ReportFormat(form)).to_proto()
        return [ReportChunk.from_proto(each) for each in self.campaigns.GetReport(asked, timeout=timeout)]

    def run(self, run_id: str) -> RunDetail:
        asked = NamedRun(run_id).to_proto()
        return RunDetail.from_proto(self.campaigns.GetRun(asked, timeout=20, wait_for_ready=True))

    def register(
        self, slots: Sequence[str | Slot] = ("recorded-0",), sealed: Sequence[AttemptKey] = ()
    ) -> Registered:
        registration = Registration(
            agent_id=self.agent_id,
            session_id=self.session_id,
            name=f"name of {self.agent_id}",
            inventory=Inventory(host="box", no_device_reason="no driver on this box"),
            slots=tuple(Slot(slot, ("recorded",)) if isinstance(slot, str) else slot for slot in slots),
            held=tuple(HeldAttempt(key, self.secret(key)) for key in sealed),
        )
        return self.registered(registration)

    def registered(self, registration: Registration) -> Registered:
        message = registration.to_proto()
        return Registered.from_proto(self.agent.Register(message, timeout=20, wait_for_ready=True))

    def secret(self, key: AttemptKey) -> bytes:
        """What the lease of an attempt came with; b"" of those that were never given to this agent."""
        return self._secrets.get(key, b"")

    def know(self, key: AttemptKey, secret: bytes) -> None:
        self._secrets[key] = secret

    def lease(self, slot: str = "recorded-0", wait_ms: int = 0) -> LeaseAnswer:
        """The answer to a request for work, which is repeated for ``wait_ms`` while there is none."""
        asked = LeaseRequest(self.agent_id, self.session_id, slot).to_proto()
        until = time.monotonic() + wait_ms / 1000
        while True:
            answer = LeaseAnswer.from_proto(self.agent.Lease(asked, timeout=60, wait_for_ready=True))
            if answer.work is not None or answer.register_again or time.monotonic() >= until:
                break
            time.sleep(_POLL_SECONDS)
        if answer.work is not None:
            self.know(answer.work.key, answer.work.write_secret)
        return answer

    def work(self, slot: str = "recorded-0", wait_ms: int = 0) -> Work:
        """A lease that must give work."""
        work = self.lease(slot, wait_ms).work
        assert isinstance(work, Work)
        return work

    def heartbeat(self, keys: Iterable[AttemptKey] = (), launches_spooled: int = 0) -> HeartbeatAnswer:
        progress = tuple(AttemptProgress(key, launches_spooled, self.secret(key)) for key in keys)
        message = Heartbeat(self.agent_id, self.session_id, progress).to_proto()
        return HeartbeatAnswer.from_proto(self.agent.Heartbeat(message, timeout=20, wait_for_ready=True))

    def upload(self, key: AttemptKey, segments: Iterable[MadeSegment]) -> list[SegmentAnswer]:
        """Send segments over one stream and wait for every answer."""
        messages = (message for segment in segments for message in self.messages(key, segment))
        answers = self.ingest.Upload(messages, timeout=60, wait_for_ready=True)
        return [SegmentAnswer.from_proto(answer) for answer in answers]

    def messages(
        self, key: AttemptKey, segment: MadeSegment, chunk_bytes: int = _CHUNK
    ) -> Iterator[ingest_pb2.UploadRequest]:
        """A segment as the messages it travels in."""
        return _messages(self.claim(key), segment, chunk_bytes)

    def claim(self, key: AttemptKey) -> Claim:
        return Claim(key, self.agent_id, self.session_id, self.secret(key))

    def finish(
        self,
        key: AttemptKey,
        segments: int,
        launches: int,
        flags: Sequence[ValidityFlag] = (),
        log: AttemptLog | None = None,
    ) -> FinishAnswer:
        finished = FinishedAttempt(self.claim(key), segments, launches, tuple(flags), log or AttemptLog())
        message = finished.to_proto()
        return FinishAnswer.from_proto(self.agent.FinishAttempt(message, timeout=60, wait_for_ready=True))

    def fail(self, key: AttemptKey, failure_class: str = "hang", *, retryable: bool = True) -> None:
        why = Failure(failure_class, "the workload", "it made no progress", "raise the limit", retryable)
        message = FailedAttempt(self.claim(key), why).to_proto()
        self.agent.FailAttempt(message, timeout=20, wait_for_ready=True)

    def play(self, segments: Sequence[MadeSegment], slot: str = "recorded-0") -> AttemptKey:
        """Lease, send, finish: one run done as it should be."""
        key = self.work(slot, wait_ms=5000).key
        self.upload(key, segments)
        assert self.finish(key, len(segments), sum(s.launches for s in segments)).published
        return key


def _messages(claim: Claim, segment: MadeSegment, chunk_bytes: int) -> Iterator[ingest_pb2.UploadRequest]:
    yield ingest_pb2.UploadRequest(header=AnnouncedSegment(claim, segment.header).to_proto())
    for part, data in ((ingest_pb2.PART_NAMES, segment.names), (ingest_pb2.PART_LAUNCHES, segment.data)):
        for start in range(0, len(data), chunk_bytes):
            chunk = ingest_pb2.SegmentChunk(part=part, data=data[start : start + chunk_bytes])
            yield ingest_pb2.UploadRequest(chunk=chunk)
