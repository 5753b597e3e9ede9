"""Campaigns from the text of their files."""

from __future__ import annotations

from assay_server.campaign_file.reading import read_campaign_file
from assay_server.campaign_file.spec import Campaign


def load_campaign(text: str | bytes, file_name: str) -> Campaign:
    """The campaign in a file's text, without its lines; raises CampaignError."""
    return read_campaign_file(text, file_name).campaign
