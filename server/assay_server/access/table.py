"""The one table of calls and roles. What it does not name is denied, to everybody.

A test enumerates the services' descriptors: a new call without a row here fails it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_core.identity.roles import Role
from assay_sampling.errors import NotPermittedError
from assay_server.access.caller import Caller, sight_of

_AGENTS = frozenset({Role.AGENT})
_ADMINS = frozenset({Role.ADMIN})
_OPERATORS = _ADMINS | {Role.OPERATOR}
_SUBMITTERS = _OPERATORS | {Role.SUBMITTER}
_READERS = _SUBMITTERS | {Role.VIEWER}
_EVERYBODY = _READERS | _AGENTS


@dataclass(frozen=True)
class Rule:
    """Who may make a call.

    The owner of the server's socket may make every call that has a rule: the machine lets nobody else
    in there, and on one box a person plays all roles.

    Args:
        roles: the roles that may.
        open: anybody may, without an identity; only for the listener on which identities are issued.
        sender: the field with the agent that a request is from, which must be the caller if it is an agent.
        audited: each call leaves an entry in the audit log. Only reads, and what attempts record themselves,
            are not.
        own_campaign: the field with a campaign that must be the caller's own if it is a submitter.
        seen_campaign, seen_run: the field with a campaign, or a run of one, that the caller must be allowed
            to know of (:mod:`assay_server.access.caller`), else it does not exist for the caller.
        lists_campaigns: the answer tells of many campaigns; its handler leaves out those that the caller
            may not know of.
    """

    roles: frozenset[Role]
    open: bool = False
    sender: str = ""
    own_campaign: str = ""
    seen_campaign: str = ""
    seen_run: str = ""
    lists_campaigns: bool = False
    audited: bool = True

    @property
    def names_campaign(self) -> bool:
        """Whether its requests name a campaign, or a run, whose belonging is checked."""
        return bool(self.own_campaign or self.seen_campaign or self.seen_run)

    def allows(self, caller: Caller) -> bool:
        return caller.is_owner or caller.role in self.roles

    def looks_at_campaign(self, caller: Caller) -> bool:
        """Whether it depends on whose campaign it is; if not, nobody need look into the store."""
        return self.names_campaign and bool(self.own_campaign or not sight_of(caller).everything)


_NOT_NAMED = Rule(frozenset())

RULES: Mapping[str, Rule] = {
    "assay.v1.AgentService/Register": Rule(_AGENTS, sender="agent_id"),
    "assay.v1.AgentService/Heartbeat": Rule(_AGENTS, sender="agent_id", audited=False),
    "assay.v1.AgentService/Lease": Rule(_AGENTS, sender="agent_id", audited=False),
    "assay.v1.AgentService/FinishAttempt": Rule(_AGENTS, sender="agent_id", audited=False),
    "assay.v1.AgentService/FailAttempt": Rule(_AGENTS, sender="agent_id", audited=False),
    "assay.v1.IngestService/Upload": Rule(_AGENTS, sender="header.agent_id", audited=False),
    "assay.v1.CampaignService/Submit": Rule(_SUBMITTERS),
    "assay.v1.CampaignService/ListCampaigns": Rule(_READERS, lists_campaigns=True, audited=False),
    "assay.v1.CampaignService/GetStatus": Rule(_READERS, seen_campaign="campaign_id", audited=False),
    "assay.v1.CampaignService/Cancel": Rule(_SUBMITTERS, own_campaign="campaign_id"),
    "assay.v1.CampaignService/Pause": Rule(_SUBMITTERS, own_campaign="campaign_id"),
    "assay.v1.CampaignService/Resume": Rule(_SUBMITTERS, own_campaign="campaign_id"),
    "assay.v1.CampaignService/CancelRuns": Rule(_SUBMITTERS, own_campaign="campaign_id"),
    "assay.v1.CampaignService/Retry": Rule(_SUBMITTERS, own_campaign="campaign_id"),
    "assay.v1.EnrolmentService/Join": Rule(frozenset(), open=True),
    "assay.v1.EnrolmentService/RenewExpired": Rule(frozenset(), open=True),
    "assay.v1.EnrolmentService/Renew": Rule(_EVERYBODY),
    "assay.v1.EnrolmentService/Leave": Rule(_EVERYBODY),
    "assay.v1.IdentityService/MakeToken": Rule(_ADMINS),
    "assay.v1.IdentityService/Revoke": Rule(_ADMINS),
    "assay.v1.IdentityService/ListIdentities": Rule(_ADMINS, audited=False),
    "assay.v1.IdentityService/MakeWebLink": Rule(_READERS),
    "assay.v1.CampaignService/GetRun": Rule(_READERS, seen_run="run_id", audited=False),
    "assay.v1.CampaignService/GetReport": Rule(_READERS, seen_campaign="campaign_id", audited=False),
    "assay.v1.BundleService/FindMissing": Rule(_SUBMITTERS, audited=False),
    "assay.v1.BundleService/SendBundle": Rule(_SUBMITTERS),
    "assay.v1.BundleService/FetchBundle": Rule(_AGENTS, sender="agent_id", audited=False),
    "assay.v1.RecordsService/ListRecords": Rule(_READERS, seen_campaign="campaign_id", audited=False),
    "assay.v1.RecordsService/ReadRecords": Rule(_READERS, seen_campaign="campaign_id", audited=False),
    "assay.v1.RecordsService/StreamLaunches": Rule(_READERS, seen_campaign="campaign_id", audited=False),
    "assay.v1.LabService/ListAgents": Rule(_READERS, lists_campaigns=True, audited=False),
    "assay.v1.LabService/GetQueue": Rule(_READERS, lists_campaigns=True, audited=False),
    "assay.v1.LabService/ReadAudit": Rule(_ADMINS, audited=False),
    "assay.v1.LabService/SetRole": Rule(_ADMINS),
    "assay.v1.LabService/ListBudgets": Rule(_READERS, audited=False),
    "assay.v1.LabService/SetBudget": Rule(_OPERATORS),
    "assay.v1.ArchiveService/Delete": Rule(_OPERATORS),
    "assay.v1.ArchiveService/Export": Rule(_READERS, seen_campaign="campaign_id", audited=False),
    "assay.v1.ArchiveService/Import": Rule(_OPERATORS),
    "grpc.health.v1.Health/Check": Rule(_EVERYBODY, audited=False),
    "grpc.health.v1.Health/List": Rule(_EVERYBODY, audited=False),
    "grpc.health.v1.Health/Watch": Rule(_EVERYBODY, audited=False),
}


def services() -> frozenset[str]:
    """The full names of all services, as gRPC's health service is asked for them."""
    return frozenset(call.partition("/")[0] for call in RULES)


def rule_of(method: str) -> Rule:
    """The rule for a call, named as gRPC names it (``/package.Service/Method``).

    What the table does not name is denied, and audited.
    """
    return RULES.get(method.removeprefix("/"), _NOT_NAMED)


def require_allowed(rule: Rule, caller: Caller, method: str) -> None:
    """Raises NotPermittedError unless the caller may make this call."""
    call = method.rpartition("/")[2]
    if rule is _NOT_NAMED:
        raise NotPermittedError(
            f"call {call}", "the server's table of calls and roles does not name it", "report this as a bug"
        )
    if not rule.allows(caller):
        able = " or ".join(str(role) for role in Role if role in rule.roles)
        raise NotPermittedError(
            f"{caller.name or caller.identity_id}",
            f"the role {caller.role} may not call {call}, only {able}",
            "ask an admin of the server for another role",
        )


def require_own_sender(rule: Rule, caller: Caller, message: Any) -> None:
    """Raises NotPermittedError if an agent speaks for another one."""
    if not rule.sender or caller.role is not Role.AGENT:
        return
    sender = _field(message, rule.sender)
    if sender is not None and sender != caller.identity_id:
        raise NotPermittedError(
            f"agent {caller.name or caller.identity_id}",
            f"it spoke for agent {sender[:100]!r}, but its certificate is of agent {caller.identity_id}",
            "have the agent join with the state folder that it runs on",
        )


def campaign_and_run(rule: Rule, message: Any) -> tuple[str, str]:
    """The campaign and the run that a request is about, as far as its rule asks for them; "" else."""
    campaign_id = _field(message, rule.own_campaign or rule.seen_campaign)
    return campaign_id or "", _field(message, rule.seen_run) or ""


def _field(message: Any, path: str) -> str | None:
    """The value of a field, by its path; None without a path, or if a message on the way is not set."""
    if not path:
        return None
    *outer, last = path.split(".")
    for name in outer:
        if not message.HasField(name):
            return None
        message = getattr(message, name)
    return str(getattr(message, last))
