"""The scheduler: who runs which slice, until when, and with what result. All in one metadata transaction.

The rules: a slot has at most one leased attempt; a slice has at most one attempt that is leased or being
published, and at most one that is published, ever. Each lease gets a fencing token larger than all earlier
ones; an agent with another token than that of the slice's newest attempt must drop its attempt. Each lease
also has a secret: only the process that got it, or a later one of the same agent that registers the secret,
may write to the attempt. An attempt whose lease expired may come back until its slice is leased again: a
network that was down for a minute must not cost days of profiling.

Each try at an analysis has a token, so that only the newest one of a campaign can end its analysis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from assay_core.records.campaign import CampaignState
from assay_core.records.failure import Failure
from assay_server.campaigns.planning.repeats import Key, further_runs
from assay_server.campaigns.scheduling.attempt_results import AttemptResults
from assay_server.campaigns.scheduling.leases import Leases
from assay_server.campaigns.scheduling.retry import MOST_GPUS_LOST, gpus_lost
from assay_server.campaigns.scheduling.runs_requests import RunsRequests
from assay_server.campaigns.scheduling.transitions import failure_of_runs
from assay_server.store.model import AnalysisTry, Campaign, Run, Slice


class Schedule(Leases, AttemptResults, RunsRequests):
    """The scheduler's operations in one transaction at one moment; apply ``effects`` after the commit.

    Those about a campaign as a whole are here: it comes, is repeated, is analysed, and ends.
    """

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
        runs = [run for run in runs if len(gpus_lost(self.store, run)) < MOST_GPUS_LOST]
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
        state = CampaignState.DONE if problem is None else CampaignState.FAILED
        ended = replace(campaign, state=state, failure=problem, paused=False, ended_at_ms=self.now_ms)
        self.store.save_campaign(replace(ended, has_report=why is None))
        self.effects.campaigns.add(campaign_id)
