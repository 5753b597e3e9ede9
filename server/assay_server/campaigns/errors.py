"""Errors of requests about campaigns. On the wire, and for clients, each is a CampaignError."""

from __future__ import annotations

from assay_sampling.errors import CampaignError
from assay_server.store.model import Campaign


class UnknownThingError(CampaignError):
    """The server knows no campaign or run of that name."""


class NotYetError(CampaignError):
    """The requested report does not exist yet, or never will."""


def known_campaign(campaign: Campaign | None, campaign_id: str) -> Campaign:
    """The campaign; raises UnknownThingError if the server knows no campaign of that name."""
    if campaign is None:
        raise unknown_campaign(campaign_id)
    return campaign


def unknown_campaign(campaign_id: str) -> UnknownThingError:
    """Also for a campaign that the caller may not know of: its name must not leak."""
    return UnknownThingError(
        f"campaign {campaign_id!r}", "the server knows no such campaign", "see the list: assay lab status"
    )


def unknown_run(run_id: str) -> UnknownThingError:
    """Also for a run of a campaign that the caller may not know of."""
    return UnknownThingError(
        f"run {run_id!r}",
        "the server knows no such run",
        "see the runs of a campaign: assay lab status CAMPAIGN",
    )
