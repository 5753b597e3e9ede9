"""Faults of a campaign that would make more than a server takes, found before anything is planned.

A few numbers of a file multiply: workloads, kinds of GPU, repeats, conditions, and launches by the size of a
slice. How many runs, slices and bytes they make is found by arithmetic: nothing is made to count it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from assay_server.campaign_file.messages import Fault
from assay_server.campaign_file.slices import MOST_SLICES_OF_A_RUN, most_windows
from assay_server.campaign_file.spec import Campaign, WorkloadSpec
from assay_server.campaign_file.yaml_source import Place
from assay_server.limits import CAMPAIGN_FILE_LIMITS as _LIMITS


@dataclass(frozen=True)
class PairRuns:
    """The runs of any command on any kind of GPU, by their level, in all repeats: as many for each pair.

    ``later_light``: light runs that ``repeat`` may still add to the ``light`` ones.
    """

    detailed: int
    light: int
    bare: int
    later_light: int

    @classmethod
    def of(cls, campaign: Campaign) -> PairRuns:
        repeats, light = campaign.repeats, campaign.light_repeats
        beside = [run.level for run in campaign.condition_runs()]
        sets = 0 if campaign.detailed is None else len(campaign.detailed.sets)
        at_most = 0 if campaign.repeat is None else campaign.repeat.at_most
        return cls(
            detailed=repeats * (sets + beside.count("detailed")),
            light=light + repeats * beside.count("light"),
            bare=repeats * campaign.bare,
            later_light=max(0, at_most - light),
        )

    @property
    def most(self) -> int:
        """How many there are at the end, however noisy they are."""
        return self.detailed + self.light + self.bare + self.later_light


def _pairs(campaign: Campaign) -> int:
    """Of commands and kinds of GPU: each is measured on each."""
    return campaign.live_workloads * len(campaign.gpus)


def _recorded_runs(campaign: Campaign) -> int:
    """The runs that play recordings back."""
    recordings = (each for one in campaign.workloads if one.command is None for each in one.recordings)
    return sum(len(list(recording.levels())) for recording in recordings)


def most_runs(campaign: Campaign) -> int:
    """The runs of a campaign, with those that ``repeat`` may add."""
    return _pairs(campaign) * PairRuns.of(campaign).most + _recorded_runs(campaign)


def most_slices(campaign: Campaign) -> int:
    """The slices that are planned at most: slices that are sized by cost may turn out to be fewer.

    Those that are chosen from a light run are not planned (:func:`slices_of_a_light_run`).
    """
    runs = PairRuns.of(campaign)
    of_a_pair = runs.detailed * _slices_of_a_run(campaign) + runs.light + runs.bare
    return _pairs(campaign) * of_a_pair + _recorded_runs(campaign)


def _slices_of_a_run(campaign: Campaign) -> int:
    """The slices that are planned for a detailed run at most."""
    if campaign.detailed is None or campaign.detailed.slicing.by_light:
        return 0
    return most_windows(campaign.detailed.slicing)


def slices_of_a_light_run(campaign: Campaign) -> int:
    """The slices that one light run gives the detailed runs that wait for it, at most, in one transaction."""
    if campaign.detailed is None or not campaign.detailed.slicing.by_light or not campaign.live_workloads:
        return 0
    return PairRuns.of(campaign).detailed * MOST_SLICES_OF_A_RUN


def _run_bytes(campaign: Campaign, workload: WorkloadSpec) -> int:
    """The bytes of a workload's own words that are stored with each of its runs on a GPU."""
    words = workload.model_dump(include={"command", "environment", "kineto", "bundle"})
    return len(json.dumps({**words, "placement": campaign.placement_of(workload).to_document()}))


def most_bytes(campaign: Campaign) -> int:
    """The bytes that the file's commands take in all of its runs."""
    runs = len(campaign.gpus) * PairRuns.of(campaign).most
    return runs * sum(_run_bytes(campaign, each) for each in campaign.workloads if each.command is not None)


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
    size = most_bytes(campaign)
    if size > _LIMITS.campaign_runs_bytes:
        live = {i: one for i, one in enumerate(campaign.workloads) if one.command is not None}
        bytes_of = {position: _run_bytes(campaign, workload) for position, workload in live.items()}
        largest = max(bytes_of, key=lambda position: bytes_of[position])
        yield Fault(
            ("workloads", largest, "command"),
            f"its command takes {bytes_of[largest]:,} bytes with its environment in each of its runs; "
            f"{_factors(campaign)[1]} make {size:,} bytes, and at most {_LIMITS.campaign_runs_bytes:,} are "
            "stored; put long arguments into a file that the command reads, or make several campaigns",
        )


def _slice_faults(campaign: Campaign) -> Iterator[Fault]:
    limit = _LIMITS.campaign_slices
    place: Place = ("detailed",) if "detailed" in campaign.model_fields_set else ("workloads",)
    slices, of_light = most_slices(campaign), slices_of_a_light_run(campaign)
    of_a_run = _slices_of_a_run(campaign)
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
            f"a light run could give {PairRuns.of(campaign).detailed:,} detailed runs up to "
            f"{MOST_SLICES_OF_A_RUN} slices each, {of_light:,} in all, and at most {limit:,} are planned; "
            "lower 'repeats', name fewer conditions, or write a number in 'first'",
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
