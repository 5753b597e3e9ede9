"""Leases of analyses: which server makes a campaign's report, and until when.

A lease has a token that grows, so of two servers that believe to have the same analysis only the one with the
newer lease can end it: a process that stood still and comes back does no harm. Nobody asks whether a holder
lives; its lease ends if it is not renewed.
"""

from __future__ import annotations

from dataclasses import replace

from assay_core.records.campaign import CampaignState
from assay_core.records.failure import Failure
from assay_server.campaigns.scheduling.transitions import Transitions
from assay_server.store.model import Analysis, AnalysisState


class AnalysisLeases(Transitions):
    """Decisions about who analyses a campaign."""

    def lease_analysis(self, campaign_id: str, holder: str, lease_ms: int) -> Analysis | None:
        """Give the analysis of a campaign to ``holder``, who may have had it before.

        None: another one has it, it is not due yet, or the campaign is not to be analysed.
        """
        campaign = self.store.campaign(campaign_id)
        if campaign is None or campaign.state is not CampaignState.ANALYSING:
            return None
        known = self.store.analysis(campaign_id) or Analysis(campaign_id, retried=campaign.retried)
        if known.holder != holder and not self._is_due(known):
            return None
        before = known.attempts if known.retried == campaign.retried else 0
        lease = Analysis(
            campaign_id,
            state=AnalysisState.LEASED,
            holder=holder,
            token=known.token + 1,
            lease_ends_at_ms=self.now_ms + lease_ms,
            attempts=before + 1,
            retried=campaign.retried,
            failure=known.failure,
        )
        return lease if self.store.save_analysis(lease, known.token) else None

    def _is_due(self, analysis: Analysis) -> bool:
        leased = analysis.state is AnalysisState.LEASED
        return (analysis.lease_ends_at_ms if leased else analysis.not_before_ms) <= self.now_ms

    def holds_analysis(self, lease: Analysis) -> bool:
        """Whether this lease is the newest one, and was not ended."""
        known = self.store.analysis(lease.campaign_id)
        return known is not None and (known.token, known.state) == (lease.token, AnalysisState.LEASED)

    def renew_analysis(self, lease: Analysis, lease_ms: int) -> bool:
        """Let a lease end later, also one that has ended and that nobody has taken; False: it was taken."""
        renewed = replace(lease, lease_ends_at_ms=self.now_ms + lease_ms)
        return self.holds_analysis(lease) and self.store.save_analysis(renewed, lease.token)

    def leave_analysis(
        self,
        lease: Analysis,
        state: AnalysisState = AnalysisState.WAITING,
        *,
        why: Failure | None = None,
        wait_ms: int = 0,
    ) -> bool:
        """End a lease in order, which does not count as a try; False: it was taken, and nothing changes."""
        left = replace(
            lease,
            state=state,
            lease_ends_at_ms=0,
            not_before_ms=self.now_ms + wait_ms if wait_ms else 0,
            attempts=0,
            failure=why,
        )
        return self.holds_analysis(lease) and self.store.save_analysis(left, lease.token)

    def tell_analysis(self, lease: Analysis, why: Failure | None) -> None:
        """Say in the status of a campaign why its analysis waits; None: it goes on."""
        campaign = self.store.campaign(lease.campaign_id)
        if campaign is None or campaign.state is not CampaignState.ANALYSING:
            return
        self.store.save_campaign(replace(campaign, failure=why))
        self.effects.campaigns.add(campaign.campaign_id)
