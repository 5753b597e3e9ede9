"""Faults of a campaign that would make more than a server takes, found before anything is planned."""

from __future__ import annotations

from collections.abc import Iterator

from assay_server.campaign_file.condition_runs import condition_runs
from assay_server.campaign_file.faults.messages import Fault
from assay_server.campaign_file.sizes import (
    most_bytes,
    most_runs,
    most_slices,
    pair_runs,
    run_bytes,
    slices_of_a_light_run,
    slices_of_a_run,
)
from assay_server.campaign_file.slices.windows import MOST_SLICES_OF_A_RUN
from assay_server.campaign_file.spec import Campaign
from assay_server.campaign_file.yaml_source import Place
from assay_server.limits import CAMPAIGN_FILE_LIMITS, CampaignFileLimits


def size_faults(campaign: Campaign, limits: CampaignFileLimits = CAMPAIGN_FILE_LIMITS) -> Iterator[Fault]:
    """What its numbers make too much of, the first of: runs, slices, bytes."""
    runs = most_runs(campaign)
    if runs > limits.campaign_runs:
        place, product = _factors(campaign)
        yield Fault(
            place,
            f"{product} make {runs:,} runs, and a campaign has at most {limits.campaign_runs:,}; "
            "lower them, or make several campaigns",
        )
        return
    yield from _slice_faults(campaign, limits)
    yield from _byte_faults(campaign, limits.campaign_runs_bytes)


def _slice_faults(campaign: Campaign, limits: CampaignFileLimits) -> Iterator[Fault]:
    limit = limits.campaign_slices
    place: Place = ("detailed",) if "detailed" in campaign.model_fields_set else ("workloads",)
    slices, of_light = most_slices(campaign), slices_of_a_light_run(campaign)
    of_a_run = 0 if campaign.detailed is None else slices_of_a_run(campaign.detailed.slicing)
    if of_a_run > limits.campaign_run_slices or slices > limit:
        made = f"{of_a_run:,} in a run"
        if campaign.detailed is not None and campaign.detailed.slicing.slice_launches and of_a_run:
            slicing = campaign.detailed.slicing
            place = ("detailed", "slice_launches")
            made += f": {slicing.first:,} launches in slices of {slicing.slice_launches:,}"
        yield Fault(
            place,
            f"it makes {slices:,} slices ({made}), and at most {limit:,} are planned, "
            f"{limits.campaign_run_slices:,} in a run; "
            "lower 'first', raise 'slice_launches', or make several campaigns",
        )
    elif of_light > limit:
        yield Fault(
            place,
            f"a light run could give {pair_runs(campaign).detailed:,} detailed runs up to "
            f"{MOST_SLICES_OF_A_RUN} slices each, {of_light:,} in all, and at most {limit:,} are planned; "
            "lower 'repeats', name fewer conditions, or write a number in 'first'",
        )


def _byte_faults(campaign: Campaign, limit: int) -> Iterator[Fault]:
    size = most_bytes(campaign)
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
    beside = condition_runs(campaign.conditions, light_only=campaign.light_only)
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
