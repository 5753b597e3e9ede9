"""The connection to a server: its calls, with typed records and errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import grpc

from assay_client.ending import ended_in_order, raise_if_asked
from assay_client.remote.addresses import utf8
from assay_client.remote.channel import CONNECT_SECONDS, ServerChannel
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
from assay_sampling.errors import ServerUnreachableError

_REPORT_SECONDS = 600.0
# A request about 100,000 runs, or their submission, is done in pieces, whether or not the client waits.
_REQUEST_SECONDS = 600.0
_RECONNECT_SECONDS = 60.0
_RESUBMIT_SECONDS = 0.5
FOLLOW_SECONDS = 0.3


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
        self._server = ServerChannel(address, connect_seconds=connect_seconds)
        self.address = self._server.address

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
        self._server.close()

    def is_serving(self) -> bool:
        """What the server's health service says."""
        return self._server.is_serving()

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
        if key and not self._server.reached:
            self._server.reach()
        until = time.monotonic() + _RECONNECT_SECONDS
        while True:
            try:
                return self._server.call(
                    lambda: self._server.campaigns.Submit,
                    submission,
                    Submitted.from_proto,
                    seconds=_REQUEST_SECONDS,
                )
            except ServerUnreachableError:
                if not key or not self._server.reached or time.monotonic() >= until:
                    raise
                time.sleep(_RESUBMIT_SECONDS)

    def missing_bundles(self, bundles: tuple[Bundle, ...]) -> BundlesMissing:
        """Those that must be sent first."""
        return self._server.call(
            lambda: self._server.bundles.FindMissing, BundlesNamed(bundles), BundlesMissing.from_proto
        )

    def send_bundle(self, chunks: Iterator[BundleChunk]) -> StoredBundle:
        """Send one bundle; it is durable on the server then."""
        self._server.renew_if_due()
        stream = self._server.bundles.SendBundle(chunk.to_proto() for chunk in chunks)
        try:
            with ended_in_order(stream.cancel):
                [stored] = [StoredBundle.from_proto(message) for message in stream]
        except grpc.RpcError as error:
            raise_if_asked()
            raise self._server.typed(error) from None
        return stored

    def records(self, campaign_id: str) -> Iterator[RecordFile]:
        """The published files of a campaign, from all pages of the server's answer."""
        request = RecordsAsked(utf8(campaign_id))
        while True:
            page = self._server.call(
                lambda: self._server.records.ListRecords, request, RecordsPage.from_proto
            )
            yield from page.files
            if not page.next:
                return
            request = replace(request, first=page.next)

    def record(self, request: RecordWanted) -> Iterator[bytes]:
        """A published file from an offset on, in pieces."""
        chunks = self._server.parts(
            lambda: self._server.records.ReadRecords, request, RecordsChunk.from_proto
        )
        for chunk in chunks:
            yield chunk.data

    def launches(self, request: LaunchesAsked) -> Iterator[LaunchesPart]:
        """The published launches of a run from a cursor on, until the stream ends or breaks."""
        yield from self._server.parts(
            lambda: self._server.records.StreamLaunches, request, LaunchesPart.from_proto
        )

    def campaigns(self) -> Overview:
        """All campaigns, from all pages of the server's answer."""
        overview = page = self._campaigns(CampaignsPage())
        while page.campaigns_next:
            page = self._campaigns(CampaignsPage(page.campaigns_next))
            overview = replace(overview, campaigns=overview.campaigns + page.campaigns)
        return overview

    def _campaigns(self, page: CampaignsPage) -> Overview:
        return self._server.call(lambda: self._server.campaigns.ListCampaigns, page, Overview.from_proto)

    def status(self, campaign_id: str, *, with_runs: bool = True) -> CampaignStatus:
        """The status now, with its runs from all pages of the server's answer."""
        request = StatusRequest(utf8(campaign_id), without_runs=not with_runs)
        status = page = self._server.call(
            lambda: self._server.campaigns.GetStatus, request, CampaignStatus.from_proto
        )
        runs = list(page.runs)
        while page.runs_next:
            request = replace(request, first=page.runs_next)
            page = self._server.call(
                lambda: self._server.campaigns.GetStatus, request, CampaignStatus.from_proto
            )
            runs += page.runs
        return replace(status, runs=tuple(runs), runs_next=0)

    def agents(self) -> LabAgents:
        """Every agent that the server remembers."""
        return self._server.call(lambda: self._server.lab.ListAgents, LabQuestion(), LabAgents.from_proto)

    def queue(self) -> LabQueue:
        """What waits in all running campaigns."""
        return self._server.call(lambda: self._server.lab.GetQueue, LabQuestion(), LabQueue.from_proto)

    def ask(self, action: RunsAction, request: RunsRequest) -> RunsAnswer:
        """Have the server carry out a request about runs; raises what it refuses it with."""
        method: Callable[[], Callable[..., Any]] = {
            RunsAction.PAUSE: lambda: self._server.campaigns.Pause,
            RunsAction.RESUME: lambda: self._server.campaigns.Resume,
            RunsAction.CANCEL: lambda: self._server.campaigns.CancelRuns,
            RunsAction.RETRY: lambda: self._server.campaigns.Retry,
        }[action]
        named = replace(
            request,
            campaign_id=utf8(request.campaign_id),
            workload=utf8(request.workload),
            run_id=utf8(request.run_id),
        )
        return self._server.call(
            lambda: lambda message, timeout: method()(message, timeout=_REQUEST_SECONDS),
            named,
            RunsAnswer.from_proto,
        )

    def run(self, run_id: str) -> RunDetail:
        return self._server.call(
            lambda: self._server.campaigns.GetRun, NamedRun(utf8(run_id)), RunDetail.from_proto
        )

    def audit(self, request: AuditAsked) -> AuditPage:
        """A page of the audit log, newest first."""
        return self._server.call(lambda: self._server.lab.ReadAudit, request, AuditPage.from_proto)

    def set_role(self, change: RoleChange) -> RoleSet:
        return self._server.call(lambda: self._server.lab.SetRole, change, RoleSet.from_proto)

    def budgets(self, request: BudgetsAsked) -> Budgets:
        return self._server.call(lambda: self._server.lab.ListBudgets, request, Budgets.from_proto)

    def set_budget(self, change: BudgetChange) -> PersonBudget:
        return self._server.call(lambda: self._server.lab.SetBudget, change, PersonBudget.from_proto)

    def report(self, campaign_id: str, form: ReportFormat) -> tuple[bytes, list[ChangedFile]]:
        """The report of an ended campaign, and what changed since it was made."""
        chunks = self._server.call(
            # The server checks all records of the campaign before it ends its answer.
            lambda: (
                lambda message, timeout: list(
                    self._server.campaigns.GetReport(message, timeout=_REPORT_SECONDS)
                )
            ),
            ReportRequest(utf8(campaign_id), form),
            lambda messages: [ReportChunk.from_proto(message) for message in messages],
        )
        return b"".join(chunk.data for chunk in chunks), [each for chunk in chunks for each in chunk.changed]

    def make_token(self, request: TokenAsked) -> TokenMade:
        return self._server.call(lambda: self._server.identities.MakeToken, request, TokenMade.from_proto)

    def revoke(self, subject: str, *, tokens: bool = False) -> Revoked:
        named = NamedForRevocation(utf8(subject), tokens)
        return self._server.call(lambda: self._server.identities.Revoke, named, Revoked.from_proto)

    def web_link(self) -> WebLink:
        return self._server.call(
            lambda: self._server.identities.MakeWebLink, WebLinkAsked(), WebLink.from_proto
        )

    def identities(self) -> Identities:
        return self._server.call(
            lambda: self._server.identities.ListIdentities, IdentitiesAsked(), Identities.from_proto
        )

    def delete(self, campaign_id: str, *, confirmed: bool) -> DeletedCampaign:
        """Delete a campaign that has ended."""
        request = DeleteRequest(utf8(campaign_id), confirmed)
        return self._server.call(
            lambda: lambda message, timeout: self._server.archives.Delete(message, timeout=_REPORT_SECONDS),
            request,
            DeletedCampaign.from_proto,
        )

    def export(self, campaign_id: str) -> Iterator[bytes]:
        """The archive of a campaign that has ended, in pieces."""
        request = ExportRequest(utf8(campaign_id))
        for chunk in self._server.parts(
            lambda: self._server.archives.Export, request, ArchiveChunk.from_proto
        ):
            yield chunk.data

    def take_in(self, pieces: Iterator[bytes]) -> ImportedCampaign:
        """Hand an archive to the server."""
        self._server.renew_if_due()
        try:
            answers = self._server.archives.Import(ArchiveChunk(data).to_proto() for data in pieces)
            [campaign] = [ImportedCampaign.from_proto(answer) for answer in answers]
        except grpc.RpcError as error:
            raise self._server.typed(error) from None
        return campaign

    def watch(
        self, campaign_id: str, *, give_up_seconds: float = _RECONNECT_SECONDS
    ) -> Iterator[CampaignStatus]:
        """Yield each new status of a campaign until it has ended.

        Waits ``give_up_seconds`` for a server that went away, then raises ServerUnreachableError.
        The campaign itself continues anyway.
        """
        request = StatusRequest(utf8(campaign_id), without_runs=True, following=True)
        last: CampaignStatus | None = None
        give_up_at = time.monotonic() + (give_up_seconds if self._server.reached else 0.0)
        with ended_in_order():
            while True:
                raise_if_asked()
                try:
                    status = self._server.call(self._cancellable_status, request, CampaignStatus.from_proto)
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
            future = self._server.campaigns.GetStatus.future(message, timeout=timeout)
            with ended_in_order(future.cancel):
                try:
                    return future.result()
                except grpc.FutureCancelledError:
                    raise_if_asked()
                    raise

        return call
