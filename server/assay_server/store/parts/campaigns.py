"""Campaigns, and the newest try at the analysis of each, in SQL."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import sqlalchemy as sa

from assay_core.records.campaign import CampaignState
from assay_core.records.failure import Failure
from assay_server.campaign_file.compiled import CompiledCampaign
from assay_server.store import tables
from assay_server.store.column_values import Row, parsed, shallow
from assay_server.store.model import EVERYTHING, AnalysisTry, Belonging, Campaign, Sight
from assay_server.store.parts.record_cache import CachedRecords
from assay_server.store.statements import IS_THERE

_C = tables.campaigns.c
# The highest number of deleted campaigns of a name is kept among the tokens, so that it is not given again.
_NUMBER = "campaign:"


@dataclass(frozen=True)
class CampaignOverview:
    """A campaign in a list, without its file, which may be long; ``ordinal``: its place among all."""

    ordinal: int
    campaign_id: str
    name: str
    number: int
    synthetic: bool
    state: CampaignState
    failure: Failure | None
    owner: str = ""
    owner_name: str = ""
    project: str = ""
    paused: bool = False


class CampaignRows(CachedRecords):
    """Campaigns, and the newest try at the analysis of each, in SQL."""

    def campaign(self, campaign_id: str) -> Campaign | None:
        return self.by_key(tables.campaigns, (campaign_id,), _if_there)

    def belongs_to(self, campaign_id: str) -> Belonging | None:
        """Whose a campaign is; None: there is no such campaign."""
        query = sa.select(_C.owner, _C.project).where(_C.campaign_id == campaign_id, IS_THERE)
        return next((Belonging(**row) for row in self.rows(query)), None)

    def campaigns(
        self, *, first: int = 0, most: int | None = None, sight: Sight = EVERYTHING
    ) -> list[CampaignOverview]:
        """Campaigns from the place ``first`` on, oldest first; at most ``most`` (None: all).

        ``sight``: only campaigns that somebody may know of.
        """
        columns = [_C[item.name] for item in dataclasses.fields(CampaignOverview)]
        query = sa.select(*columns).where(_C.ordinal >= first, IS_THERE)
        query = query.order_by(_C.ordinal).limit(most)
        if not sight.everything:
            query = query.where(sa.or_(_C.owner == sight.identity_id, _C.project == sight.project))
        return [CampaignOverview(**row) for row in self.rows(query)]

    def campaign_numbers(self, name: str) -> list[int]:
        """Numbers of campaigns of that name that were given: also the highest of those deleted since."""
        query = sa.select(_C.number).where(_C.name == name)
        deleted = self.number(_NUMBER + name)
        return [*self.connection.scalars(query), *([deleted] if deleted else [])]

    def submitted_as(self, owner: str, submission: str) -> str | None:
        """The campaign of an owner that was submitted under this key, not ""; None: there is none."""
        # Literal, because the database uses a partial index only if the statement repeats its condition.
        query = sa.select(_C.campaign_id).where(
            _C.owner == owner, _C.submission == submission, sa.text("submission != ''")
        )
        campaign_id: str | None = self.connection.scalar(query.where(IS_THERE).order_by(_C.ordinal))
        return campaign_id

    def arrivals(self) -> list[str]:
        """Campaigns that somebody brings in piece by piece, or brought in before a crash, oldest first."""
        query = sa.select(_C.campaign_id).where(sa.text("arriving != ''")).order_by(_C.ordinal)
        return list(self.connection.scalars(query))

    def save_campaign(self, campaign: Campaign) -> None:
        self.save(tables.campaigns, (campaign.campaign_id,), campaign, shallow)

    def delete_campaign(self, campaign: Campaign) -> None:
        """Delete a campaign whose runs were deleted. Its number is not given again."""
        self.write(sa.delete(tables.campaigns).where(_C.campaign_id == campaign.campaign_id))
        name = _NUMBER + campaign.name
        self.keep_number(name, max(self.number(name) or 0, campaign.number))

    def analysis_try(self, campaign_id: str) -> AnalysisTry | None:
        """The newest try at the analysis of a campaign."""
        key = (campaign_id,)
        return self.by_key(tables.analysis_tries, key, lambda row: AnalysisTry(**row))

    def save_analysis_try(self, newest: AnalysisTry) -> None:
        """Add the newest try of a campaign, or put it in the place of the last."""
        self.put(tables.analysis_tries, shallow(newest))

    def campaigns_to_analyse(self) -> list[str]:
        """Campaigns whose runs have ended and that have no report yet, oldest first."""
        query = sa.select(_C.campaign_id).where(_C.state == CampaignState.ANALYSING)
        return list(self.connection.scalars(query.order_by(_C.ordinal)))


def _if_there(row: Row) -> Campaign | None:
    """The campaign of a row; None while it is being brought in."""
    return None if row["arriving"] else campaign_of(row)


def campaign_of(row: Row) -> Campaign:
    """The campaign of a row; raises StorageError if its compiled form cannot be read."""
    values = {name: row[name] for name in row if name not in ("ordinal", "arriving")}
    subject = f"campaign {row['campaign_id']}"
    values["compiled"] = parsed(CompiledCampaign.from_document, row["compiled"], subject, "its compiled form")
    return Campaign(**values)
