"""The course of a campaign: added, cancelled, failed, repeated, and ended by its analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay_core.records.campaign import ENDED_CAMPAIGNS, CampaignState, RunState
from assay_core.records.failure import Failure
from assay_server.campaigns.errors import known_campaign
from assay_server.campaigns.planning.repeats import Key, further_runs
from assay_server.campaigns.scheduling.analysis_tries import AnalysisTries
from assay_server.campaigns.scheduling.lost_gpus import gpus_lost, too_many
from assay_server.campaigns.scheduling.state import failure_of_runs
from assay_server.store.model import ENDED_RUNS, Campaign, Run, Slice


class CampaignCourse(AnalysisTries):
    """Decisions about a campaign as a whole."""

    def add_campaign(self, campaign: Campaign, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        """Add a planned campaign: its slices now wait."""
        self.store.add_campaign(campaign, runs, slices)
        self._came(campaign.campaign_id)

    def end_arrival(self, campaign_id: str) -> None:
        """All of a campaign that came in piece by piece is there: its slices now wait."""
        self.store.end_arrival(campaign_id)
        self._came(campaign_id)

    def _came(self, campaign_id: str) -> None:
        self.effects.campaigns.add(campaign_id)
        self.effects.work = True

    def cancel(self, campaign_id: str) -> Campaign:
        """Stop a campaign for good, in this transaction; an ended one stays as it is.

        For campaigns of any size see :mod:`assay_server.campaigns.scheduling.runs_requests`. Raises
        UnknownThingError.
        """
        campaign = known_campaign(self.store.campaign(campaign_id), campaign_id)
        if campaign.state in ENDED_CAMPAIGNS:
            return campaign
        return self._stop(replace(campaign, state=CampaignState.CANCELLED))

    def _stop(self, ended: Campaign) -> Campaign:
        """Save a campaign that ends now, and cancel its open runs."""
        stopped = replace(ended, ended_at_ms=self.now_ms, paused=False)
        self.store.save_campaign(stopped)
        for run in self.store.runs(stopped.campaign_id):
            if run.state not in ENDED_RUNS:
                self.cancel_slices(run.run_id)
                self.store.save_run(replace(run, state=RunState.CANCELLED))
                self.store.pause_runs([run.run_id], False)
        self.effects.campaigns.add(stopped.campaign_id)
        return stopped

    def repeat(
        self,
        campaign_id: str,
        repeats_by_key: Mapping[Key, int],
        retried: int = 0,
    ) -> bool:
        """Plan further repeats of an analysed campaign, which then runs again; False if none are wanted.

        ``retried`` as for :meth:`end_analysis`.
        """
        campaign = self.store.campaign(campaign_id)
        if campaign is None or campaign.state is not CampaignState.ANALYSING or campaign.retried != retried:
            return False
        runs = further_runs(self.store.runs(campaign_id), repeats_by_key)
        runs = [run for run in runs if not too_many(gpus_lost(self.store, run))]
        if not runs:
            return False
        self.store.add_runs(runs, [Slice(run.run_id, 0) for run in runs])
        self.store.save_campaign(replace(campaign, state=CampaignState.RUNNING, failure=None))
        self.effects.campaigns.add(campaign_id)
        self.effects.work = True
        return True

    def end_analysis(self, campaign_id: str, why: Failure | None, retried: int = 0) -> None:
        """End an analysis: the report is written (``why`` None), or ``why`` it could not be made.

        ``retried``: how often the campaign had been tried again when the analysis began. If a person had it
        tried again since, the report lacks those runs, and the campaign is analysed once more.
        """
        campaign = self.store.campaign(campaign_id)
        if campaign is None or campaign.state is not CampaignState.ANALYSING:
            return
        if campaign.retried != retried:
            self.effects.analyse.add(campaign_id)
            return
        problem = why or failure_of_runs(self.store.runs(campaign_id))
        self.store.save_campaign(
            replace(
                campaign,
                state=CampaignState.DONE if problem is None else CampaignState.FAILED,
                failure=problem,
                has_report=why is None,
                paused=False,
                ended_at_ms=self.now_ms,
            )
        )
        self.effects.campaigns.add(campaign_id)
