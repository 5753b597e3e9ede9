"""Slices of detailed runs that were chosen from a light run: which, in which order, and why."""

from __future__ import annotations

from typing import Annotated, Literal

from assay_sampling.documents.base import Part, says


class SliceEntry(Part):
    """A slice: launches that get counters."""

    first_launch: Annotated[int, says("its first launch, which is how many it skips", "ordinal")]
    launches: Annotated[int, says("its launches", "launches")]
    new_time_percent: Annotated[
        float, says("share of the light time in signatures that it has and no earlier slice has", "percent")
    ]
    unseen_time_percent: Annotated[
        float, says("share of the light time that no slice up to this one has seen", "percent")
    ]
    expected_seconds: Annotated[float, says("what it takes by the model, in all of `runs`", "s")]
    measured: Annotated[bool, says("all of `runs` have it")]


class CostModel(Part):
    """The expected cost of a slice, summed over the runs: start + skip x launches before it + launch x
    its launches ([two-level.md](methods/two-level.md))."""

    start_seconds: Annotated[float, says("the start and end of the tool", "s")]
    skipped_launch_seconds: Annotated[float, says("a launch before the slice", "s")]
    profiled_launch_seconds: Annotated[float, says("a launch of the slice, with all its passes", "s")]


class ChosenSlicesEntry(Part):
    """The slices of a workload on a kind of GPU, the most new light time per second of profiling first."""

    workload: Annotated[str, says("workload")]
    device: Annotated[str, says("kind of GPU")]
    runs: Annotated[list[str], says("the detailed runs that measure these slices")]
    light_run: Annotated[str, says("the light run that they were chosen from")]
    launches: Annotated[int, says("its launches", "launches")]
    most_unseen_time_percent: Annotated[
        float, says("share that may stay unseen: `detailed.unseen_percent`", "percent")
    ]
    unseen_time_percent: Annotated[float, says("share that the measured slices leave unseen", "percent")]
    ending: Annotated[
        Literal["unseen", "budget", "slices"],
        says(
            "why there are no more: little enough is unseen, the time budget is spent, or a run has as many "
            "as it may have"
        ),
    ]
    cost: Annotated[CostModel, says("the model of the cost")]
    slices: Annotated[list[SliceEntry], says("in the order in which they are measured")]
