"""The services: which threads answer each call by which handler, and the record that it takes.

Uploads have a servicer of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from assay_core.records import archive, campaign, identity, lab, lease, machine, runs, upload
from assay_core.records.identity import WebLink, WebLinkAsked
from assay_protos import (
    agent_pb2_grpc,
    archive_pb2_grpc,
    bundle_pb2_grpc,
    campaign_pb2_grpc,
    identity_pb2_grpc,
    ingest_pb2_grpc,
    lab_pb2_grpc,
    records_pb2_grpc,
)
from assay_sampling.errors import RefusedError
from assay_server.access.people import PeopleHandler
from assay_server.campaigns.budgets import BudgetHandler
from assay_server.campaigns.ingest.segments import Ingest
from assay_server.identity.enrolment import Enrolment
from assay_server.identity.identified import Identified
from assay_server.limits import DEFAULT_LIMITS, Limits
from assay_server.rpc.handlers.agents import AgentHandler
from assay_server.rpc.handlers.archives import ArchiveHandler
from assay_server.rpc.handlers.bundles import BundleHandler
from assay_server.rpc.handlers.campaigns import CampaignHandler
from assay_server.rpc.handlers.lab import LabHandler
from assay_server.rpc.handlers.published import PublishedHandler
from assay_server.rpc.quotas import ConcurrencyLimit
from assay_server.rpc.threads import Threads, call, call_in_parts, call_with_chunks
from assay_server.rpc.uploads import IngestServicer


def no_page(_request: WebLinkAsked) -> WebLink:
    """A server without a live page; raises RefusedError."""
    raise RefusedError("this server", "it serves no live page", "start it with: assay-server --web HOST:PORT")


@dataclass(frozen=True)
class Handlers:
    """What answers the calls of a server: plain functions of a record, which know no sockets.

    ``web_link`` makes a caller's link to the live page.
    """

    agents: AgentHandler
    archives: ArchiveHandler
    budgets: BudgetHandler
    bundles: BundleHandler
    campaigns: CampaignHandler
    identified: Identified
    ingest: Ingest
    lab: LabHandler
    people: PeopleHandler
    published: PublishedHandler
    web_link: Callable[[WebLinkAsked], WebLink] = no_page


def add_services(server: grpc.aio.Server, handlers: Handlers, threads: Threads, limits: Limits) -> None:
    """Have a server answer everything but joining."""
    for module, servicer in (
        (agent_pb2_grpc, agent_service(handlers.agents, threads)),
        (campaign_pb2_grpc, campaign_service(handlers.campaigns, threads, limits)),
        (lab_pb2_grpc, lab_service(handlers, threads)),
        (archive_pb2_grpc, archive_service(handlers.archives, threads, limits)),
        (bundle_pb2_grpc, bundle_service(handlers.bundles, threads, limits)),
        (records_pb2_grpc, records_service(handlers.published, threads, limits)),
        (identity_pb2_grpc, renewal_service(handlers.identified.enrolment, threads)),
        (identity_pb2_grpc, identity_service(handlers, threads)),
    ):
        getattr(module, f"add_{type(servicer).__name__}_to_server")(servicer, server)
    ingest = IngestServicer(handlers.ingest, threads, limits)
    ingest_pb2_grpc.add_IngestServiceServicer_to_server(ingest, server)  # type: ignore[no-untyped-call]


def _service(base: Callable[[], Any], **calls: Any) -> Any:
    """A servicer with these calls; the others of its service answer UNIMPLEMENTED."""
    servicer = base()
    for name, answer in calls.items():
        assert hasattr(servicer, name), f"{base} has no call {name}"
        setattr(servicer, name, answer)
    return servicer


def agent_service(handler: AgentHandler, threads: Threads) -> Any:
    """The AgentService: what agents ask. Heartbeats wait for no thread of other calls, and most idle slots
    are answered from memory."""
    short = threads.short
    return _service(
        agent_pb2_grpc.AgentServiceServicer,
        Register=call(short, handler.register, machine.Registration),
        Heartbeat=call(short, handler.heartbeat, lease.Heartbeat, at_once=handler.heartbeat),
        Lease=call(short, handler.lease, lease.LeaseRequest, at_once=handler.lease_from_memory),
        FinishAttempt=call(threads.publish, handler.finish, lease.FinishedAttempt),
        FailAttempt=call(short, handler.fail, lease.FailedAttempt),
    )


def campaign_service(handler: CampaignHandler, threads: Threads, limits: Limits = DEFAULT_LIMITS) -> Any:
    """The CampaignService: what people ask about campaigns."""
    people, stalled_seconds = threads.people, limits.queries.answer_stalled_seconds

    def acting(action: runs.RunsAction) -> Any:
        def carry_out(request: runs.RunsRequest) -> runs.RunsAnswer:
            return handler.carry_out(action, request)

        return call(people, carry_out, runs.RunsRequest)

    return _service(
        campaign_pb2_grpc.CampaignServiceServicer,
        Submit=call(threads.submit, handler.submit, campaign.Submission),
        ListCampaigns=call(threads.status, handler.list_campaigns, campaign.CampaignsPage),
        GetStatus=call(threads.status, handler.status, campaign.StatusRequest),
        Cancel=call(people, handler.cancel, campaign.NamedCampaign),
        Pause=acting(runs.RunsAction.PAUSE),
        Resume=acting(runs.RunsAction.RESUME),
        CancelRuns=acting(runs.RunsAction.CANCEL),
        Retry=acting(runs.RunsAction.RETRY),
        GetRun=call(people, handler.run, runs.NamedRun),
        GetReport=call_in_parts(
            people, handler.report, campaign.ReportRequest, stalled_seconds=stalled_seconds
        ),
    )


def lab_service(handlers: Handlers, threads: Threads) -> Any:
    """The LabService: agents and the queue, the audit log, people's roles and budgets."""
    people, labs, budgets = handlers.people, handlers.lab, handlers.budgets
    return _service(
        lab_pb2_grpc.LabServiceServicer,
        ReadAudit=call(threads.people, people.read_audit, lab.AuditAsked),
        SetRole=call(threads.people, people.set_role, lab.RoleChange),
        ListBudgets=call(threads.people, budgets.budgets, lab.BudgetsAsked),
        SetBudget=call(threads.people, budgets.set_budget, lab.BudgetChange),
        ListAgents=call(threads.status, labs.agents, lab.LabQuestion),
        GetQueue=call(threads.status, labs.queue, lab.LabQuestion),
    )


def archive_service(handler: ArchiveHandler, threads: Threads, limits: Limits) -> Any:
    """The ArchiveService: delete, export and import campaigns."""
    people, seconds = threads.people, limits.archives.archive_idle_seconds
    streams = ConcurrencyLimit(lambda: limits.archives.archive_streams)
    return _service(
        archive_pb2_grpc.ArchiveServiceServicer,
        Delete=call(people, handler.delete, archive.DeleteRequest),
        Export=call_in_parts(
            people,
            handler.export,
            archive.ExportRequest,
            stalled_seconds=seconds,
            streams=streams,
            what="archives on their way",
        ),
        Import=call_with_chunks(
            people, handler, archive.ArchiveChunk, idle_seconds=seconds, streams=streams, what="archive"
        ),
    )


def bundle_service(handler: BundleHandler, threads: Threads, limits: Limits) -> Any:
    """The BundleService: bundles that people send and agents fetch."""
    people, seconds = threads.people, limits.bundles.bundle_idle_seconds
    streams = ConcurrencyLimit(
        lambda: limits.bundles.bundle_streams, lambda: limits.callers.place_share_percent
    )
    return _service(
        bundle_pb2_grpc.BundleServiceServicer,
        FindMissing=call(people, handler.missing, upload.BundlesNamed),
        SendBundle=call_with_chunks(
            people, handler, upload.BundleChunk, idle_seconds=seconds, streams=streams, what="bundle"
        ),
        FetchBundle=call_in_parts(
            threads.short,
            handler.fetch,
            upload.BundleWanted,
            stalled_seconds=seconds,
            streams=streams,
            what="bundles on their way",
        ),
    )


def records_service(handler: PublishedHandler, threads: Threads, limits: Limits) -> Any:
    """The RecordsService: published files of campaigns, and their launches."""
    downloads = partial(
        call_in_parts,
        threads.people,
        stalled_seconds=limits.queries.answer_stalled_seconds,
        streams=ConcurrencyLimit(
            lambda: limits.queries.download_streams, lambda: limits.callers.place_share_percent
        ),
        what="downloads",
    )
    return _service(
        records_pb2_grpc.RecordsServiceServicer,
        ListRecords=call(threads.status, handler.list, archive.RecordsAsked),
        ReadRecords=downloads(handler.read, archive.RecordWanted),
        StreamLaunches=downloads(handler.launches, archive.LaunchesAsked),
    )


def join_service(enrolment: Enrolment, threads: Threads) -> Any:
    """Joining, and renewal after expiry: all that a caller without a valid certificate can reach."""
    return _service(
        identity_pb2_grpc.EnrolmentServiceServicer,
        Join=call(threads.people, enrolment.join, identity.JoinAsked),
        RenewExpired=call(threads.people, enrolment.renew_expired, identity.RenewalAsked),
    )


def renewal_service(enrolment: Enrolment, threads: Threads) -> Any:
    """Renewal and leaving: for callers with a certificate."""
    return _service(
        identity_pb2_grpc.EnrolmentServiceServicer,
        Renew=call(threads.short, enrolment.renew, identity.RenewalAsked),
        Leave=call(threads.short, enrolment.leave, identity.LeaveAsked),
    )


def identity_service(handlers: Handlers, threads: Threads) -> Any:
    """What admins do with identities."""
    people, enrolment = threads.people, handlers.identified.enrolment
    return _service(
        identity_pb2_grpc.IdentityServiceServicer,
        MakeToken=call(people, enrolment.make_token, identity.TokenAsked),
        Revoke=call(people, enrolment.revoke, identity.NamedForRevocation),
        ListIdentities=call(people, enrolment.identities, identity.IdentitiesAsked),
        MakeWebLink=call(people, handlers.web_link, identity.WebLinkAsked),
    )
