"""How far a window of fixed length and slices chosen from the light run carry to another GPU.

Groups come from the window on a virtual V100; representatives are weighted by light time there (light time of
the group / light time of its representative) and scored in the light time of two other virtual GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.ranges import LaunchRange
from assay_sampling.launches.unseen import signature_ordinals, unseen_time_percent
from assay_sampling.scoring.carried import score_on
from assay_sampling.scoring.selection import Selection
from assay_server.campaign_file.compiled import Slicing
from assay_server.campaign_file.slices import LightPace, cost_from_light
from assay_server.campaign_file.spec import DetailedSpec
from assay_server.campaigns.slicing.by_light import LightTimes, chosen_slices
from tests.fidelity.counted_workloads import CountedWorkload, virtual
from tests.fidelity.section import Effort, Section
from tests.support.sampling.two_level_profiles import two_level_selection

# The demo's workloads of one process: slices of a workload of several are not chosen.
WORKLOADS = ("decoder", "inference", "solver", "stencil", "training")
TARGETS = ("RTX 2060", "RTX 3070")
SLICE_LAUNCHES = 50
SHARES = (10.0, 5.0, 1.0, 0.1)
_SHORT = (("stencil",), (1.0,))
# Goals of the weights by light time across GPUs, at the default share.
MOST_TOTAL_ERROR, MOST_GROUP_ERROR = 3.0, 6.0

Windows = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Carried:
    """A window and how its selection fares: launches profiled, unseen share, and the errors on the targets in
    percent, the worst of them."""

    launches: int
    slices: int
    unseen_percent: float
    error_percent: float
    group_error_percent: float


def section(effort: Effort) -> Section:
    """The table by window, over all workloads and targets."""
    names, shares = (WORKLOADS, SHARES) if effort is Effort.FULL else _SHORT
    rows, missed = [], []
    for title, found in _windows(names, shares):
        errors, groups = [one.error_percent for one in found], [one.group_error_percent for one in found]
        rows.append(
            (
                title,
                f"{np.mean([one.launches for one in found]):,.0f}",
                f"{np.mean([one.slices for one in found]):.1f}",
                f"{max(one.unseen_percent for one in found):.2f}",
                f"{np.mean(errors):.2f}",
                f"{max(errors):.2f}",
                f"{np.mean(groups):.2f}",
                f"{max(groups):.2f}",
            )
        )
        if title == "auto, 1 %":
            over = [
                (name, one)
                for name, one in zip(names, found, strict=True)
                if one.error_percent > MOST_TOTAL_ERROR or one.group_error_percent > MOST_GROUP_ERROR
            ]
            missed += [
                f"{name}: total error {one.error_percent:.2f} % (goal {MOST_TOTAL_ERROR:g} %), group error "
                f"{one.group_error_percent:.2f} % (goal {MOST_GROUP_ERROR:g} %)"
                for name, one in over
            ]
    return Section(
        title="Slices chosen from the light run, and windows of the first launches",
        about=(
            f"Synthetic: the demo's workloads {', '.join(names)} on a virtual V100, carried by light time to "
            f"a virtual {' and a virtual '.join(TARGETS)}; slices of {SLICE_LAUNCHES} launches; errors of "
            "the worse target, mean and maximum over the workloads."
        ),
        columns=(
            "window", "launches", "slices", "most unseen / %", "total error / %", "largest / %",
            "group error / %", "largest / %",
        ),
        rows=rows,
        missed=missed,
    )  # fmt: skip


def _windows(names: Sequence[str], shares: Sequence[float]) -> Iterator[tuple[str, list[Carried]]]:
    """By window, what it gives for each workload."""
    for percent in (1.0, 5.0):
        yield f"first {percent:g} %", [_first(name, percent) for name in names]
    for share in shares:
        yield f"auto, {share:g} %", [carried(name, planned(name, share)) for name in names]
    # As many launches as the slices of the default share have, but from the beginning on.
    as_many = [[(0, sum(count for _, count in planned(name, 1.0)))] for name in names]
    yield (
        "first, as many as auto, 1 %",
        [carried(name, windows) for name, windows in zip(names, as_many, strict=True)],
    )


def _first(name: str, percent: float) -> Carried:
    launches = len(_workload(name).light)
    return carried(name, [(0, max(round(percent / 100 * launches), 1))])


def planned(name: str, share: float) -> list[tuple[int, int]]:
    """The slices that a campaign would choose, in the order of their launches."""
    light = _workload(name).light
    duration_ns = light.column("duration_ns")
    seconds = float(duration_ns.sum()) / 1e9
    pace = LightPace(len(light), seconds, seconds / len(light))
    costs = [cost_from_light(counters, pace) for counters in DetailedSpec().counters_of_sets()]
    times = LightTimes(name, signature_ordinals(light), duration_ns)
    plan = chosen_slices(times, Slicing(0, SLICE_LAUNCHES, 0.0, share), costs)
    return sorted((piece.launch_skip, piece.launch_count) for piece in plan.slices)


def launches_of(name: str) -> int:
    """Launches of a workload."""
    return len(_workload(name).light)


def unseen_percent(name: str, windows: Windows) -> float:
    """The share of a workload's light time in signatures that the windows have not seen."""
    light = _workload(name).light
    rows = np.concatenate([np.arange(begin, begin + count) for begin, count in windows])
    return unseen_time_percent(light, rows, light.column("duration_ns"))


def carried(name: str, windows: Windows) -> Carried:
    """A window's selection on the V100, scored on the targets."""
    return _carried(name, tuple(windows))


@cache
def _carried(name: str, windows: tuple[tuple[int, int], ...]) -> Carried:
    known = _workload(name)
    selection = two_level_selection(Profile(detailed=_in_slices(known.whole, windows), light=known.light))
    errors = [_errors(selection, known.light, _workload(name, target).light) for target in TARGETS]
    facts = selection.extra["two_level"]
    return Carried(
        launches=sum(count for _, count in windows),
        slices=facts["window"]["slices"],
        unseen_percent=facts["unseen_time_percent"],
        error_percent=max(error for error, _ in errors),
        group_error_percent=max(group for _, group in errors),
    )


@cache
def _workload(name: str, gpu: str = "V100") -> CountedWorkload:
    return virtual(name, gpu, window=1)


def _in_slices(whole: Launches, windows: Windows) -> Launches:
    rows = np.concatenate([np.arange(begin, begin + count) for begin, count in windows])
    ranges = tuple(LaunchRange(0, begin, begin + count - 1) for begin, count in windows)
    return replace(whole.take(rows), ranges=ranges)


def _errors(selection: Selection, source: Launches, target: Launches) -> tuple[float, float]:
    """Error of the total and of the groups on the target, in percent, with weights by light time."""
    # By position: libraries choose other kernels on other GPUs, in the same places.
    found, _ = score_on(selection, target, "position", reference=source, weights="light_time")
    if found.group_error_percent is None:
        raise ValueError("a two-level selection labels every launch, so its group error is known")
    return found.error_percent, found.group_error_percent
