"""The cost of a slice of a detailed run: the start of the tool, launches skipped, launches profiled.

    seconds = start + skip x launches skipped + pass x passes x launches profiled

The three are assumed at first, and fitted to slices of the same workload on the same kind of GPU as soon as
there are some. Slices that are chosen from a light run are weighed by what that run tells
(:func:`cost_from_light`), so that the same run gives the same slices.

Source: docs/nvidia-tools.md, "Passes"; docs/campaign-file.md, "Slices".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from assay_sampling.counters.replay_passes import replay_passes
from assay_server.campaign_file.slices.assumptions import Assumptions

# The weight of the assumptions against one measured slice: enough to settle what no slice shows.
_PRIOR_WEIGHT = 1e-7


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


def cost_before(counters: Sequence[str], assumed: Assumptions | None = None) -> SliceCost:
    """The assumed cost of slices that collect these counters, before any was measured."""
    return assumed_cost(replay_passes(counters).passes, assumed or Assumptions())


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
