"""Errors of requests about campaigns. On the wire, and so for clients, each is a CampaignError."""

from __future__ import annotations

from assay_sampling.errors import CampaignError
from assay_server.store.model import Campaign


class UnknownThingError(CampaignError):
    """The server knows nothing of that name."""


class NotYetError(CampaignError):
    """What was asked for is not there yet, or never will be."""


def known_campaign(campaign: Campaign | None, campaign_id: str) -> Campaign:
    """The campaign; raises UnknownThingError where the server knows none of that name."""
    if campaign is None:
        raise UnknownThingError(
            f"campaign {campaign_id!r}", "the server knows no such campaign", "see the list: assay status"
        )
    return campaign
