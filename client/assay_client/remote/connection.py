"""The connection to a server: address, channel, calls, and the server's typed errors."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import grpc

from assay_client.ending import ended_in_order, raise_if_asked
from assay_client.settings import settings_of
from assay_core.health_probe import is_serving
from assay_core.records.archive import (
    ArchiveChunk,
    DeletedCampaign,
    DeleteRequest,
    ExportRequest,
    ImportedCampaign,
    LaunchesAsked,
    LaunchesPart,
    RecordFile,
    RecordsAsked,
    RecordsChunk,
    RecordsPage,
    RecordWanted,
)
from assay_core.records.campaign import (
    CampaignsPage,
    CampaignStatus,
    ChangedFile,
    Overview,
    ReportChunk,
    ReportFormat,
    ReportRequest,
    StatusRequest,
    Submission,
    Submitted,
)
from assay_core.records.error_metadata import ErrorMetadata
from assay_core.records.identity import (
    Identities,
    IdentitiesAsked,
    NamedForRevocation,
    Revoked,
    TokenAsked,
    TokenMade,
    WebLink,
    WebLinkAsked,
)
from assay_core.records.lab import (
    AuditAsked,
    AuditPage,
    BudgetChange,
    Budgets,
    BudgetsAsked,
    LabAgents,
    LabQuestion,
    LabQueue,
    PersonBudget,
    RoleChange,
    RoleSet,
)
from assay_core.records.runs import NamedRun, RunDetail, RunsAction, RunsAnswer, RunsRequest
from assay_core.records.upload import Bundle, BundleChunk, BundlesMissing, BundlesNamed, StoredBundle
from assay_core.server_address import ServerAddress, parse_address, require_our_socket
from assay_protos import (
    archive_pb2_grpc,
    bundle_pb2_grpc,
    campaign_pb2_grpc,
    identity_pb2_grpc,
    lab_pb2_grpc,
    records_pb2_grpc,
)
from assay_sampling.errors import (
    AssayError,
    CampaignError,
    NotIdentifiedError,
    ParameterError,
    RefusedError,
    ServerUnreachableError,
    StorageError,
)

if TYPE_CHECKING:
    from assay_client.remote.logins import Login

CONNECT_SECONDS = 5.0
_REPORT_SECONDS = 600.0
_CALL_SECONDS = 60.0
# A request about 100,000 runs, or their submission, is done in pieces, whether or not the client waits.
_REQUEST_SECONDS = 600.0
_RECONNECT_SECONDS = 60.0
_RESUBMIT_SECONDS = 0.5
FOLLOW_SECONDS = 0.3
_LARGEST_MESSAGE_BYTES = 32 << 20

Answer = TypeVar("Answer")


class _Sent(Protocol):
    """A record that can be sent."""

    def to_proto(self) -> Any: ...


def server_address(given: str | None = None) -> str:
    """The server to talk to: the one given, else $ASSAY_SERVER, else this user's own socket.

    Raises ParameterError if it is not an address.
    """
    return _address(given).text


def _address(given: str | None) -> ServerAddress:
    return parse_address(utf8(given or settings_of(server=None).server), "--server")


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
        address: "unix:PATH", or "HOST:PORT" after ``assay lab login``; None: $ASSAY_SERVER, else this user's
            own socket.
        connect_seconds: how long to wait for the server to answer at all.

    A socket is refused (ServerUnreachableError) if another user could answer there. Over TCP both sides prove
    who they are: NotIdentifiedError if nobody has logged in to that server, ServerUnreachableError if nothing
    listens there.
    """

    def __init__(self, address: str | None = None, *, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._found = _address(address)
        self.address = self._found.text
        self._options: list[tuple[str, int | str]] = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", _LARGEST_MESSAGE_BYTES),
            # gRPC's limit for one attempt to connect, including the handshake.
            ("grpc.min_reconnect_backoff_ms", int(1000 * connect_seconds)),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
        ]
        self._login: Login | None = None
        if self._found.socket is None:
            # Here, because a server at a socket needs no certificates, which take long to load.
            from assay_client.remote.logins import Login  # noqa: PLC0415

            self._login = Login(self._found, self._options)
            self._login.renew_if_due(lambda: None)
        else:
            _require_ours(self._found)
        self._reached = False
        self._old_channel: grpc.Channel | None = None
        self._open()

    def _open(self) -> None:
        if self._login is not None:
            self._channel = self._login.channel()
        else:
            self._channel = grpc.insecure_channel(self.address, options=self._options)
        self._stub: Any = campaign_pb2_grpc.CampaignServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._bundle_stub: Any = bundle_pb2_grpc.BundleServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._records_stub: Any = records_pb2_grpc.RecordsServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._archives: Any = archive_pb2_grpc.ArchiveServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._lab_stub: Any = lab_pb2_grpc.LabServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._identity_stub: Any = identity_pb2_grpc.IdentityServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def _open_again(self) -> None:
        """A new channel, with the renewed certificate; other threads' calls end over the old one."""
        if self._old_channel is not None:
            self._old_channel.close()
        self._old_channel = self._channel
        self._open()

    def _renew_if_due(self) -> None:
        if self._login is not None:
            self._login.renew_if_due(self._open_again)

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
        if self._old_channel is not None:
            self._old_channel.close()

    def submit(
        self,
        text: str,
        file_name: str,
        base_directory: str,
        bundles: Mapping[str, Bundle] | None = None,
        *,
        asks_for_folders: bool = False,
        key: str = "",
    ) -> Submitted:
        """The campaign that was made. If the connection is lost meanwhile, a submission with a key is sent
        again for some time, perhaps to another server: it becomes one campaign all the same."""
        names = utf8(file_name), utf8(base_directory)
        submission = Submission(text, *names, bundles or {}, asks_for_folders=asks_for_folders, key=key)
        if key and not self._reached:
            self._reach()
        until = time.monotonic() + _RECONNECT_SECONDS
        while True:
            try:
                return self._call(
                    lambda: self._stub.Submit, submission, Submitted.from_proto, seconds=_REQUEST_SECONDS
                )
            except ServerUnreachableError:
                if not key or not self._reached or time.monotonic() >= until:
                    raise
                time.sleep(_RESUBMIT_SECONDS)

    def _reach(self) -> None:
        """Note that a server is there, which a call that it never answers does not tell; raises
        ServerUnreachableError if none is."""
        with contextlib.suppress(RefusedError):  # a server without the health service has answered, too
            self.is_serving()
        self._reached = True

    def missing_bundles(self, bundles: tuple[Bundle, ...]) -> BundlesMissing:
        """Those that must be sent first."""
        return self._call(
            lambda: self._bundle_stub.FindMissing, BundlesNamed(bundles), BundlesMissing.from_proto
        )

    def send_bundle(self, chunks: Iterator[BundleChunk]) -> StoredBundle:
        """Send one bundle; it is durable on the server then."""
        self._renew_if_due()
        stream = self._bundle_stub.SendBundle(chunk.to_proto() for chunk in chunks)
        try:
            with ended_in_order(stream.cancel):
                [stored] = [StoredBundle.from_proto(message) for message in stream]
        except grpc.RpcError as error:
            raise_if_asked()
            raise self._typed(error) from None
        return stored

    def records(self, campaign_id: str) -> Iterator[RecordFile]:
        """The published files of a campaign, from all pages of the server's answer."""
        asked = RecordsAsked(utf8(campaign_id))
        while True:
            page = self._call(lambda: self._records_stub.ListRecords, asked, RecordsPage.from_proto)
            yield from page.files
            if not page.next:
                return
            asked = replace(asked, first=page.next)

    def record(self, wanted: RecordWanted) -> Iterator[bytes]:
        """A published file from an offset on, in pieces."""
        chunks = self._parts(lambda: self._records_stub.ReadRecords, wanted, RecordsChunk.from_proto)
        for chunk in chunks:
            yield chunk.data

    def launches(self, asked: LaunchesAsked) -> Iterator[LaunchesPart]:
        """The published launches of a run from a cursor on, until the stream ends or breaks."""
        yield from self._parts(lambda: self._records_stub.StreamLaunches, asked, LaunchesPart.from_proto)

    def _parts(
        self, method: Callable[[], Callable[..., Any]], asked: _Sent, read: Callable[[Any], Answer]
    ) -> Iterator[Answer]:
        """An answer that comes in parts."""
        self._renew_if_due()
        stream = method()(asked.to_proto())
        try:
            with ended_in_order(stream.cancel):
                for message in stream:
                    self._reached = True
                    yield read(message)
                    raise_if_asked()
        except grpc.RpcError as error:
            raise_if_asked()
            raise self._typed(error) from None
        finally:
            stream.cancel()

    def campaigns(self) -> Overview:
        """All campaigns, from all pages of the server's answer."""
        overview = page = self._campaigns(CampaignsPage())
        while page.campaigns_next:
            page = self._campaigns(CampaignsPage(page.campaigns_next))
            overview = replace(overview, campaigns=overview.campaigns + page.campaigns)
        return overview

    def _campaigns(self, page: CampaignsPage) -> Overview:
        return self._call(lambda: self._stub.ListCampaigns, page, Overview.from_proto)

    def status(self, campaign_id: str, *, with_runs: bool = True) -> CampaignStatus:
        """The status now, with its runs from all pages of the server's answer."""
        asked = StatusRequest(utf8(campaign_id), without_runs=not with_runs)
        status = page = self._call(lambda: self._stub.GetStatus, asked, CampaignStatus.from_proto)
        runs = list(page.runs)
        while page.runs_next:
            asked = replace(asked, first=page.runs_next)
            page = self._call(lambda: self._stub.GetStatus, asked, CampaignStatus.from_proto)
            runs += page.runs
        return replace(status, runs=tuple(runs), runs_next=0)

    def agents(self) -> LabAgents:
        """Every agent that the server remembers."""
        return self._call(lambda: self._lab_stub.ListAgents, LabQuestion(), LabAgents.from_proto)

    def queue(self) -> LabQueue:
        """What waits in all running campaigns."""
        return self._call(lambda: self._lab_stub.GetQueue, LabQuestion(), LabQueue.from_proto)

    def ask(self, action: RunsAction, asked: RunsRequest) -> RunsAnswer:
        """Have the server carry out a request about runs; raises what it refuses it with."""
        method: Callable[[], Callable[..., Any]] = {
            RunsAction.PAUSE: lambda: self._stub.Pause,
            RunsAction.RESUME: lambda: self._stub.Resume,
            RunsAction.CANCEL: lambda: self._stub.CancelRuns,
            RunsAction.RETRY: lambda: self._stub.Retry,
        }[action]
        named = replace(
            asked,
            campaign_id=utf8(asked.campaign_id),
            workload=utf8(asked.workload),
            run_id=utf8(asked.run_id),
        )
        return self._call(
            lambda: lambda message, timeout: method()(message, timeout=_REQUEST_SECONDS),
            named,
            RunsAnswer.from_proto,
        )

    def is_serving(self) -> bool:
        """What the server's health service says."""
        self._renew_if_due()
        try:
            return is_serving(self._channel, _CALL_SECONDS)
        except grpc.RpcError as error:
            raise self._typed(error) from None

    def run(self, run_id: str) -> RunDetail:
        return self._call(lambda: self._stub.GetRun, NamedRun(utf8(run_id)), RunDetail.from_proto)

    def audit(self, asked: AuditAsked) -> AuditPage:
        """A page of the audit log, newest first."""
        return self._call(lambda: self._lab_stub.ReadAudit, asked, AuditPage.from_proto)

    def set_role(self, change: RoleChange) -> RoleSet:
        return self._call(lambda: self._lab_stub.SetRole, change, RoleSet.from_proto)

    def budgets(self, asked: BudgetsAsked) -> Budgets:
        return self._call(lambda: self._lab_stub.ListBudgets, asked, Budgets.from_proto)

    def set_budget(self, change: BudgetChange) -> PersonBudget:
        return self._call(lambda: self._lab_stub.SetBudget, change, PersonBudget.from_proto)

    def report(self, campaign_id: str, form: ReportFormat) -> tuple[bytes, list[ChangedFile]]:
        """The report of an ended campaign, and what changed since it was made."""
        chunks = self._call(
            # The server checks all records of the campaign before it ends its answer.
            lambda: lambda message, timeout: list(self._stub.GetReport(message, timeout=_REPORT_SECONDS)),
            ReportRequest(utf8(campaign_id), form),
            lambda messages: [ReportChunk.from_proto(message) for message in messages],
        )
        return b"".join(chunk.data for chunk in chunks), [each for chunk in chunks for each in chunk.changed]

    def make_token(self, asked: TokenAsked) -> TokenMade:
        return self._call(lambda: self._identity_stub.MakeToken, asked, TokenMade.from_proto)

    def revoke(self, subject: str, *, tokens: bool = False) -> Revoked:
        named = NamedForRevocation(utf8(subject), tokens)
        return self._call(lambda: self._identity_stub.Revoke, named, Revoked.from_proto)

    def web_link(self) -> WebLink:
        return self._call(lambda: self._identity_stub.MakeWebLink, WebLinkAsked(), WebLink.from_proto)

    def identities(self) -> Identities:
        return self._call(
            lambda: self._identity_stub.ListIdentities, IdentitiesAsked(), Identities.from_proto
        )

    def delete(self, campaign_id: str, *, confirmed: bool) -> DeletedCampaign:
        """Delete a campaign that has ended."""
        asked = DeleteRequest(utf8(campaign_id), confirmed)
        return self._call(
            lambda: lambda message, timeout: self._archives.Delete(message, timeout=_REPORT_SECONDS),
            asked,
            DeletedCampaign.from_proto,
        )

    def export(self, campaign_id: str) -> Iterator[bytes]:
        """The archive of a campaign that has ended, in pieces."""
        asked = ExportRequest(utf8(campaign_id))
        for chunk in self._parts(lambda: self._archives.Export, asked, ArchiveChunk.from_proto):
            yield chunk.data

    def take_in(self, pieces: Iterator[bytes]) -> ImportedCampaign:
        """Hand an archive to the server."""
        self._renew_if_due()
        try:
            answers = self._archives.Import(ArchiveChunk(data).to_proto() for data in pieces)
            [taken] = [ImportedCampaign.from_proto(answer) for answer in answers]
        except grpc.RpcError as error:
            raise self._typed(error) from None
        return taken

    def watch(
        self, campaign_id: str, *, give_up_seconds: float = _RECONNECT_SECONDS
    ) -> Iterator[CampaignStatus]:
        """Yield each new status of a campaign until it has ended.

        Waits ``give_up_seconds`` for a server that went away, then raises ServerUnreachableError.
        The campaign itself continues anyway.
        """
        asked = StatusRequest(utf8(campaign_id), without_runs=True, following=True)
        last: CampaignStatus | None = None
        give_up_at = time.monotonic() + (give_up_seconds if self._reached else 0.0)
        with ended_in_order():
            while True:
                raise_if_asked()
                try:
                    status = self._call(self._cancellable_status, asked, CampaignStatus.from_proto)
                except ServerUnreachableError:
                    if time.monotonic() >= give_up_at:
                        raise
                else:
                    if status != last:
                        yield status
                    if status.ended:
                        return
                    last, give_up_at = status, time.monotonic() + give_up_seconds
                raise_if_asked()
                time.sleep(FOLLOW_SECONDS)

    def _cancellable_status(self) -> Callable[..., Any]:
        """GetStatus, which ends at once if a signal asks for the end."""

        def call(message: Any, timeout: float) -> Any:
            future = self._stub.GetStatus.future(message, timeout=timeout)
            with ended_in_order(future.cancel):
                try:
                    return future.result()
                except grpc.FutureCancelledError:
                    raise_if_asked()
                    raise

        return call

    def _call(
        self,
        method: Callable[[], Callable[..., Any]],
        asked: _Sent,
        read: Callable[[Any], Answer],
        *,
        seconds: float = _CALL_SECONDS,
    ) -> Answer:
        """The answer to one call; ``method`` finds it on the channel that is then in use."""
        self._renew_if_due()
        try:
            answer = method()(asked.to_proto(), timeout=seconds)
        except grpc.RpcError as error:
            raise self._typed(error) from None
        self._reached = True
        return read(answer)

    def _typed(self, error: grpc.RpcError) -> AssayError:
        typed = typed_error(error, self.address)
        if not isinstance(typed, ServerUnreachableError) or self._reached:
            return typed
        if self._login is None:
            return unreachable(self.address, "no server answers there")
        from assay_client.remote.logins import login_again  # noqa: PLC0415 - see above
        from assay_core.connecting.channel import why_unreachable  # noqa: PLC0415

        credentials = self._login.credentials
        if credentials.expired:
            return NotIdentifiedError(
                f"server {self.address}", "your certificate has expired", login_again(self.address)
            )
        cause, remedy = why_unreachable(self._found, credentials.authority)
        return ServerUnreachableError(self.address, cause, remedy)


def _require_ours(address: ServerAddress) -> None:
    """Raise ServerUnreachableError if there is no server there, or it could be another user's."""
    folder = address.socket.parent if address.socket is not None else Path("/")
    if not folder.exists():
        raise unreachable(address.text, f"no server answers there: there is no folder {folder}")
    try:
        require_our_socket(address, owner=settings_of(socket_owner=None).socket_owner)
    except ParameterError as error:
        raise ServerUnreachableError(address.text, error.cause, error.remedy) from error


def unreachable(address: str, cause: str) -> ServerUnreachableError:
    """The error for a server that does not answer, with its remedy."""
    return ServerUnreachableError(
        address, cause, "start one with: assay-server --state DIR, or name another with --server"
    )


def typed_error(error: grpc.RpcError, address: str) -> AssayError:
    """The typed error behind a failed call: the one the server raised, else one for the gRPC status."""
    told = ErrorMetadata.beside(error)
    return told.error() if told is not None else _from_status(error, address)


_KINDS: dict[grpc.StatusCode, tuple[type[AssayError], str, str]] = {
    grpc.StatusCode.UNIMPLEMENTED: (
        RefusedError,
        "the server there does not know this request",
        "use client and server of the same release of Assay",
    ),
    grpc.StatusCode.NOT_FOUND: (CampaignError, "the server knows no such thing", "see: assay lab status"),
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
    if code is grpc.StatusCode.CANCELLED:
        cause = "the server has more calls than it can begin"
        return StorageError(address, cause, "try again later")
    if code in _KINDS:
        kind, cause, remedy = _KINDS[code]
        return kind(address, details or cause, remedy)
    name = code.name if code is not None else "no status"
    return AssayError(
        address,
        f"the server failed ({name}{': ' + details if details else ''})",
        "see the log of the server; if it persists, report it to the authors of Assay",
    )
