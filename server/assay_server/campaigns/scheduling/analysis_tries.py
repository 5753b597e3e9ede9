"""Tries at analyses: each has a token, so that only the newest one of a campaign can end its analysis."""

from __future__ import annotations

from dataclasses import replace

from assay_core.records.campaign import CampaignState
from assay_core.records.failure import Failure
from assay_server.campaigns.scheduling.transitions import Transitions
from assay_server.store.model import AnalysisTry


class AnalysisTries(Transitions):
    """Decisions about who analyses a campaign."""

    def begin_analysis(self, campaign_id: str) -> AnalysisTry | None:
        """Begin a try at the analysis of a campaign; None: the campaign is not to be analysed."""
        campaign = self.store.campaign(campaign_id)
        if campaign is None or campaign.state is not CampaignState.ANALYSING:
            return None
        last = self.store.analysis_try(campaign_id) or AnalysisTry(campaign_id)
        before = last.attempts if last.retried == campaign.retried else 0
        begun = AnalysisTry(campaign_id, last.token + 1, before + 1, campaign.retried)
        self.store.save_analysis_try(begun)
        return begun

    def is_newest(self, begun: AnalysisTry) -> bool:
        """Whether no later try has begun, and this one was not left."""
        last = self.store.analysis_try(begun.campaign_id)
        return last is not None and last.token == begun.token

    def leave_analysis(self, begun: AnalysisTry) -> bool:
        """End a try in order, so that it does not count; False: a later one has begun, nothing changes."""
        if not self.is_newest(begun):
            return False
        self.store.save_analysis_try(replace(begun, token=begun.token + 1, attempts=0))
        return True

    def tell_analysis(self, campaign_id: str, why: Failure | None) -> None:
        """Say in the status of a campaign why its analysis waits; None: it goes on."""
        campaign = self.store.campaign(campaign_id)
        if campaign is None or campaign.state is not CampaignState.ANALYSING:
            return
        if why is None and campaign.failure is None:
            return
        self.store.save_campaign(replace(campaign, failure=why))
        self.effects.campaigns.add(campaign.campaign_id)
