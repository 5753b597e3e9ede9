"""Cuts a window of launches into slices and estimates their cost; pure.

Every slice starts the workload again and skips the launches before it. So later slices must be larger, to
keep the skipping a small part of their time, but not larger than needed: a crash costs a slice, and records
arrive one slice at a time. The cost of a slice is that of the start of the tool, of launches skipped, and of
launches profiled:

    seconds = start + skip x launches skipped + pass x passes x launches profiled

The three are assumed at first, and fitted to slices of the same workload on the same kind of GPU as soon as
there are some. Slices that are chosen from a light run are weighed by what that run tells
(:func:`cost_from_light`), so that the same run gives the same slices.

Source: docs/nvidia-tools.md, "Passes"; docs/campaign-file.md, "Slices".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay_sampling.counters.replay_passes import replay_passes
from assay_sampling.errors import ParameterError
from assay_server.campaign_file.compiled import Slicing

# The weight of the assumptions against one measured slice: enough to settle what no slice shows.
_PRIOR_WEIGHT = 1e-7
MOST_SKIPPED_PERCENT = 20.0
# Slices are cut for this share, so that a slightly different cost does not change them all.
PLANNED_SKIPPED_PERCENT = 18.0
# Slices planned before the first is made, for a window without a fixed end.
SLICES_AHEAD = 2
LEAST_SLICE_LAUNCHES = 500
MOST_SLICES_OF_A_RUN = 200
_MOST_LAUNCHES = 1 << 40  # of a slice, as of a campaign file
_SHARE_OF_AN_OPEN_RUN = 50  # the next slice has at least 1/50 of the launches before it


class Assumptions(BaseModel):
    """Assumptions of a forecast about programs, tools and disks: guesses of the order of magnitude."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    launches: int = Field(100_000, ge=0, description="launches a workload makes in one run")
    program_seconds: float = Field(60.0, ge=0, description="seconds a workload runs without a profiler")
    start_seconds: float = Field(
        10.0, ge=0, description="seconds a tool takes to start and to write a report"
    )
    trace_slowdown: float = Field(1.2, ge=1, description="times longer a program runs under light tracing")
    pass_milliseconds: float = Field(5.0, ge=0, description="milliseconds a pass over one launch takes")
    restore_milliseconds: float = Field(
        20.0, ge=0, description="milliseconds to save and restore memory for a launch of several passes"
    )
    playback_launches_per_second: float = Field(
        200_000.0, gt=0, description="launches a second that a recording is played at"
    )
    launch_bytes: float = Field(40.0, ge=0, description="bytes stored for a launch without counters")
    counter_bytes: float = Field(4.0, ge=0, description="bytes stored for each counter of a launch")


def assumptions(overrides: Mapping[str, str]) -> Assumptions:
    """The defaults with ``overrides``; raises ParameterError for an impossible name or value."""
    try:
        return Assumptions.model_validate(dict(overrides))
    except ValidationError as error:
        details = error.errors()[0]
        name = str(details["loc"][0])
        if details["type"] == "extra_forbidden":
            names = ", ".join(Assumptions.model_fields)
            raise ParameterError("--assume", f"there is no assumption {name!r}", f"use {names}") from None
        cause = f"{name}={details['input']}: {details['msg'][:1].lower()}{details['msg'][1:]}"
        raise ParameterError(
            "--assume", cause, f"it is {Assumptions.model_fields[name].description}"
        ) from None


@dataclass(frozen=True)
class SliceSample:
    """A measured slice: its window, the passes over each launch, and its seconds."""

    launch_skip: int
    launches: int
    passes: int
    seconds: float


@dataclass(frozen=True)
class SliceCost:
    """Seconds to start and end a tool, per skipped launch, and per profiled launch."""

    start_seconds: float
    skip_seconds: float
    launch_seconds: float

    def seconds(self, launch_skip: int, launches: int) -> float:
        """How long a slice takes."""
        return self.start_seconds + self.skip_seconds * launch_skip + self.launch_seconds * launches

    def skipped_percent(self, launch_skip: int, launches: int) -> float:
        """The share of a slice's time that goes into launches it skips; 0 if the slice takes no time."""
        seconds = self.seconds(launch_skip, launches)
        return 100.0 * self.skip_seconds * launch_skip / seconds if seconds > 0 else 0.0


def assumed_cost(passes: int, assumed: Assumptions) -> SliceCost:
    """The cost before anything is measured. One pass needs no copy of the memory."""
    restore = assumed.restore_milliseconds if passes > 1 else 0.0
    return SliceCost(
        assumed.start_seconds,
        assumed.program_seconds / max(assumed.launches, 1),
        (passes * assumed.pass_milliseconds + restore) / 1000.0,
    )


@dataclass(frozen=True)
class LightPace:
    """How fast a light run went: its launches, the seconds from the first to the end of the last, and the
    mean seconds of a launch."""

    launches: int
    seconds: float
    launch_seconds: float


def cost_from_light(counters: Sequence[str], pace: LightPace) -> SliceCost:
    """The cost of slices that collect these counters, from a light run of the workload.

        skipped launch  = seconds of the light run / launches x trace_slowdown
        profiled launch = passes x (mean seconds of a launch + pass_milliseconds) + restore_milliseconds

    The start of the tool, the slowdown, the pass and the restore are those of the assumptions.
    """
    believed = Assumptions()
    passes = replay_passes(counters).passes
    guessed = assumed_cost(passes, believed)
    return SliceCost(
        believed.start_seconds,
        believed.trace_slowdown * pace.seconds / max(pace.launches, 1),
        guessed.launch_seconds + passes * pace.launch_seconds,
    )


def fitted_cost(samples: Sequence[SliceSample], passes: int, prior: SliceCost) -> SliceCost:
    """The cost that explains measured slices, with all parts at least zero; ``prior`` without samples.

    Least squares of relative differences: a slice of an hour and one of a second count alike. Parts that the
    samples cannot separate keep the proportions of the prior, which is for as many ``passes``.
    """
    measured = [sample for sample in samples if sample.seconds > 0 and sample.launches > 0]
    scale = np.array([prior.start_seconds, prior.skip_seconds, prior.launch_seconds / max(passes, 1)])
    if not measured or not (scale > 0).all():
        return prior
    rows = np.array([[1.0, s.launch_skip, s.launches * max(s.passes, 1)] for s in measured])
    seconds = np.array([sample.seconds for sample in measured])
    # In units of the prior, so that all three are near one if it is right.
    matrix = rows * scale / seconds[:, None]
    size = float(np.median(seconds / (rows @ scale)))
    system = np.vstack([matrix, np.sqrt(_PRIOR_WEIGHT) * np.eye(3) / size])
    target = np.concatenate([np.ones(len(measured)), np.full(3, np.sqrt(_PRIOR_WEIGHT))])
    start, skip, one_pass = _nonnegative(system, target) * scale
    return SliceCost(float(start), float(skip), float(one_pass) * max(passes, 1))


def _nonnegative(system: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The non-negative x of shape (3,) with the least |system x - target|, found by trying all supports."""
    best, least = np.zeros(3), float(target @ target)
    for size in (1, 2, 3):
        for support in combinations(range(3), size):
            columns = list(support)
            solution, *_ = np.linalg.lstsq(system[:, columns], target, rcond=None)
            difference = system[:, columns] @ solution - target
            distance = float(difference @ difference)
            if (solution >= 0).all() and distance < least:
                best, least = np.zeros(3), distance
                best[columns] = solution
    return best


Window = tuple[int, int]  # launches skipped, launches taken (0: all the rest)


def planned_windows(slicing: Slicing, cost: SliceCost) -> list[Window]:
    """The slices to plan before any has been made, without a light run to choose them from."""
    return list(cut(slicing, cost, most=SLICES_AHEAD if slicing.is_open else None))


def most_windows(slicing: Slicing) -> int:
    """The most slices that :func:`planned_windows` may give, whatever they cost; it cuts none."""
    if slicing.is_open:
        return SLICES_AHEAD
    return -(-slicing.first // (slicing.slice_launches or _least_launches(slicing)))


def cut(slicing: Slicing, cost: SliceCost, begin: int = 0, most: int | None = None) -> Iterator[Window]:
    """The slices from launch ``begin`` on, at most ``most``; those of an open run never end by themselves.

    Slices sized by cost each spend less than PLANNED_SKIPPED_PERCENT of their time on skipping; a rest that
    is too small for that joins the slice before it.
    """
    skip, made = begin, 0
    while (slicing.is_open or skip < slicing.first) and (most is None or made < most):
        size = slice_launches(slicing, cost, skip)
        if not slicing.is_open:
            left = slicing.first - skip - size
            if not slicing.slice_launches and left < slice_launches(slicing, cost, skip + size):
                size += max(left, 0)
            size = min(size, slicing.first - skip)
        yield skip, size
        skip, made = skip + size, made + 1


def slice_launches(slicing: Slicing, cost: SliceCost, skip: int) -> int:
    """Launches in the slice that begins after ``skip`` launches."""
    if slicing.slice_launches:
        return slicing.slice_launches
    least = _least_launches(slicing)
    if slicing.is_open:  # however far it goes, its slices stay few
        least = max(least, -(-skip // _SHARE_OF_AN_OPEN_RUN))
    skipping = cost.skip_seconds * skip
    others = skipping * (100.0 / PLANNED_SKIPPED_PERCENT - 1.0) - cost.start_seconds
    if others <= 0:
        return least
    if cost.launch_seconds <= 0:
        return max(slicing.first - skip, least)
    # A cost near zero must not make the number infinite.
    return max(least, math.floor(min(others / cost.launch_seconds, _MOST_LAUNCHES)) + 1)


def _least_launches(slicing: Slicing) -> int:
    """Launches in the smallest slice that is sized by cost."""
    return max(LEAST_SLICE_LAUNCHES, -(-slicing.first // MOST_SLICES_OF_A_RUN))
