"""The calls of a server: which threads answer each by which handler, and the record that it takes.

Uploads have a module of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import grpc

from assay_core.records import archive, campaign, identity, lab, lease, machine, runs, upload
from assay_core.records.identity import WebLink, WebLinkAsked
from assay_sampling.errors import RefusedError
from assay_server.campaigns.ingest.segments import Ingest
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.identity.identified import Identified
from assay_server.limits import Limits
from assay_server.rpc.handlers.agents import AgentHandler
from assay_server.rpc.handlers.archives import ArchiveHandler
from assay_server.rpc.handlers.bundles import BundleHandler
from assay_server.rpc.handlers.campaigns import CampaignHandler
from assay_server.rpc.handlers.lab import LabHandler, budgets, read_audit, set_budget, set_role
from assay_server.rpc.handlers.published import PublishedHandler
from assay_server.rpc.interceptors import Access
from assay_server.rpc.quotas import ConcurrencyLimit
from assay_server.rpc.threads import Method, Threads, call, call_in_parts, call_with_chunks
from assay_server.rpc.uploads import uploads


def no_page(_request: WebLinkAsked) -> WebLink:
    """A server without a live page; raises RefusedError."""
    raise RefusedError("this server", "it serves no live page", "start it with: assay-server --web HOST:PORT")


@dataclass(frozen=True)
class Handlers:
    """What answers the calls of a server: plain functions of a record, which know no sockets.

    ``web_link`` makes a caller's link to the live page.
    """

    access: Access
    agents: AgentHandler
    archives: ArchiveHandler
    bundles: BundleHandler
    campaigns: CampaignHandler
    identified: Identified
    ingest: Ingest
    coordinator: Coordinator
    lab: LabHandler
    published: PublishedHandler
    web_link: Callable[[WebLinkAsked], WebLink] = no_page


Services = Mapping[str, Mapping[str, Method]]  # calls by name, by the name of their service


def add_services(server: grpc.aio.Server, services: Services) -> None:
    """Have a server answer these calls; the others of their services answer UNIMPLEMENTED."""
    handlers = (
        grpc.method_handlers_generic_handler(f"assay.v1.{service}", dict(calls))
        for service, calls in services.items()
    )
    server.add_generic_rpc_handlers(tuple(handlers))


def services_of(handlers: Handlers, threads: Threads, limits: Limits) -> Services:
    """All calls; of the EnrolmentService, the access table says which are answered on which listener."""
    agents, enrolment, labs = handlers.agents, handlers.identified.enrolment, handlers.lab
    access = handlers.access
    short, people, status = threads.short, threads.people, threads.status
    return {
        # Heartbeats wait for no thread of other calls, and most idle slots are answered from memory.
        "AgentService": {
            "Register": call(short, agents.register, machine.Registration),
            "Heartbeat": call(short, agents.heartbeat, lease.Heartbeat, at_once=agents.heartbeat),
            "Lease": call(short, agents.lease, lease.LeaseRequest, at_once=agents.lease_from_memory),
            "FinishAttempt": call(threads.publish, agents.finish, lease.FinishedAttempt),
            "FailAttempt": call(short, agents.fail, lease.FailedAttempt),
        },
        "IngestService": {"Upload": uploads(handlers.ingest, threads.ingest, limits)},
        "CampaignService": _campaign_calls(handlers.campaigns, threads, limits),
        "LabService": {
            "ReadAudit": call(people, partial(read_audit, access.metadata), lab.AuditAsked),
            "SetRole": call(people, partial(set_role, access.metadata, access.directory), lab.RoleChange),
            "ListBudgets": call(people, partial(budgets, handlers.coordinator), lab.BudgetsAsked),
            "SetBudget": call(people, partial(set_budget, handlers.coordinator), lab.BudgetChange),
            "ListAgents": call(status, labs.agents, lab.LabQuestion),
            "GetQueue": call(status, labs.queue, lab.LabQuestion),
        },
        "ArchiveService": _archive_calls(handlers.archives, people, limits),
        "BundleService": _bundle_calls(handlers.bundles, threads, limits),
        "RecordsService": _records_calls(handlers.published, threads, limits),
        "EnrolmentService": {
            "Join": call(people, enrolment.join, identity.JoinAsked),
            "RenewExpired": call(people, enrolment.renew_expired, identity.RenewalAsked),
            "Renew": call(short, enrolment.renew, identity.RenewalAsked),
            "Leave": call(short, enrolment.leave, identity.LeaveAsked),
        },
        "IdentityService": {
            "MakeToken": call(people, enrolment.make_token, identity.TokenAsked),
            "Revoke": call(people, enrolment.revoke, identity.NamedForRevocation),
            "ListIdentities": call(people, enrolment.identities, identity.IdentitiesAsked),
            "MakeWebLink": call(people, handlers.web_link, identity.WebLinkAsked),
        },
    }


def _campaign_calls(handler: CampaignHandler, threads: Threads, limits: Limits) -> Mapping[str, Method]:
    people, status = threads.people, threads.status
    seconds = limits.queries.answer_stalled_seconds
    carry_out = handler.carry_out
    return {
        "Pause": call(people, partial(carry_out, runs.RunsAction.PAUSE), runs.RunsRequest),
        "Resume": call(people, partial(carry_out, runs.RunsAction.RESUME), runs.RunsRequest),
        "CancelRuns": call(people, partial(carry_out, runs.RunsAction.CANCEL), runs.RunsRequest),
        "Retry": call(people, partial(carry_out, runs.RunsAction.RETRY), runs.RunsRequest),
        "Submit": call(threads.submit, handler.submit, campaign.Submission),
        "ListCampaigns": call(status, handler.list_campaigns, campaign.CampaignsPage),
        "GetStatus": call(status, handler.status, campaign.StatusRequest),
        "Cancel": call(people, handler.cancel, campaign.NamedCampaign),
        "GetRun": call(people, handler.run, runs.NamedRun),
        "GetReport": call_in_parts(people, handler.report, campaign.ReportRequest, stalled_seconds=seconds),
    }


def _archive_calls(handler: ArchiveHandler, people: Executor, limits: Limits) -> Mapping[str, Method]:
    seconds = limits.archives.archive_idle_seconds
    streams = ConcurrencyLimit("archives on their way", lambda: limits.archives.archive_streams)
    return {
        "Delete": call(people, handler.delete, archive.DeleteRequest),
        "Export": call_in_parts(
            people, handler.export, archive.ExportRequest, stalled_seconds=seconds, streams=streams
        ),
        "Import": call_with_chunks(
            people,
            handler.receive,
            archive.ArchiveChunk,
            idle_seconds=seconds,
            streams=streams,
            what="archive",
        ),
    }


def _bundle_calls(handler: BundleHandler, threads: Threads, limits: Limits) -> Mapping[str, Method]:
    seconds = limits.bundles.bundle_idle_seconds
    streams = ConcurrencyLimit(
        "bundles on their way",
        lambda: limits.bundles.bundle_streams,
        lambda: limits.callers.place_share_percent,
    )
    return {
        "FindMissing": call(threads.people, handler.missing, upload.BundlesNamed),
        "SendBundle": call_with_chunks(
            threads.people,
            handler.receive,
            upload.BundleChunk,
            idle_seconds=seconds,
            streams=streams,
            what="bundle",
        ),
        "FetchBundle": call_in_parts(
            threads.short, handler.fetch, upload.BundleWanted, stalled_seconds=seconds, streams=streams
        ),
    }


def _records_calls(handler: PublishedHandler, threads: Threads, limits: Limits) -> Mapping[str, Method]:
    downloads = partial(
        call_in_parts,
        threads.people,
        stalled_seconds=limits.queries.answer_stalled_seconds,
        streams=ConcurrencyLimit(
            "downloads",
            lambda: limits.queries.download_streams,
            lambda: limits.callers.place_share_percent,
        ),
    )
    return {
        "ListRecords": call(threads.status, handler.list, archive.RecordsAsked),
        "ReadRecords": downloads(handler.read, archive.RecordWanted),
        "StreamLaunches": downloads(handler.launches, archive.LaunchesAsked),
    }
