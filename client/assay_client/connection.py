"""The way to a server: address, channel, errors as they were raised there, and a watch that reconnects."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from assay_client.ending import ended_in_order, raise_if_asked
from assay_protos import campaign_pb2, campaign_pb2_grpc
from assay_sampling import errors
from assay_sampling.errors import (
    AssayError,
    CampaignError,
    ParameterError,
    RefusedError,
    ServerUnreachableError,
    StorageError,
)
from assay_sampling.server_address import (
    SERVER_VARIABLE,
    ServerAddress,
    default_address,
    parse_address,
    require_our_socket,
    runtime_folder,
)

ERROR_METADATA_KEY = "assay-error-bin"
ENDED_STATES = frozenset({"done", "failed", "cancelled"})

_CONNECT_SECONDS = 5.0
_REPORT_SECONDS = 600.0
_CALL_SECONDS = 60.0
_RECONNECT_SECONDS = 60.0
_LARGEST_MESSAGE_BYTES = 32 << 20

Answer = TypeVar("Answer")


def server_address(given: str | None = None) -> str:
    """The server to talk to: the one given, else $ASSAY_SERVER, else this user's own socket.

    Raises ParameterError for what is not an address, ServerUnreachableError for one that is not on this
    machine: a connection off loopback is never made in plain text.
    """
    return _address(given).text


def _address(given: str | None) -> ServerAddress:
    text = utf8(given or os.environ.get(SERVER_VARIABLE) or default_address())
    found = parse_address(text, "--server")
    if not found.on_this_machine:
        raise ServerUnreachableError(
            text,
            "it is not on this machine, and nothing is sent over a network in plain text",
            f"forward a socket of your own to it with: mkdir -pm 700 {runtime_folder()} && ssh -N -L "
            f"{runtime_folder()}/remote.sock:localhost:{found.port} {found.host}, and use "
            f"--server unix:{runtime_folder()}/remote.sock",
        )
    return found


def utf8(text: str) -> str:
    """``text`` as gRPC can send it; raises ParameterError for bytes of a path that are not UTF-8."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError as error:
        raise ParameterError(
            text, "it is not UTF-8, and only UTF-8 can be sent to a server", "rename the file or its folder"
        ) from error


class Connection:
    """One server. Every method raises the typed error that the server raised, or ServerUnreachableError.

    Args:
        address: "unix:PATH", or "HOST:PORT" on loopback; None: $ASSAY_SERVER, else this user's own socket.
        connect_seconds: how long to wait for the server to answer at all.

    A socket is refused (ServerUnreachableError) where another user could be the one who answers.
    """

    def __init__(self, address: str | None = None, *, connect_seconds: float = _CONNECT_SECONDS) -> None:
        found = _address(address)
        self.address = found.text
        _require_ours(found)
        self._channel = grpc.insecure_channel(
            self.address,
            options=[
                ("grpc.enable_http_proxy", 0),
                ("grpc.max_receive_message_length", _LARGEST_MESSAGE_BYTES),
                # gRPC's name for how long one attempt to connect may take, the greeting included.
                ("grpc.min_reconnect_backoff_ms", int(1000 * connect_seconds)),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2000),
            ],
        )
        self._stub: Any = campaign_pb2_grpc.CampaignServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._reached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def submit(self, text: str, file_name: str, base_directory: str) -> campaign_pb2.SubmitResponse:
        request = campaign_pb2.SubmitRequest(
            campaign_yaml=text, file_name=utf8(file_name), base_directory=utf8(base_directory)
        )
        answer: campaign_pb2.SubmitResponse = self._call(self._stub.Submit, request)
        return answer

    def campaigns(self) -> campaign_pb2.ListCampaignsResponse:
        """All campaigns, from all pages of the server's answer."""
        request = campaign_pb2.ListCampaignsRequest()
        answer: campaign_pb2.ListCampaignsResponse = self._call(self._stub.ListCampaigns, request)
        page = answer
        while page.campaigns_next:
            request.campaigns_from = page.campaigns_next
            page = self._call(self._stub.ListCampaigns, request)
            answer.campaigns.extend(page.campaigns)
        return answer

    def status(self, campaign_id: str, *, with_runs: bool = True) -> campaign_pb2.CampaignStatus:
        """The status now, with its runs from all pages of the server's answer."""
        request = campaign_pb2.GetStatusRequest(campaign_id=utf8(campaign_id), without_runs=not with_runs)
        answer: campaign_pb2.CampaignStatus = self._call(self._stub.GetStatus, request)
        page = answer
        while page.runs_next:
            request.runs_from = page.runs_next
            page = self._call(self._stub.GetStatus, request)
            answer.runs.extend(page.runs)
        return answer

    def cancel(self, campaign_id: str) -> campaign_pb2.CampaignStatus:
        request = campaign_pb2.CancelRequest(campaign_id=utf8(campaign_id))
        answer: campaign_pb2.CampaignStatus = self._call(self._stub.Cancel, request)
        return answer

    def run(self, run_id: str) -> campaign_pb2.RunDetail:
        request = campaign_pb2.GetRunRequest(run_id=utf8(run_id))
        answer: campaign_pb2.RunDetail = self._call(self._stub.GetRun, request)
        return answer

    def report(self, campaign_id: str, form: str) -> tuple[bytes, list[campaign_pb2.ChangedFile]]:
        """The report of an ended campaign ("json" or "html"), and what changed since it was made."""
        request = campaign_pb2.GetReportRequest(campaign_id=utf8(campaign_id), format=form)
        chunks: list[campaign_pb2.ReportChunk] = self._call(
            # The server looks at all records of the campaign before it ends its answer.
            lambda message, timeout: list(self._stub.GetReport(message, timeout=_REPORT_SECONDS)),
            request,
        )
        return b"".join(chunk.data for chunk in chunks), [each for chunk in chunks for each in chunk.changed]

    def watch(
        self, campaign_id: str, *, give_up_seconds: float = _RECONNECT_SECONDS
    ) -> Iterator[campaign_pb2.CampaignStatus]:
        """Each new status of a campaign until it has ended, over breaks of the connection.

        A server that goes away is awaited for ``give_up_seconds``; then ServerUnreachableError is raised.
        The campaign itself goes on, watched or not.
        """
        last: campaign_pb2.CampaignStatus | None = None
        give_up_at = time.monotonic() + (give_up_seconds if self._reached else 0.0)
        while True:
            try:
                for status in self._watch_once(campaign_id):
                    give_up_at = time.monotonic() + give_up_seconds
                    if status != last:
                        yield status
                    last = status
            except ServerUnreachableError:
                if time.monotonic() >= give_up_at:
                    raise
            if last is not None and last.state in ENDED_STATES:
                return
            raise_if_asked()
            time.sleep(0.2)

    def _watch_once(self, campaign_id: str) -> Iterator[campaign_pb2.CampaignStatus]:
        stream = self._stub.Watch(campaign_pb2.GetStatusRequest(campaign_id=utf8(campaign_id)))
        try:
            with ended_in_order(stream.cancel):
                for status in stream:
                    self._reached = True
                    yield status
                    raise_if_asked()
        except grpc.RpcError as error:
            raise_if_asked()
            raise self._typed(error) from None
        finally:
            stream.cancel()

    def _call(self, method: Callable[..., Answer], request: Any) -> Answer:
        try:
            answer = method(request, timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            raise self._typed(error) from None
        self._reached = True
        return answer

    def _typed(self, error: grpc.RpcError) -> AssayError:
        typed = typed_error(error, self.address)
        if isinstance(typed, ServerUnreachableError) and not self._reached:
            return unreachable(self.address, "no server answers there")
        return typed


def _require_ours(address: ServerAddress) -> None:
    """Raises ServerUnreachableError where there is no server of this user's, or it could be another's."""
    folder = address.socket.parent if address.socket is not None else Path("/")
    if not folder.exists():
        raise unreachable(address.text, f"no server answers there: there is no folder {folder}")
    try:
        require_our_socket(address)
    except ParameterError as error:
        raise ServerUnreachableError(address.text, error.cause, error.remedy) from error


def unreachable(address: str, cause: str) -> ServerUnreachableError:
    """The error of a server that does not answer, with what to do about it."""
    return ServerUnreachableError(
        address, cause, "start one with: assay-server --state DIR, or name another with --server"
    )


def typed_error(error: grpc.RpcError, address: str) -> AssayError:
    """The typed error behind a failed call: the one the server raised, else one for the gRPC status."""
    for key, value in _trailing_metadata(error):
        if key == ERROR_METADATA_KEY:
            rebuilt = _rebuild(value)
            if rebuilt is not None:
                return rebuilt
    return _from_status(error, address)


def _trailing_metadata(error: grpc.RpcError) -> list[tuple[str, Any]]:
    read = getattr(error, "trailing_metadata", None)
    found = read() if read is not None else None
    return [(str(key), value) for key, value in (found or ())]


def _rebuild(value: bytes | str) -> AssayError | None:
    try:
        document = json.loads(value)
    except ValueError:
        return None
    if not isinstance(document, Mapping):
        return None
    kind = getattr(errors, str(document.get("type", "")), AssayError)
    if not (isinstance(kind, type) and issubclass(kind, AssayError)):
        kind = AssayError
    # Some errors have constructors of their own; what crossed the wire is what the base class holds.
    rebuilt = kind.__new__(kind)
    AssayError.__init__(
        rebuilt,
        str(document.get("subject", "server")),
        str(document.get("cause", "")),
        str(document.get("remedy", "")),
    )
    return rebuilt


_KINDS: dict[grpc.StatusCode, tuple[type[AssayError], str, str]] = {
    grpc.StatusCode.UNIMPLEMENTED: (
        RefusedError,
        "what listens there does not know this request",
        "use client and server of the same release of Assay",
    ),
    grpc.StatusCode.NOT_FOUND: (CampaignError, "the server knows no such thing", "see: assay status"),
    grpc.StatusCode.INVALID_ARGUMENT: (CampaignError, "the server cannot read the request", ""),
    grpc.StatusCode.FAILED_PRECONDITION: (RefusedError, "the server refused", ""),
    grpc.StatusCode.PERMISSION_DENIED: (RefusedError, "the server refused", ""),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (StorageError, "the server could not store or send it", ""),
    grpc.StatusCode.DATA_LOSS: (StorageError, "the server's data are damaged", ""),
}


def _from_status(error: grpc.RpcError, address: str) -> AssayError:
    code = error.code() if hasattr(error, "code") else None
    details = str(error.details() or "") if hasattr(error, "details") else ""
    if code is grpc.StatusCode.UNAVAILABLE:
        return unreachable(address, "the server went away")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return unreachable(address, f"the server did not finish its answer within {_CALL_SECONDS:g} s")
    if code in _KINDS:
        kind, cause, remedy = _KINDS[code]
        return kind(address, details or cause, remedy)
    name = code.name if code is not None else "no status"
    return AssayError(
        address,
        f"the server failed ({name}{': ' + details if details else ''})",
        "see the log of the server; if it persists, report it to the authors of Assay",
    )
