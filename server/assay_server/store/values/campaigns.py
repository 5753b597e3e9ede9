"""Campaigns and their rows."""

from __future__ import annotations

from typing import Any

from assay_core.records.campaign import CampaignState
from assay_sampling.errors import StorageError
from assay_server.campaign_file.compiled import CompiledCampaign
from assay_server.store.model import Campaign
from assay_server.store.values.fields import Row, documents_of, failure_of, shallow
from assay_server.store.values.overviews import CampaignOverview


def campaign_of(row: Row) -> Campaign:
    """The campaign of a row; raises StorageError if its compiled form cannot be read."""
    values = {name: row[name] for name in row if name not in ("ordinal", "arriving")}
    try:
        values["compiled"] = CompiledCampaign.from_document(row["compiled"])
    except ValueError as error:
        cause = "its compiled form is damaged, or of a newer release"
        raise StorageError(f"campaign {row['campaign_id']}", cause, "restore a backup") from error
    values["state"] = CampaignState(row["state"])
    values["failure"] = failure_of(row["failure"])
    return Campaign(**values)


def campaign_overview_of(row: Row) -> CampaignOverview:
    """The overview of a row."""
    values = {**row, "state": CampaignState(row["state"]), "failure": failure_of(row["failure"])}
    return CampaignOverview(**values)


def campaign_values(campaign: Campaign) -> dict[str, Any]:
    """The row of a campaign, without its place among campaigns."""
    documents = {"compiled": campaign.compiled.to_document(), **documents_of(campaign, "failure")}
    return {**shallow(campaign), "state": str(campaign.state), **documents}
