"""The services whose calls a handler answers: which threads answer each call, and the record that it takes.

Calls that stream to the server, and downloads, have servicers of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from assay_core.records import campaign, identity, lab, lease, machine, runs
from assay_protos import agent_pb2_grpc, campaign_pb2_grpc, identity_pb2_grpc, lab_pb2_grpc
from assay_server.access.people import PeopleHandler
from assay_server.campaigns.budgets import BudgetHandler
from assay_server.identity.enrolment import Enrolment
from assay_server.identity.identified import Identified
from assay_server.limits import DEFAULT_LIMITS, Limits
from assay_server.rpc.agent_handler import AgentHandler
from assay_server.rpc.campaign_handler import CampaignHandler
from assay_server.rpc.lab.handler import LabHandler
from assay_server.rpc.threads import Context, Threads, call, send_pieces


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
    people = threads.people

    async def report(request: Any, context: Context) -> AsyncIterator[Any]:
        read, most = campaign.ReportRequest.from_proto, limits.queries.answer_stalled_seconds
        await send_pieces(context, people, handler.report, read, request, stalled_seconds=most)
        return
        yield  # a call that answers in parts

    return _service(
        campaign_pb2_grpc.CampaignServiceServicer,
        Submit=call(threads.submit, handler.submit, campaign.Submission),
        ListCampaigns=call(threads.status, handler.list_campaigns, campaign.CampaignsPage),
        GetStatus=call(threads.status, handler.status, campaign.StatusRequest),
        Cancel=call(people, handler.cancel, campaign.NamedCampaign),
        Pause=call(people, handler.pause, runs.RunsRequest),
        Resume=call(people, handler.resume, runs.RunsRequest),
        CancelRuns=call(people, handler.cancel_runs, runs.RunsRequest),
        Retry=call(people, handler.retry, runs.RunsRequest),
        GetRun=call(people, handler.run, runs.NamedRun),
        GetReport=report,
    )


def lab_service(people: PeopleHandler, labs: LabHandler, budgets: BudgetHandler, threads: Threads) -> Any:
    """The LabService: agents and the queue, the audit log, people's roles and budgets."""
    return _service(
        lab_pb2_grpc.LabServiceServicer,
        ReadAudit=call(threads.people, people.read_audit, lab.AuditAsked),
        SetRole=call(threads.people, people.set_role, lab.RoleChange),
        ListBudgets=call(threads.people, budgets.budgets, lab.BudgetsAsked),
        SetBudget=call(threads.people, budgets.set_budget, lab.BudgetChange),
        ListAgents=call(threads.status, labs.agents, lab.LabQuestion),
        GetQueue=call(threads.status, labs.queue, lab.LabQuestion),
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


def identity_service(identified: Identified, threads: Threads) -> Any:
    """What admins do with identities."""
    people, enrolment = threads.people, identified.enrolment
    return _service(
        identity_pb2_grpc.IdentityServiceServicer,
        MakeToken=call(people, enrolment.make_token, identity.TokenAsked),
        Revoke=call(people, enrolment.revoke, identity.NamedForRevocation),
        ListIdentities=call(people, enrolment.identities, identity.IdentitiesAsked),
        MakeWebLink=call(people, identified.web_link, identity.WebLinkAsked),
    )
