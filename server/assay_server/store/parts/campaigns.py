"""Campaigns in SQL."""

from __future__ import annotations

import dataclasses
from typing import Any

import sqlalchemy as sa

from assay_core.records.campaign import CampaignState
from assay_sampling.errors import StorageError
from assay_server.campaign_file.compiled import CompiledCampaign
from assay_server.store import statements, tables
from assay_server.store.column_values import Row, documents_of, failure_of, shallow
from assay_server.store.model import Campaign
from assay_server.store.overviews import CampaignOverview
from assay_server.store.parts.known import KnownRows
from assay_server.store.rows import deleting
from assay_server.store.visibility import EVERYTHING, Belonging, Sight


class CampaignRows(KnownRows):
    """Campaigns in SQL."""

    def campaign(self, campaign_id: str) -> Campaign | None:
        return self.by_key(tables.campaigns, (campaign_id,), _if_there)

    def belongs_to(self, campaign_id: str) -> Belonging | None:
        """Whose a campaign is; None: there is no such campaign."""
        c = tables.campaigns.c
        query = sa.select(c.owner, c.project).where(c.campaign_id == campaign_id, statements.is_there())
        return next((Belonging(**row) for row in self.rows(query)), None)

    def campaigns(
        self, *, first: int = 0, most: int | None = None, sight: Sight = EVERYTHING
    ) -> list[CampaignOverview]:
        """Campaigns from the place ``first`` on, oldest first; at most ``most`` (None: all).

        ``sight``: only campaigns that somebody may know of.
        """
        c = tables.campaigns.c
        columns = [c[item.name] for item in dataclasses.fields(CampaignOverview)]
        query = sa.select(*columns).where(c.ordinal >= first, statements.is_there())
        query = query.order_by(c.ordinal).limit(most)
        if not sight.everything:
            query = query.where(sa.or_(c.owner == sight.identity_id, c.project == sight.project))
        return [campaign_overview_of(row) for row in self.rows(query)]

    def campaign_numbers(self, name: str) -> list[int]:
        """Numbers of campaigns of that name that were given: also the highest of those deleted since."""
        query = sa.select(tables.campaigns.c.number).where(tables.campaigns.c.name == name)
        deleted = deleting.deleted_number(self.connection, name)
        return [*self.connection.scalars(query), *([deleted] if deleted else [])]

    def submitted_as(self, owner: str, submission: str) -> str | None:
        """The campaign of an owner that was submitted under this key, not ""; None: there is none."""
        c = tables.campaigns.c
        # Literal, because the database uses a partial index only if the statement repeats its condition.
        query = sa.select(c.campaign_id).where(
            c.owner == owner, c.submission == submission, sa.text("submission != ''")
        )
        campaign_id: str | None = self.connection.scalar(
            query.where(statements.is_there()).order_by(c.ordinal)
        )
        return campaign_id

    def arrivals(self) -> list[str]:
        """Campaigns that somebody brings in piece by piece, or brought in before a crash, oldest first."""
        c = tables.campaigns.c
        query = sa.select(c.campaign_id).where(sa.text("arriving != ''")).order_by(c.ordinal)
        return list(self.connection.scalars(query))

    def save_campaign(self, campaign: Campaign) -> None:
        self.save(tables.campaigns, (campaign.campaign_id,), campaign, campaign_values)

    def delete_campaign(self, campaign: Campaign) -> None:
        """Delete a campaign whose runs were deleted. Its number is not given again."""
        self.known.clear()
        deleting.delete_campaign(self.connection, campaign.campaign_id, campaign.name, campaign.number)


def _if_there(row: Row) -> Campaign | None:
    """The campaign of a row; None while it is being brought in."""
    return None if row["arriving"] else campaign_of(row)


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
