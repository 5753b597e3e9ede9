"""The agent's calls to its server: one channel, retries with growing, jittered pauses, typed errors.

When the certificate was renewed, new calls take a new channel; the old one ends with its last call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
from tenacity import (
    RetryCallState,
    Retrying,
    sleep_using_event,
    stop_when_event_set,
    wait_random_exponential,
)

from assay_core.connecting.channel import mutual_channel, why_unreachable
from assay_core.connecting.joining import renewed, renewed_after_expiry
from assay_core.identity.credentials import Credentials
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
from assay_core.records.upload import BundleChunk, BundleWanted
from assay_core.server_address import parse_address, require_our_socket
from assay_protos import agent_pb2_grpc, bundle_pb2_grpc, ingest_pb2_grpc
from assay_sampling.errors import AssayError, DuplicateIdentityError, NotReadyError, ServerUnreachableError

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

# The server says then itself whose word is needed.
_NO_RIGHT = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}
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


def _may_pass(state: RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, grpc.Call):
        return False
    doubtful = error.code() in _DOUBTFUL and state.attempt_number < _DOUBTFUL_TRIES
    return doubtful or error.code() in _AWAY


class _Line:
    """A channel with its stubs; once it is :meth:`retired`, it closes when its last call has ended."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.agent: Any = agent_pb2_grpc.AgentServiceStub(channel)  # type: ignore[no-untyped-call]
        self.bundles: Any = bundle_pb2_grpc.BundleServiceStub(channel)  # type: ignore[no-untyped-call]
        self.ingest: Any = ingest_pb2_grpc.IngestServiceStub(channel)  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()
        self._calls = 0
        self._retired = False

    def begin(self) -> None:
        with self._lock:
            self._calls += 1

    def end(self) -> None:
        with self._lock:
            self._calls -= 1
            unused = self._retired and self._calls == 0
        if unused:
            self.channel.close()

    def retire(self) -> None:
        with self._lock:
            self._retired = True
            unused = self._calls == 0
        if unused:
            self.channel.close()


class Connection:
    """A channel to the server, and the agent's unary calls over it.

    Every call is repeated until it is answered or its ``give_up`` is set, then raises
    ServerUnreachableError; an answer that refuses for good raises ServerRefusedError.

    Args:
        address: "unix:PATH", or "HOST:PORT", which needs ``credentials``.
        credentials: what ``assay-agent join`` got; over TCP both sides prove themselves.
        socket_owner: the user whose shared socket is trusted; "": only this user's own.

    Raises ParameterError for what is not an address, or a socket where others could answer; NotReadyError if
    there are no credentials for TCP.
    """

    def __init__(
        self, address: str, credentials: Credentials | None = None, *, socket_owner: str = ""
    ) -> None:
        self._address = parse_address(address)
        # The answers are run as commands, so nobody else may take the server's place, now or later.
        require_our_socket(self._address, owner=socket_owner)
        if self._address.socket is None and credentials is None:
            raise NotReadyError(
                f"server {self._address.text}",
                "over TCP agent and server prove who they are, and this agent has no certificate yet",
                "ask an admin for a token, and run: assay-agent join HOST:PORT --token TOKEN",
            )
        self.address = self._address.text
        self._credentials = credentials if self._address.socket is None else None
        self._lines = threading.Lock()
        self._line = self._new_line()
        self._draining: list[_Line] = []

    def _new_line(self) -> _Line:
        if self._credentials is None:
            return _Line(grpc.insecure_channel(self.address, options=_CHANNEL_OPTIONS))
        return _Line(mutual_channel(self._address, self._credentials, _CHANNEL_OPTIONS))

    @property
    def credentials(self) -> Credentials | None:
        """What this agent proves itself with; None: the server is behind a socket."""
        return self._credentials

    @property
    def line(self) -> object:
        """Stands for the present channel; another object once the credentials were replaced."""
        return self._line

    def use(self, credentials: Credentials) -> None:
        """Make further calls with these credentials; calls under way end as they began."""
        with self._lines:
            self._credentials = credentials
            old, self._line = self._line, self._new_line()
            self._draining.append(old)
        old.retire()

    def renew(self, timeout_seconds: float) -> Credentials:
        """Ask for the next certificate, once, of --listen, or of --join after expiry; not yet in use.

        Raises ServerUnreachableError, ServerRefusedError, or ParameterError for an answer that is not for us.
        """
        if self._credentials is None:
            raise NotReadyError(f"server {self.address}", "there is no certificate to renew")
        credentials = self._credentials
        if credentials.expired:
            return renewed_after_expiry(credentials, timeout_seconds)
        with self._open_line() as line:
            return self._translated(lambda: renewed(line.channel, credentials, timeout_seconds))

    @contextmanager
    def _open_line(self) -> Iterator[_Line]:
        with self._lines:
            line = self._line
            line.begin()
        try:
            yield line
        finally:
            line.end()

    def close(self) -> None:
        with self._lines:
            lines = [self._line, *self._draining]
        for line in lines:
            line.channel.close()

    @contextmanager
    def upload(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The stream of acknowledgements for a stream of segments."""
        with self._open_line() as line:
            yield line.ingest.Upload(requests)

    def bundle(self, request: BundleWanted) -> Iterator[bytes]:
        """The pieces of a run's bundle; one try. Raises ServerUnreachableError, ServerRefusedError."""
        with self._open_line() as line:
            stream = line.bundles.FetchBundle(request.to_proto())
            try:
                for message in stream:
                    yield BundleChunk.from_proto(message).data
            except grpc.RpcError as error:
                raise self.error_of(error) from error
            finally:
                stream.cancel()

    def register(
        self,
        registration: Registration,
        give_up: threading.Event,
        before_retry: Callable[[], None] = lambda: None,
    ) -> Registered:
        """Register, again and again; ``before_retry``: may :meth:`use` other credentials."""
        request = registration.to_proto()
        return Registered.from_proto(
            self._repeat(lambda agent: agent.Register(request, timeout=10), give_up, before_retry)
        )

    def heartbeat(self, heartbeat: Heartbeat, timeout: float) -> HeartbeatAnswer:
        """One try: the next heartbeat retries."""
        request = heartbeat.to_proto()
        with self._open_line() as line:
            return HeartbeatAnswer.from_proto(
                self._translated(lambda: line.agent.Heartbeat(request, timeout=timeout))
            )

    def lease(self, request: LeaseRequest) -> LeaseAnswer:
        """Ask for work once."""
        message = request.to_proto()
        with self._open_line() as line:
            return LeaseAnswer.from_proto(self._translated(lambda: line.agent.Lease(message, timeout=10)))

    def finish(self, finished: FinishedAttempt, give_up: threading.Event) -> FinishAnswer:
        # Publishing a large run takes long, and asking again meanwhile does not help.
        request = finished.to_proto()
        return FinishAnswer.from_proto(
            self._repeat(lambda agent: agent.FinishAttempt(request, timeout=600), give_up)
        )

    def fail(self, failed: FailedAttempt, give_up: threading.Event) -> None:
        request = failed.to_proto()
        self._repeat(lambda agent: agent.FailAttempt(request, timeout=10), give_up)

    def _repeat(
        self,
        call: Callable[[Any], Response],
        give_up: threading.Event,
        before_retry: Callable[[], None] = lambda: None,
    ) -> Response:
        """The answer to a call of the agent's stub, each try over the channel that is then in use."""

        def once() -> Response:
            with self._open_line() as line:
                return call(line.agent)

        def before_sleep(state: RetryCallState) -> None:
            self._tell_first(state)
            before_retry()

        retrying = Retrying(
            retry=_may_pass,
            wait=PAUSES,
            stop=stop_when_event_set(give_up),
            sleep=sleep_using_event(give_up),
            before_sleep=before_sleep,
            reraise=True,
        )
        return self._translated(lambda: retrying(once))

    def _tell_first(self, state: RetryCallState) -> None:
        """Log once why the agent does nothing."""
        if state.attempt_number == 1:
            why = ""
            if self._credentials is not None:
                cause, remedy = why_unreachable(self._address, self._credentials.authority, self._credentials)
                why = f" ({cause}; {remedy})"
            _log.warning("server %s does not answer%s: it is tried again until it does", self.address, why)

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
        metadata = ErrorMetadata.beside(error)
        if metadata is not None and isinstance(duplicate := metadata.error(), DuplicateIdentityError):
            return duplicate
        if code in _AWAY:
            return ServerUnreachableError(
                subject, f"it does not answer ({details or code.name})", "check that assay-server runs there"
            )
        # The server's words about rights say already what to do.
        remedy = "" if details and code in _NO_RIGHT else "look at the server's log for the cause"
        return ServerRefusedError(subject, f"it refused: {details or code.name}", remedy)
