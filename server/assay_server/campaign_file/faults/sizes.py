"""Faults of a campaign that would make more than a server takes, found before anything is planned.

A few numbers of a file multiply: workloads, kinds of GPU, repeats, conditions, and launches by the size of a
slice. How many runs, slices and bytes they make is found by arithmetic: nothing is made to count it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from assay_server.campaign_file.compiled import Slicing
from assay_server.campaign_file.faults.messages import Fault
from assay_server.campaign_file.slices import MOST_SLICES_OF_A_RUN, most_windows
from assay_server.campaign_file.spec import Campaign, WorkloadSpec
from assay_server.campaign_file.yaml_source import Place
from assay_server.limits import CAMPAIGN_FILE_LIMITS as _LIMITS


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
    def most(self) -> int:
        """How many there are at the end, however noisy they are."""
        return self.detailed + self.light + self.bare + self.later_light


def pair_runs(campaign: Campaign) -> PairRuns:
    """The runs of any of its commands on any of its kinds of GPU: as many for each."""
    repeats, light = campaign.repeats, campaign.light_repeats
    beside = [run.level for run in campaign.condition_runs()]
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
    words = {
        "command": workload.command,
        "environment": workload.environment,
        "kineto": workload.kineto,
        "bundle": workload.bundle,
        "placement": campaign.placement_of(workload).to_document(),
    }
    return len(json.dumps(words))


def most_bytes(campaign: Campaign) -> int:
    """The bytes that the file's commands take in all of its runs."""
    runs = len(campaign.gpus) * pair_runs(campaign).most
    return runs * sum(run_bytes(campaign, each) for each in campaign.workloads if each.command is not None)


def size_faults(campaign: Campaign) -> Iterator[Fault]:
    """What its numbers make too much of, the first of: runs, slices, bytes."""
    runs = most_runs(campaign)
    if runs > _LIMITS.campaign_runs:
        place, product = _factors(campaign)
        yield Fault(
            place,
            f"{product} make {runs:,} runs, and a campaign has at most {_LIMITS.campaign_runs:,}; "
            "lower them, or make several campaigns",
        )
        return
    yield from _slice_faults(campaign)
    yield from _byte_faults(campaign)


def _slice_faults(campaign: Campaign) -> Iterator[Fault]:
    limit = _LIMITS.campaign_slices
    place: Place = ("detailed",) if "detailed" in campaign.model_fields_set else ("workloads",)
    slices, of_light = most_slices(campaign), slices_of_a_light_run(campaign)
    of_a_run = 0 if campaign.detailed is None else slices_of_a_run(campaign.detailed.slicing)
    if of_a_run > _LIMITS.campaign_run_slices or slices > limit:
        made = f"{of_a_run:,} in a run"
        if campaign.detailed is not None and campaign.detailed.slicing.slice_launches and of_a_run:
            slicing = campaign.detailed.slicing
            place = ("detailed", "slice_launches")
            made += f": {slicing.first:,} launches in slices of {slicing.slice_launches:,}"
        yield Fault(
            place,
            f"it makes {slices:,} slices ({made}), and at most {limit:,} are planned, "
            f"{_LIMITS.campaign_run_slices:,} in a run; "
            "lower 'first', raise 'slice_launches', or make several campaigns",
        )
    elif of_light > limit:
        yield Fault(
            place,
            f"a light run could give {pair_runs(campaign).detailed:,} detailed runs up to "
            f"{MOST_SLICES_OF_A_RUN} slices each, {of_light:,} in all, and at most {limit:,} are planned; "
            "lower 'repeats', name fewer conditions, or write a number in 'first'",
        )


def _byte_faults(campaign: Campaign) -> Iterator[Fault]:
    size, limit = most_bytes(campaign), _LIMITS.campaign_runs_bytes
    if size <= limit:
        return
    live = [i for i, workload in enumerate(campaign.workloads) if workload.command is not None]
    largest = max(live, key=lambda position: run_bytes(campaign, campaign.workloads[position]))
    of_largest = run_bytes(campaign, campaign.workloads[largest])
    _, product = _factors(campaign)
    yield Fault(
        ("workloads", largest, "command"),
        f"its command takes {of_largest:,} bytes with its environment in each of its runs; {product} make "
        f"{size:,} bytes, and at most {limit:,} are stored; put long arguments into a file that the command "
        "reads, or make several campaigns",
    )


def _factors(campaign: Campaign) -> tuple[Place, str]:
    """The numbers that multiply to the number of runs, and the place of the largest of them."""
    beside = campaign.condition_runs()
    at_most = 0 if campaign.repeat is None else campaign.repeat.at_most
    counted: list[tuple[int, Place, str]] = [
        (len(campaign.workloads), ("workloads",), "workloads"),
        (len(campaign.gpus), ("gpus",), "GPUs"),
        (campaign.repeats, ("repeats",), "repeats"),
        (at_most, ("repeat", "at_most"), "repeats at most"),
        (len(beside), ("conditions",), "runs of conditions"),
    ]
    factors = [each for each in counted if each[0] > 1] or counted[:1]
    text = ", ".join(f"{number:,} {name}" for number, _, name in factors)
    return max(factors, key=lambda each: each[0])[1], text
