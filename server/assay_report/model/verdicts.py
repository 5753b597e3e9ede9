"""Verdicts: what a report says in one screen, made from its rows by :mod:`assay_report.verdicts`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from assay_report.model.common import Placed, Status
from assay_report.model.external_results import SimulatedNumbers
from assay_sampling.documents.base import ArrangedPart, Part, says
from assay_sampling.documents.common import ConditionEntry
from assay_sampling.verdicts.verdict import VerdictLevel

_POINTS = "percentage points of the true total"


class Asked(Part):
    """What the campaign asked."""

    workloads: Annotated[int, says("workloads with rows", "workloads")]
    launches: Annotated[int, says("launches of all workloads together, each counted once", "launches")]
    devices: Annotated[list[str], says("kinds of GPU, in the order of the rows")]
    methods: Annotated[list[str], says("selection methods, with parameters where one is used in two ways")]
    selected_on: Annotated[list[str], says("kinds of GPU that selections were made on")]
    conditions: Annotated[int, says("conditions that are scored", "conditions")]
    runs: Annotated[int, says("runs with data", "runs")]
    runs_without_data: Annotated[int, says("runs that failed, were cancelled or have not ended", "runs")]


class Cause(Part):
    """Where most of an error comes from."""

    kind: Annotated[
        Literal["group", "part", "unknown"],
        says(
            "`group`: one group of launches scales unlike its representative; `part`: the largest part of "
            "the decomposition; `unknown`: the error was not decomposed"
        ),
    ]
    points: Annotated[float | None, says("its share of the signed error", _POINTS)] = None
    part: Annotated[str | None, says("of `part`: the key in `decomposition`")] = None
    together: Annotated[list[str], says("of `not_separated`: the parts that are together in it")] = []
    kernel: Annotated[str | None, says("of `group`: the kernel of its representative")] = None
    launches: Annotated[int | None, says("of `group`: its launches", "launches")] = None
    ratio: Annotated[float | None, says("of `group`: its cost there / where it was selected", "times")] = None
    representative_ratio: Annotated[
        float | None, says("of `group`: the same of its representatives", "times")
    ] = None


class Shortfall(Placed):
    """A projection whose error is above the target."""

    method: Annotated[str, says("selection method")]
    error_percent: Annotated[float, says("its error", "percent")]
    selected_on: Annotated[str | None, says("kind of GPU that the selection was made on")] = None
    recommended: Annotated[bool, says("it is the method to take for this workload")] = False
    cause: Annotated[Cause, says("where most of it comes from")]
    sentence: Annotated[str, says("for people, without a full stop")]


class GpuVerdict(Part):
    """The verdict for a kind of GPU."""

    device: Annotated[str, says("kind of GPU")]
    projections: Annotated[int, says("rows with an error", "rows")]
    within_target: Annotated[int, says("of these, at most the target", "rows")]
    without_number: Annotated[int, says("rows that were refused or failed", "rows")]
    shortfalls: Annotated[
        list[Shortfall],
        says("those above the target: of recommended methods first, then the largest error first"),
    ]
    headline: Annotated[str, says("for people: how many are within the target; no full stop")]
    sentence: Annotated[str, says("for people: the headline, the first shortfalls and what has no number")]


class SuiteSimulated(SimulatedNumbers):
    """Simulations of a suite's workloads: the simulator's columns of PKA's Table 4. Errors are arithmetic
    means against silicon cycles, speedups geometric means, each over the workloads with a known value."""

    workloads: Annotated[int, says("workloads that were simulated", "workloads")]
    simulators: Annotated[list[str], says("the simulated GPUs")]


class SuiteEntry(ArrangedPart):
    """All workloads of a kind of GPU, condition and method, as the last rows of PKA's Table 4. Simulations of
    what the report has no rows of have lines of their own, with no workloads."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset({"simulated"})

    device: Annotated[str, says("kind of GPU")]
    condition: Annotated[str, says("cache, clock and SM share")]
    method: Annotated[str, says("selection method")]
    selected_on: Annotated[list[str], says("kinds of GPU that the selections were made on")]
    workloads: Annotated[int, says("workloads with an error", "workloads")]
    without_number: Annotated[int, says("workloads that were refused or failed", "workloads")]
    within_target: Annotated[int, says("workloads whose error is at most the target", "workloads")]
    mean_error_percent: Annotated[float | None, says("arithmetic mean of the errors", "percent")] = None
    geometric_mean_speedup: Annotated[float | None, says("geometric mean of the speedups", "times")] = None
    worst_workload: Annotated[str | None, says("the workload of the largest error")] = None
    worst_error_percent: Annotated[float | None, says("that error", "percent")] = None
    intervals: Annotated[int, says("workloads with an interval", "workloads")] = 0
    intervals_held: Annotated[int, says("intervals that held the true total", "workloads")] = 0
    largest_part: Annotated[
        str | None, says("the part of the decomposition with the largest mean, by absolute points")
    ] = None
    largest_part_points: Annotated[float | None, says("that mean", _POINTS)] = None
    simulated: Annotated[
        SuiteSimulated | None, says("its workloads in a simulator: `assay report --simulated FILE`")
    ] = None


class BestMethod(Part):
    """A method that is the one to take for some workloads of a kind of GPU."""

    device: Annotated[str, says("kind of GPU that the selections were made on")]
    method: Annotated[str | None, says("its name; `null`: no method has a star")]
    workloads: Annotated[list[str], says("those it is recommended for")]
    within_target: Annotated[
        int,
        says(
            "of these, with a worst error on the other GPUs of at most the target; where none was scored, "
            "with such a fair error",
            "workloads",
        ),
    ]
    of: Annotated[int, says("workloads with a recommendation on this GPU", "workloads")]


class FlagCount(Part):
    """A validity flag that rows carry."""

    name: Annotated[str, says("its name, as in [validity.md](validity.md)")]
    rows: Annotated[int, says("rows that carry it", "rows")]
    runs: Annotated[int, says("runs that it is about", "runs")]
    invalidates: Annotated[bool, says("numbers that use these runs are refused")]
    detail: Annotated[str, says("what was found in the first of these runs")] = ""


class Excluded(Part):
    """Numbers that the report does not give, and why."""

    what: Annotated[
        Literal["rows", "runs"],
        says("`rows`: scores that were refused, failed or do not apply; `runs`: runs without data"),
    ]
    status: Annotated[Status, says("as of the rows; `failed` for runs")]
    device: Annotated[str, says("kind of GPU")]
    workloads: Annotated[list[str], says("the workloads that it is about")]
    methods: Annotated[list[str], says("the methods that it is about; empty for runs")] = []
    number: Annotated[int, says("rows or runs", "rows or runs")]
    reason: Annotated[str, says("of the first")]
    remedy: Annotated[str, says("what to do about it; empty if nothing is known")] = ""


class WorkloadVerdict(Placed):
    """Whether to trust the method to take on a workload: its worst score, elsewhere where there is one."""

    method: Annotated[str, says("the recommended method; where none is, the one of the best verdict")]
    level: Annotated[VerdictLevel, says("as `level` of `verdict` in `rows`")]
    condition: Annotated[ConditionEntry, says("condition of that score")]
    selected_on: Annotated[str | None, says("kind of GPU that the selection was made on")] = None
    error_percent: Annotated[float | None, says("as in `rows`", "percent")] = None
    group_error_percent: Annotated[float | None, says("as in `rows`", "percent")] = None
    sentence: Annotated[str, says("for people: why, without a full stop")]


class Overall(Part):
    """The verdict over all rows."""

    workloads: Annotated[
        list[WorkloadVerdict], says("those not to trust first, and of these the largest error first")
    ]
    without_verdict: Annotated[list[str], says("workloads of which no row has a verdict")]
    sentence: Annotated[str, says("for people: the first sentence of the report")]


class Verdicts(Part):
    """What the report says in one screen."""

    overall: Annotated[Overall, says("whether to trust the methods to take")]
    target_error_percent: Annotated[
        float,
        says(
            "errors up to it count as good: the least `target_error_percent` that a method of the campaign "
            "was given, else 5",
            "percent",
        ),
    ]
    asked: Annotated[Asked, says("what was asked")]
    complete: Annotated[bool, says("every run of the campaign has data")]
    gpus: Annotated[list[GpuVerdict], says("one for each kind of GPU")]
    suite: Annotated[list[SuiteEntry], says("one for each kind of GPU, condition and method")]
    best: Annotated[list[BestMethod], says("which methods to take")]
    flags: Annotated[list[FlagCount], says("validity flags of the rows, those that invalidate first")]
    excluded: Annotated[list[Excluded], says("what has no number, and why")]
