"""How many runs, slices and bytes a campaign makes, by arithmetic: nothing is made to count it.

A few numbers of a file multiply: workloads, kinds of GPU, repeats, conditions, and launches by the size of a
slice. What they make is bounded (:class:`assay_server.limits.CampaignFileLimits`) before anything is planned.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from assay_server.campaign_file.compiled import Slicing
from assay_server.campaign_file.condition_runs import condition_runs
from assay_server.campaign_file.place_spec import placement_of
from assay_server.campaign_file.slices.windows import MOST_SLICES_OF_A_RUN, most_windows
from assay_server.campaign_file.spec import Campaign, WorkloadSpec


@dataclass(frozen=True)
class PairRuns:
    """The runs of a command on one kind of GPU, by their level, in all repeats.

    ``later_light``: light runs that ``repeat`` may still add to the ``light`` ones.
    """

    detailed: int
    light: int
    bare: int
    later_light: int

    @property
    def planned(self) -> int:
        return self.detailed + self.light + self.bare

    @property
    def most(self) -> int:
        """How many there are at the end, however noisy they are."""
        return self.planned + self.later_light


def pair_runs(campaign: Campaign) -> PairRuns:
    """The runs of any of its commands on any of its kinds of GPU: as many for each."""
    repeats, light = campaign.repeats, campaign.light_repeats
    beside = [run.level for run in condition_runs(campaign.conditions, light_only=campaign.light_only)]
    sets = 0 if campaign.detailed is None else len(campaign.detailed.sets)
    at_most = 0 if campaign.repeat is None else campaign.repeat.at_most
    return PairRuns(
        detailed=repeats * (sets + beside.count("detailed")),
        light=light + repeats * beside.count("light"),
        bare=repeats * campaign.bare,
        later_light=max(0, at_most - light),
    )


def pairs(campaign: Campaign) -> int:
    """Of commands and kinds of GPU: each is measured on each."""
    return campaign.live_workloads * len(campaign.gpus)


def most_runs(campaign: Campaign) -> int:
    """The runs of a campaign, with those that ``repeat`` may add."""
    return pairs(campaign) * pair_runs(campaign).most + recorded_runs(campaign)


def recorded_runs(campaign: Campaign) -> int:
    """The runs that play recordings back."""
    return sum(
        len(list(recording.levels()))
        for workload in campaign.workloads
        if workload.command is None
        for recording in workload.recordings
    )


def most_slices(campaign: Campaign) -> int:
    """The slices that are planned at most: slices that are sized by cost may turn out to be fewer.

    Those that are chosen from a light run are not planned (:func:`slices_of_a_light_run`).
    """
    of_pair = pair_runs(campaign)
    windows = 0 if campaign.detailed is None else slices_of_a_run(campaign.detailed.slicing)
    of_a_pair = of_pair.detailed * windows + of_pair.light + of_pair.bare
    return pairs(campaign) * of_a_pair + recorded_runs(campaign)


def slices_of_a_run(slicing: Slicing) -> int:
    """The slices that are planned for a detailed run at most."""
    return 0 if slicing.by_light else most_windows(slicing)


def slices_of_a_light_run(campaign: Campaign) -> int:
    """The slices that one light run gives the detailed runs that wait for it, at most, in one transaction."""
    if campaign.detailed is None or not campaign.detailed.slicing.by_light or not campaign.live_workloads:
        return 0
    return pair_runs(campaign).detailed * MOST_SLICES_OF_A_RUN


def run_bytes(campaign: Campaign, workload: WorkloadSpec) -> int:
    """The bytes of a workload's own words that are stored with each of its runs on a GPU."""
    given = placement_of(campaign.requires, campaign.exclusive)
    placement = placement_of(workload.requires, workload.exclusive, workload.gang, given)
    words = {
        "command": workload.command,
        "environment": workload.environment,
        "kineto": workload.kineto,
        "bundle": workload.bundle,
        "placement": placement.to_document(),
    }
    return len(json.dumps(words))


def most_bytes(campaign: Campaign) -> int:
    """The bytes that the file's commands take in all of its runs."""
    runs = len(campaign.gpus) * pair_runs(campaign).most
    return runs * sum(run_bytes(campaign, each) for each in campaign.workloads if each.command is not None)
