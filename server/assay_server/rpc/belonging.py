"""Whether a caller may make a call about a campaign: one answer for gRPC and for the live page."""

from __future__ import annotations

from assay_server.access.caller import Caller
from assay_server.access.table import Rule, require_own
from assay_server.access.visibility import sight_of
from assay_server.campaigns.errors import unknown_campaign, unknown_run
from assay_server.store.sql import MetadataStore


def require_belonging(
    metadata: MetadataStore, rule: Rule, caller: Caller, campaign_id: str, run_id: str = ""
) -> None:
    """Raises UnknownThingError for a campaign (or run) that the caller may not know of, and
    NotPermittedError for one that is not a submitter's own, where the rule asks for that. May block."""
    with metadata.snapshot() as store:
        campaign_id = (store.campaign_of(run_id) or "") if run_id else campaign_id
        whose = store.belongs_to(campaign_id)
    sight = sight_of(caller)
    # What does not exist is refused here, too: a handler may first find another fault of the request.
    if not sight.everything and (whose is None or not sight.sees(whose)):
        raise unknown_run(run_id) if rule.seen_run else unknown_campaign(campaign_id)
    if whose is not None:
        require_own(rule, caller, campaign_id, whose.owner)
