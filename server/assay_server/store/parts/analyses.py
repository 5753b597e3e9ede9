"""Analyses as leased rows, in SQL."""

from __future__ import annotations

import sqlalchemy as sa

from assay_core.records.campaign import CampaignState
from assay_server.store import statements, tables
from assay_server.store.model import Analysis, AnalysisState
from assay_server.store.parts.known import KnownRows
from assay_server.store.values.analyses import analysis_of, analysis_values


class AnalysisRows(KnownRows):
    """Analyses as leased rows, in SQL."""

    def analysis(self, campaign_id: str, workload: str = "") -> Analysis | None:
        key = {"campaign_id": campaign_id, "workload": workload}
        row = self.driver.first(statements.select_of(tables.analyses), key)
        return None if row is None else analysis_of(row)

    def due_analyses(self, now_ms: int) -> list[str]:
        """Campaigns that are to be analysed and whose analysis nobody holds, oldest first.

        Left out are those whose next try is not due yet.
        """
        a, c = tables.analyses.c, tables.campaigns.c
        of_whole = sa.and_(a.campaign_id == c.campaign_id, a.workload == "")
        leased = sa.and_(a.state == str(AnalysisState.LEASED), a.lease_ends_at_ms > now_ms)
        rests = sa.and_(a.state != str(AnalysisState.LEASED), a.not_before_ms > now_ms)
        query = (
            sa.select(c.campaign_id)
            .select_from(tables.campaigns.outerjoin(tables.analyses, of_whole))
            .where(c.state == str(CampaignState.ANALYSING))
            .where(sa.or_(a.campaign_id.is_(None), sa.not_(sa.or_(leased, rests))))
            .order_by(c.ordinal)
        )
        return [row["campaign_id"] for row in self.rows(query)]

    def save_analysis(self, analysis: Analysis, after_token: int) -> bool:
        """Add or replace an analysis, if its token still is this one (0: there is none yet); whether it was.

        So of two that want the same analysis, one gets it.
        """
        values = analysis_values(analysis)
        a = tables.analyses.c
        at = (a.campaign_id == analysis.campaign_id, a.workload == analysis.workload)
        if self.write(sa.update(tables.analyses).where(*at, a.token == after_token).values(values)):
            return True
        if after_token or self.analysis(analysis.campaign_id, analysis.workload) is not None:
            return False
        self.write(sa.insert(tables.analyses), [values])
        return True

    def free_analyses(self) -> None:
        """End the leases of all analyses: whoever had them is gone."""
        leased = tables.analyses.c.state == str(AnalysisState.LEASED)
        self.write(sa.update(tables.analyses).where(leased).values(lease_ends_at_ms=0))
