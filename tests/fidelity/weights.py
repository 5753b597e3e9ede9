"""Errors on other GPUs by weights: of every method on virtual GPUs, and of two levels with short windows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from assay_sampling.errors import AssayError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.scoring.carried import score_on_by_weights
from assay_sampling.scoring.evaluation import Evaluation
from assay_sampling.scoring.selection import Selection
from tests.fidelity.section import Effort, Section
from tests.fidelity.virtual_recordings import virtual_recording
from tests.support.sampling.published import PUBLISHED_PKS

SOURCE, TARGETS = "V100", ("RTX 2060", "RTX 3070")
# The decoder launches kernels with other names on each GPU, so its selections are refused on others.
WORKLOADS = ("pipeline", "solver", "inference", "stencil", "training", "traversal")
DEMO_WINDOW = 1000
WINDOW_PERCENT = 1.0
GOAL_ERROR_PERCENT, GOAL_GROUP_ERROR_PERCENT = 3.0, 6.0
_SYNTHETIC = (
    "Synthetic: the example workloads of `campaigns/virtual` on virtual GPUs, selected on the V100 and "
    "scored in nanoseconds of light runs on the others, total error / group error in %"
)
_COLUMNS = ("workload", "method", "on", "speedup", "by launches (or instructions)", "by light time")


@dataclass(frozen=True)
class Case:
    """A method as it is tried: ``window`` is "demo" (its first launches), "one percent", "whole" or "light"
    alone; ``draws`` says that the seed matters, so errors are root mean squares over several."""

    title: str
    method: str
    window: Literal["demo", "one percent", "whole", "light"]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    draws: bool = False


CASES = (
    Case(f"PKS as published, window of {DEMO_WINDOW:,} (the demo)", "pks", "demo", PUBLISHED_PKS),
    Case("PKS as published, the whole profiled", "pks", "whole", PUBLISHED_PKS),
    Case(f"PKS, window of {DEMO_WINDOW:,}", "pks", "demo"),
    Case("Sieve", "sieve", "whole"),
    Case("TBPoint", "tbpoint", "whole"),
    Case("STEM", "stem", "light", draws=True),
    Case("random", "random", "light", draws=True),
    Case("random, weights=light_time", "random", "light", {"weights": "light_time"}, draws=True),
    Case("stratified", "stratified", "light", draws=True),
    Case("stratified, weights=light_time", "stratified", "light", {"weights": "light_time"}, draws=True),
    Case("systematic", "systematic", "light", draws=True),
    Case("proportional", "proportional", "light", draws=True),
    Case("single iteration", "single_iteration", "light"),
    Case("first instructions", "first_instructions", "whole", {"instructions": 1e8}),
)
SHORT_CASES = (CASES[0], CASES[3], CASES[6])
_SEEDS = {Effort.SHORT: 3, Effort.FULL: 30}


@dataclass(frozen=True)
class Found:
    """Errors of a case on a target, root mean squares over seeds; ``own`` is None for a method that has
    weights by light time alone."""

    speedup: float
    own: tuple[float, float] | None
    light_time: tuple[float, float]


def section(effort: Effort) -> Section:
    """Every method on the workloads of the demo that have a large error today; all of them in full."""
    short = effort is Effort.SHORT
    rows, found = [], []
    for workload in WORKLOADS[:1] if short else WORKLOADS:
        for case in SHORT_CASES if short else CASES:
            for target in TARGETS:
                outcome = scores(case, workload, target, _SEEDS[effort])
                rows.append(_row(workload, case.title, target, outcome))
                if isinstance(outcome, Found) and outcome.own is not None:
                    found.append(outcome)
    about = (
        f"{_SYNTHETIC}; of methods that draw, root mean squares over {_SEEDS[effort]} draws. Bound: over "
        "all rows with both weights the median error is not larger by light time, and so the median group "
        "error."
    )
    return Section("Weights on other GPUs, by method", about, _COLUMNS, rows, missed(found))


def missed(found: Sequence[Found]) -> list[str]:
    """Medians over all rows that light time makes worse."""
    lines = []
    for index, name in enumerate(("error", "group error")):
        own = float(np.median([each.own[index] for each in found if each.own is not None]))
        by_light_time = float(np.median([each.light_time[index] for each in found]))
        if by_light_time > own:
            lines.append(f"median {name}: {own:.1f} % becomes {by_light_time:.1f} % by light time")
    return lines


def two_levels(effort: Effort) -> Section:
    """Two levels with a window of 1 % of the launches, against the goal for totals and groups."""
    rules: dict[str, dict[str, Any]] = {"default": {}}
    if effort is Effort.FULL:
        rules["as published"] = PUBLISHED_PKS
    rows, kept = [], 0
    for workload in WORKLOADS[:1] if effort is Effort.SHORT else WORKLOADS:
        for title, parameters in rules.items():
            case = Case(title, "pks", "one percent", parameters)
            for target in TARGETS:
                outcome = scores(case, workload, target, 1)
                good = isinstance(outcome, Found) and keeps_goal(outcome)
                kept += good
                rows.append((*_row(workload, title, target, outcome), "kept" if good else "missed"))
    about = (
        f"{_SYNTHETIC}; the window has {WINDOW_PERCENT:g} % of the launches. Goal by light time: total "
        f"error at most {GOAL_ERROR_PERCENT:g} %, group error at most {GOAL_GROUP_ERROR_PERCENT:g} %; "
        f"{kept} of {len(rows)} rows keep it."
    )
    return Section("Two levels with a window of 1 %, by weights", about, (*_COLUMNS, "goal"), rows)


def keeps_goal(found: Found) -> bool:
    """Whether a selection keeps the goal with weights by light time."""
    error, group_error = found.light_time
    return error <= GOAL_ERROR_PERCENT and group_error <= GOAL_GROUP_ERROR_PERCENT


def scores(case: Case, workload: str, target: str, seeds: int) -> Found | str:
    """The errors of a case on a target, or why there are none."""
    try:
        made = list(_selections(case, workload, seeds if case.draws else 1))
        there = virtual_recording(workload, target, "light")
        reference = virtual_recording(workload, SOURCE, "light")
        each = [score_on_by_weights(one, there, reference=reference)[0] for one in made]
    except AssayError as error:
        return error.cause
    own = [next((one for kind, one in found.items() if kind != "light_time"), None) for found in each]
    return Found(
        speedup=float(np.mean([found["light_time"].speedup for found in each])),
        own=None if own[0] is None else _errors([one for one in own if one is not None]),
        light_time=_errors([found["light_time"] for found in each]),
    )


def _selections(case: Case, workload: str, seeds: int) -> Iterator[Selection]:
    light = virtual_recording(workload, SOURCE, "light")
    window = {
        "demo": DEMO_WINDOW,
        "one percent": math.ceil(len(light) * WINDOW_PERCENT / 100),
        "whole": None,
        "light": None,
    }[case.window]
    detailed = None if case.window == "light" else virtual_recording(workload, SOURCE, "detailed", window)
    profile = Profile(detailed=detailed, light=light)
    for seed in range(seeds):
        yield select(case.method, profile, case.parameters, seed)


def _errors(found: Sequence[Evaluation]) -> tuple[float, float]:
    """Root mean squares of total and group error."""
    signed = [each.signed_error_percent for each in found]
    groups = [each.group_error_percent or 0.0 for each in found]
    return float(np.sqrt(np.mean(np.square(signed)))), float(np.sqrt(np.mean(np.square(groups))))


def _row(workload: str, title: str, target: str, found: Found | str) -> tuple[str, ...]:
    if isinstance(found, str):
        return workload, title, target, "", found.replace("|", "/"), ""
    own = "-" if found.own is None else _pair(found.own)
    return workload, title, target, f"{found.speedup:,.0f}", own, _pair(found.light_time)


def _pair(errors: tuple[float, float]) -> str:
    return f"{errors[0]:.1f} / {errors[1]:.1f}"
