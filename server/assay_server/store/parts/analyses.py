"""Campaigns that are to be analysed, and the newest try of each, in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from assay_core.records.campaign import CampaignState
from assay_server.store import statements, tables
from assay_server.store.column_values import shallow
from assay_server.store.model import AnalysisTry
from assay_server.store.parts.known import KnownRows


class AnalysisRows(KnownRows):
    """Campaigns that are to be analysed, and the newest try of each, in SQL."""

    def analysis_try(self, campaign_id: str) -> AnalysisTry | None:
        """The newest try at the analysis of a campaign."""
        row = self.driver.first(statements.select_of(tables.analysis_tries), {"campaign_id": campaign_id})
        return None if row is None else AnalysisTry(**row)

    def save_analysis_try(self, newest: AnalysisTry) -> None:
        """Add the newest try of a campaign, or put it in the place of the last."""
        table, values = tables.analysis_tries, shallow(newest)
        if not self.write(sa.update(table).where(table.c.campaign_id == newest.campaign_id).values(values)):
            self.write(sa.insert(table), [values])

    def campaigns_to_analyse(self) -> list[str]:
        """Campaigns whose runs have ended and that have no report yet, oldest first."""
        c = tables.campaigns.c
        query = sa.select(c.campaign_id).where(c.state == str(CampaignState.ANALYSING)).order_by(c.ordinal)
        return [row["campaign_id"] for row in self.rows(query)]
