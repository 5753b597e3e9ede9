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
class CampaignSize:
    """What the numbers of a campaign multiply to, at most.

    Args:
        runs: the runs of the campaign, with those that ``repeat`` may add.
        detailed_runs: those of any command on any kind of GPU, in all repeats.
        slices: those that are planned; slices that are sized by cost may turn out to be fewer.
        run_slices: those that are planned for a detailed run.
        light_slices: those that one light run gives the detailed runs that wait for it, in one transaction;
            they are not planned.
        command_bytes: what the file's commands take in all of its runs.
    """

    runs: int
    detailed_runs: int
    slices: int
    run_slices: int
    light_slices: int
    command_bytes: int


def campaign_size(campaign: Campaign) -> CampaignSize:
    """The size of a campaign. Each command is measured on each kind of GPU, as often as any other."""
    slicing = None if campaign.detailed is None else campaign.detailed.slicing
    sets = 0 if campaign.detailed is None else len(campaign.detailed.sets)
    at_most = 0 if campaign.repeat is None else campaign.repeat.at_most
    levels = [run.level for run in campaign.condition_runs()]
    detailed = campaign.repeats * (sets + levels.count("detailed"))
    light = campaign.light_repeats + campaign.repeats * levels.count("light")
    bare = campaign.repeats * campaign.bare
    runs_of_pair = detailed + light + bare + max(0, at_most - campaign.light_repeats)
    by_light = slicing is not None and slicing.by_light and campaign.live_workloads > 0
    run_slices = 0 if slicing is None or slicing.by_light else most_windows(slicing)
    pairs = campaign.live_workloads * len(campaign.gpus)
    played = (each for one in campaign.workloads if one.command is None for each in one.recordings)
    recorded = sum(len(list(recording.levels())) for recording in played)
    own_bytes = sum(_run_bytes(campaign, each) for each in campaign.workloads if each.command is not None)
    return CampaignSize(
        runs=pairs * runs_of_pair + recorded,
        detailed_runs=detailed,
        slices=pairs * (detailed * run_slices + light + bare) + recorded,
        run_slices=run_slices,
        light_slices=detailed * MOST_SLICES_OF_A_RUN if by_light else 0,
        command_bytes=len(campaign.gpus) * runs_of_pair * own_bytes,
    )


def _run_bytes(campaign: Campaign, workload: WorkloadSpec) -> int:
    """The bytes of a workload's own words that are stored with each of its runs on a GPU."""
    words = workload.model_dump(include={"command", "environment", "kineto", "bundle"})
    return len(json.dumps({**words, "placement": campaign.placement_of(workload).to_document()}))


def size_faults(campaign: Campaign) -> Iterator[Fault]:
    """What its numbers make too much of, the first of: runs, slices, bytes."""
    size = campaign_size(campaign)
    largest_factor, product = _factors(campaign)
    if size.runs > _LIMITS.campaign_runs:
        yield Fault(
            largest_factor,
            f"{product} make {size.runs:,} runs, and a campaign has at most {_LIMITS.campaign_runs:,}; "
            "lower them, or make several campaigns",
        )
        return
    yield from _slice_faults(campaign, size)
    if size.command_bytes > _LIMITS.campaign_runs_bytes:
        live = {i: one for i, one in enumerate(campaign.workloads) if one.command is not None}
        bytes_of = {position: _run_bytes(campaign, workload) for position, workload in live.items()}
        largest = max(bytes_of, key=lambda position: bytes_of[position])
        yield Fault(
            ("workloads", largest, "command"),
            f"its command takes {bytes_of[largest]:,} bytes with its environment in each of its runs; "
            f"{product} make {size.command_bytes:,} bytes, and at most {_LIMITS.campaign_runs_bytes:,} are "
            "stored; put long arguments into a file that the command reads, or make several campaigns",
        )


def _slice_faults(campaign: Campaign, size: CampaignSize) -> Iterator[Fault]:
    limit = _LIMITS.campaign_slices
    place: Place = ("detailed",) if "detailed" in campaign.model_fields_set else ("workloads",)
    if size.run_slices > _LIMITS.campaign_run_slices or size.slices > limit:
        made = f"{size.run_slices:,} in a run"
        slicing = None if campaign.detailed is None else campaign.detailed.slicing
        if slicing is not None and slicing.slice_launches and size.run_slices:
            place = ("detailed", "slice_launches")
            made += f": {slicing.first:,} launches in slices of {slicing.slice_launches:,}"
        yield Fault(
            place,
            f"it makes {size.slices:,} slices ({made}), and at most {limit:,} are planned, "
            f"{_LIMITS.campaign_run_slices:,} in a run; "
            "lower 'first', raise 'slice_launches', or make several campaigns",
        )
    elif size.light_slices > limit:
        yield Fault(
            place,
            f"a light run could give {size.detailed_runs:,} detailed runs up to "
            f"{MOST_SLICES_OF_A_RUN} slices each, {size.light_slices:,} in all, and at most {limit:,} are "
            "planned; lower 'repeats', name fewer conditions, or write a number in 'first'",
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
