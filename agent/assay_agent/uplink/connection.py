"""The agent's calls to its server: one channel, retries with growing, jittered pauses, typed errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from tenacity import (
    RetryCallState,
    Retrying,
    sleep_using_event,
    stop_when_event_set,
    wait_random_exponential,
)

from assay_core.records.error_metadata import ErrorMetadata
from assay_core.records.lease import (
    FailedAttempt,
    FinishAnswer,
    FinishedAttempt,
    Heartbeat,
    HeartbeatAnswer,
    LeaseAnswer,
    LeaseRequest,
)
from assay_core.records.machine import Registered, Registration
from assay_core.server_address import ServerAddress, parse_address, require_our_socket
from assay_protos import agent_pb2_grpc, ingest_pb2_grpc
from assay_sampling.errors import AssayError, DuplicateIdentityError, ParameterError, ServerUnreachableError

_log = logging.getLogger(__name__)

Response = TypeVar("Response")

# Pauses between tries: random, so that many agents do not come back at once, and growing to this.
PAUSES = wait_random_exponential(multiplier=0.1, min=0.05, max=5.0)

# The channel reconnects by itself; without these it finds a restarted server only after minutes.
_CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.enable_retries", 0),
)

_AWAY = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
# A server that is being killed answers with these too, but so does a faulty one: retried, not for ever.
_DOUBTFUL = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
_DOUBTFUL_TRIES = 5


class ServerRefusedError(AssayError):
    """The server refused for good."""

    exit_code = 5


def check_address(address: str) -> ServerAddress:
    """A server's address on this machine; raises ParameterError. Does not touch the disk."""
    found = parse_address(address)
    if not found.on_this_machine:
        raise ParameterError(
            "server address",
            f"{address!r} is not on this machine, and the connection is neither encrypted nor authenticated",
            "reach a server elsewhere through an SSH tunnel to a local socket or port",
        )
    return found


def _may_pass(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, grpc.Call):
        return False
    doubtful = error.code() in _DOUBTFUL and state.attempt_number < _DOUBTFUL_TRIES
    return doubtful or error.code() in _AWAY


class Connection:
    """A channel to the server, and the agent's unary calls over it.

    Every call is repeated until it is answered or its ``give_up`` is set, then raises
    ServerUnreachableError; an answer that refuses for good raises ServerRefusedError. ParameterError is
    raised at once for an address that is not on this machine, or a socket where others could answer.
    """

    def __init__(self, address: str) -> None:
        found = check_address(address)
        # The answers are run as commands, so nobody else may take the server's place, now or later.
        require_our_socket(found)
        self.address = found.text
        self._channel = grpc.insecure_channel(self.address, options=_CHANNEL_OPTIONS)
        self._agent: Any = agent_pb2_grpc.AgentServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.ingest: Any = ingest_pb2_grpc.IngestServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self._channel.close()

    def register(self, registration: Registration, give_up: threading.Event) -> Registered:
        request = registration.to_proto()
        return Registered.from_proto(self._repeat(lambda: self._agent.Register(request, timeout=10), give_up))

    def heartbeat(self, heartbeat: Heartbeat, timeout: float) -> HeartbeatAnswer:
        """One try: the next heartbeat retries."""
        request = heartbeat.to_proto()
        return HeartbeatAnswer.from_proto(
            self._translated(lambda: self._agent.Heartbeat(request, timeout=timeout))
        )

    def start_lease(self, request: LeaseRequest) -> Any:
        """Ask for work; the future can be cancelled, and its answer is read with :meth:`lease`."""
        return self._agent.Lease.future(request.to_proto(), timeout=request.wait_ms / 1000 + 15)

    def lease(self, future: Any) -> LeaseAnswer:
        """The answer of a future; raises ServerUnreachableError also if it was cancelled."""
        try:
            return LeaseAnswer.from_proto(self._translated(future.result))
        except grpc.FutureCancelledError as error:
            raise ServerUnreachableError(f"server {self.address}", "the call was cancelled") from error

    def finish(self, finished: FinishedAttempt, give_up: threading.Event) -> FinishAnswer:
        # Publishing a large run takes long, and asking again meanwhile does not help.
        request = finished.to_proto()
        return FinishAnswer.from_proto(
            self._repeat(lambda: self._agent.FinishAttempt(request, timeout=600), give_up)
        )

    def fail(self, failed: FailedAttempt, give_up: threading.Event) -> None:
        request = failed.to_proto()
        self._repeat(lambda: self._agent.FailAttempt(request, timeout=10), give_up)

    def _repeat(self, call: Callable[[], Response], give_up: threading.Event) -> Response:
        retrying = Retrying(
            retry=_may_pass,
            wait=PAUSES,
            stop=stop_when_event_set(give_up),
            sleep=sleep_using_event(give_up),
            before_sleep=self._tell_first,
            reraise=True,
        )
        return self._translated(lambda: retrying(call))

    def _tell_first(self, state: RetryCallState) -> None:
        """Log once why the agent does nothing."""
        if state.attempt_number == 1:
            _log.warning("server %s does not answer: it is tried again until it does", self.address)

    def _translated(self, call: Callable[[], Response]) -> Response:
        try:
            return call()
        except grpc.RpcError as error:
            raise self.error_of(error) from error

    def error_of(self, error: grpc.RpcError) -> AssayError:
        """The typed error behind a failed call."""
        code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
        details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
        subject = f"server {self.address}"
        told = ErrorMetadata.beside(error)
        if told is not None and isinstance(duplicate := told.error(), DuplicateIdentityError):
            return duplicate
        if code in _AWAY:
            return ServerUnreachableError(
                subject, f"it does not answer ({details or code.name})", "check that assay-server runs there"
            )
        return ServerRefusedError(
            subject, f"it refused: {details or code.name}", "look at the server's log for the cause"
        )
