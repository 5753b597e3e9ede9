"""A client that speaks the agent's side of the wire, and nothing else: every call is one line in a test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import grpc
from made_segments import MadeSegment

from assay_protos import (
    agent_pb2,
    agent_pb2_grpc,
    campaign_pb2,
    campaign_pb2_grpc,
    common_pb2,
    ingest_pb2,
    ingest_pb2_grpc,
)

_CHUNK = 1 << 20


class PlayingAgent:
    """An agent with some recorded slots, and beside it what a person may ask."""

    def __init__(self, address: str, agent_id: str = "agent-1", session_id: str = "session-1") -> None:
        self.agent_id = agent_id
        self.session_id = session_id
        self._secrets: dict[tuple[str, int, int, int], bytes] = {}
        self.channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.initial_reconnect_backoff_ms", 50),
                ("grpc.max_reconnect_backoff_ms", 200),
                ("grpc.max_receive_message_length", 64 << 20),
            ],
        )
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
        request = campaign_pb2.SubmitRequest(
            campaign_yaml=text, file_name="campaign.yaml", base_directory=base_directory
        )
        return str(self.campaigns.Submit(request, timeout=120, wait_for_ready=True).campaign_id)

    def status(self, campaign_id: str) -> campaign_pb2.CampaignStatus:
        request = campaign_pb2.GetStatusRequest(campaign_id=campaign_id)
        return self.campaigns.GetStatus(request, timeout=20, wait_for_ready=True)

    def run(self, run_id: str) -> campaign_pb2.RunDetail:
        return self.campaigns.GetRun(
            campaign_pb2.GetRunRequest(run_id=run_id), timeout=20, wait_for_ready=True
        )

    def register(
        self, slots: Sequence[str] = ("recorded-0",), sealed: Sequence[common_pb2.AttemptKey] = ()
    ) -> agent_pb2.RegisterResponse:
        request = agent_pb2.RegisterRequest(
            agent_id=self.agent_id,
            session_id=self.session_id,
            name=f"name of {self.agent_id}",
            inventory=agent_pb2.Inventory(host="box", no_device_reason="no driver on this box"),
            slots=[agent_pb2.Slot(slot_id=slot, profilers=["recorded"]) for slot in slots],
            held=[agent_pb2.HeldAttempt(key=key, write_secret=self.secret(key)) for key in sealed],
        )
        return self.agent.Register(request, timeout=20, wait_for_ready=True)

    def secret(self, key: common_pb2.AttemptKey) -> bytes:
        """What the lease of an attempt came with; b"" of those that were never given to this agent."""
        return self._secrets.get(_known_as(key), b"")

    def know(self, key: common_pb2.AttemptKey, secret: bytes) -> None:
        self._secrets[_known_as(key)] = secret

    def lease(self, slot: str = "recorded-0", wait_ms: int = 0) -> agent_pb2.LeaseResponse:
        request = agent_pb2.LeaseRequest(
            agent_id=self.agent_id, session_id=self.session_id, slot_id=slot, wait_ms=wait_ms
        )
        response = self.agent.Lease(request, timeout=60, wait_for_ready=True)
        if response.HasField("work"):
            self.know(response.work.key, response.work.write_secret)
        return response

    def heartbeat(
        self, keys: Iterable[common_pb2.AttemptKey] = (), launches_spooled: int = 0
    ) -> agent_pb2.HeartbeatResponse:
        attempts = [
            agent_pb2.AttemptProgress(
                key=key, launches_spooled=launches_spooled, write_secret=self.secret(key)
            )
            for key in keys
        ]
        request = agent_pb2.HeartbeatRequest(
            agent_id=self.agent_id, session_id=self.session_id, attempts=attempts
        )
        return self.agent.Heartbeat(request, timeout=20, wait_for_ready=True)

    def upload(
        self, key: common_pb2.AttemptKey, segments: Iterable[MadeSegment]
    ) -> list[ingest_pb2.UploadResponse]:
        """Send segments over one stream and wait for every answer."""
        messages = (message for segment in segments for message in self.messages(key, segment))
        return list(self.ingest.Upload(messages, timeout=60, wait_for_ready=True))

    def messages(
        self, key: common_pb2.AttemptKey, segment: MadeSegment, chunk_bytes: int = _CHUNK
    ) -> Iterator[ingest_pb2.UploadRequest]:
        """A segment as the messages it travels in."""
        return _messages(key, segment, chunk_bytes, **self._proof(key))

    def _proof(self, key: common_pb2.AttemptKey) -> dict[str, Any]:
        return {
            "agent_id": self.agent_id, "session_id": self.session_id, "write_secret": self.secret(key)
        }  # fmt: skip

    def finish(
        self, key: common_pb2.AttemptKey, segments: int, launches: int, **fields: Any
    ) -> agent_pb2.FinishAttemptResponse:
        request = agent_pb2.FinishAttemptRequest(
            key=key, segments=segments, launches=launches, **self._proof(key), **fields
        )
        return self.agent.FinishAttempt(request, timeout=60, wait_for_ready=True)

    def fail(
        self, key: common_pb2.AttemptKey, failure_class: str = "hang", *, retryable: bool = True
    ) -> None:
        failure = common_pb2.Failure(
            failure_class=failure_class,
            subject="the workload",
            cause="it made no progress",
            remedy="raise the limit",
            retryable=retryable,
        )
        request = agent_pb2.FailAttemptRequest(key=key, failure=failure, **self._proof(key))
        self.agent.FailAttempt(request, timeout=20, wait_for_ready=True)

    def play(self, segments: Sequence[MadeSegment], slot: str = "recorded-0") -> common_pb2.AttemptKey:
        """Lease, send, finish: one run done as it should be."""
        key = self.lease(slot, wait_ms=5000).work.key
        self.upload(key, segments)
        assert self.finish(key, len(segments), sum(s.launches for s in segments)).published
        return key


def _known_as(key: common_pb2.AttemptKey) -> tuple[str, int, int, int]:
    return key.run_id, key.slice, key.attempt, key.token


def _messages(
    key: common_pb2.AttemptKey, segment: MadeSegment, chunk_bytes: int, **proof: Any
) -> Iterator[ingest_pb2.UploadRequest]:
    header = ingest_pb2.SegmentHeader(
        key=key,
        segment=segment.index,
        launches=segment.launches,
        names_bytes=len(segment.names),
        launches_bytes=len(segment.data),
        names_hash=segment.names_hash,
        launches_hash=segment.launches_hash,
        **proof,
    )
    yield ingest_pb2.UploadRequest(header=header)
    for part, data in ((ingest_pb2.PART_NAMES, segment.names), (ingest_pb2.PART_LAUNCHES, segment.data)):
        for start in range(0, len(data), chunk_bytes):
            chunk = ingest_pb2.SegmentChunk(part=part, data=data[start : start + chunk_bytes])
            yield ingest_pb2.UploadRequest(chunk=chunk)
