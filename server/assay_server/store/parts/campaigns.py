"""Campaigns in SQL."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from assay_core.records.campaign import CampaignState
from assay_server.store import statements, tables
from assay_server.store.model import Campaign, CampaignOverview
from assay_server.store.parts.known import KnownRows
from assay_server.store.rows import deleting
from assay_server.store.sight import EVERYTHING, Belonging, Sight
from assay_server.store.values.campaigns import campaign_of, campaign_overview_of, campaign_values


class CampaignRows(KnownRows):
    """Campaigns in SQL."""

    def campaign(self, campaign_id: str) -> Campaign | None:
        return self.by_key(tables.campaigns, (campaign_id,), campaign_of)

    def belongs_to(self, campaign_id: str) -> Belonging | None:
        c = tables.campaigns.c
        query = sa.select(c.owner, c.project).where(c.campaign_id == campaign_id)
        return next((Belonging(**row) for row in self.rows(query)), None)

    def campaigns(
        self, *, first: int = 0, most: int | None = None, sight: Sight = EVERYTHING
    ) -> list[CampaignOverview]:
        c = tables.campaigns.c
        columns = [c[item.name] for item in dataclasses.fields(CampaignOverview)]
        query = sa.select(*columns).where(c.ordinal >= first).order_by(c.ordinal).limit(most)
        if not sight.everything:
            query = query.where(sa.or_(c.owner == sight.identity_id, c.project == sight.project))
        return [campaign_overview_of(row) for row in self.rows(query)]

    def campaign_numbers(self, name: str) -> list[int]:
        query = sa.select(tables.campaigns.c.number).where(tables.campaigns.c.name == name)
        deleted = deleting.deleted_number(self.connection, name)
        return [*self.connection.scalars(query), *([deleted] if deleted else [])]

    def is_running(self, campaign_id: str) -> bool:
        found = self.driver.first(statements.course_of_campaign(), {"campaign_id": campaign_id})
        return found is not None and found["state"] == CampaignState.RUNNING and not found["paused"]

    def save_campaign(self, campaign: Campaign) -> None:
        self.save(tables.campaigns, (campaign.campaign_id,), campaign, campaign_values)

    def delete_campaign(self, campaign: Campaign) -> None:
        self.known.clear()
        deleting.delete_campaign(self.connection, campaign.campaign_id, campaign.name, campaign.number)
