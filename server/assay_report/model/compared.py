"""Runs that are compared with one another: SM shares, caches, clocks, repeats, profilers, sequences."""

from __future__ import annotations

from typing import Annotated

from assay_report.model.common import FlagEntry, Judged, Match, Outcome, OverlapEntry, Placed
from assay_sampling.documents.base import Part, says
from assay_sampling.documents.common import ErrorDecomposition, NoteEntry


class Compared(Outcome, Placed):
    """The fields of every comparison. It uses the first repeat that both sides have."""

    flags: Annotated[list[FlagEntry], says("flags of its runs")] = []
    runs: Annotated[list[str], says("the runs that it uses")] = []


class Prediction(Judged):
    """The speedup that a selection predicts."""

    method: Annotated[str, says("the selection's method")]
    selection: Annotated[str, says("its key in `selections`")]
    speedup_predicted: Annotated[
        float | None, says("projected time at the share / projected time on all SMs", "times")
    ] = None
    speedup_error_percent: Annotated[float | None, says("its error against the true speedup", "percent")] = (
        None
    )
    error_percent: Annotated[float | None, says("error of the selection at the share", "percent")] = None


class SmShareEntry(Compared):
    """An SM share with a light run, against all SMs.

    The flag `not_under_mps`: the run on all SMs was not made under the same kind of MPS daemon.
    """

    sm_percent: Annotated[float | None, says("share of the SMs", "percent")] = None
    sm_share: Annotated[str, says("`limit`: by percentage; `partition`: a static partition")] = "limit"
    clocks_locked: Annotated[
        bool, says("where it is false, the ratio of times is not the ratio of SM cycles")
    ] = False
    effective_sms: Annotated[
        int | None, says("SMs that the tool saw, else the share rounded down to whole TPCs", "SMs")
    ] = None
    all_sms: Annotated[int | None, says("SMs of the whole GPU", "SMs")] = None
    launches: Annotated[int | None, says("of the run at the share", "launches")] = None
    kernels: Annotated[int | None, says("of the run at the share", "kernels")] = None
    overlap: Annotated[OverlapEntry | None, says("of the run at the share")] = None
    duration_ns: Annotated[float | None, says("time of the matched launches at the share", "ns")] = None
    duration_ns_all_sms: Annotated[float | None, says("their time on all SMs", "ns")] = None
    speedup_true: Annotated[float | None, says("the first / the second", "times")] = None
    match: Annotated[Match | None, says("of the two runs; 99 % at `name_block` are needed")] = None
    predictions: Annotated[list[Prediction], says("one for each selection")] = []


class WorstLaunch(Part):
    """The launch whose cost changes most when caches are flushed."""

    process: Annotated[int, says("process", "ordinal")]
    launch: Annotated[int, says("launch in it, 0-based in API order", "ordinal")]
    kernel: Annotated[str, says("kernel")]
    difference_percent: Annotated[float | None, says("100 x (flushed - warm) / warm", "percent")] = None
    warm: Annotated[float | None, says("its cost with caches left alone", "`unit`")] = None
    flushed: Annotated[float | None, says("with caches flushed", "`unit`")] = None


class InstructionShare(Part):
    """How much of the work flushed caches affect."""

    ipc_difference_percent: Annotated[float, says("launches whose IPC differs by at least this", "percent")]
    share_percent: Annotated[float | None, says("their share of the instructions", "percent")] = None


class SelectionDifference(Outcome):
    """The difference that a selection's representatives show."""

    method: Annotated[str, says("the selection's method")]
    selection: Annotated[str, says("its key in `selections`")]
    representatives: Annotated[int | None, says("how many it has", "launches")] = None
    representatives_in_window: Annotated[int | None, says("those in the window", "launches")] = None
    weighted_difference_percent: Annotated[
        float | None, says("over those in the window, by their weights", "percent")
    ] = None
    started_cold: Annotated[
        ErrorDecomposition | None,
        says(
            "the error of its projection if each representative starts with cold caches, by part; `null` "
            "unless both runs hold all launches that it was made on"
        ),
    ] = None


class ColdStartEntry(Compared):
    """A detailed run with caches flushed between launches, compared over the launches that match exactly.

    The flag `cycles_of_several_passes` means that a run's cycles come from replayed launches, because no
    run measured them in one pass.
    """

    quantity: Annotated[str | None, says("cycles of one kind")] = None
    unit: Annotated[str | None, says("`cycle`")] = None
    launches: Annotated[int | None, says("launches that match", "launches")] = None
    match: Annotated[Match | None, says("of the two runs")] = None
    weighted_difference_percent: Annotated[
        float | None, says("100 x the sum of |flushed - warm| / the sum of warm", "percent")
    ] = None
    median_difference_percent: Annotated[
        float | None, says("of 100 x (flushed - warm) / warm of each launch", "percent")
    ] = None
    mean_difference_percent: Annotated[float | None, says("mean of the same", "percent")] = None
    worst: Annotated[WorstLaunch | None, says("the launch that changes most")] = None
    instruction_shares: Annotated[list[InstructionShare] | None, says("by how much launches change")] = None
    selections: Annotated[list[SelectionDifference], says("one for each selection")] = []


class LockedClockEntry(Compared):
    """The same launches under a locked clock and under free clocks. `notes` says what a level lacks."""

    clock_locked: Annotated[
        bool | None, says("whether the clock stayed locked; `false` where a run is flagged `clock_unlocked`")
    ] = None
    launches: Annotated[int | None, says("of the light runs", "launches")] = None
    match: Annotated[Match | None, says("of the light runs, by the exact kind")] = None
    duration_ns: Annotated[float | None, says("time under the locked clock", "ns")] = None
    duration_ns_free: Annotated[float | None, says("time under free clocks", "ns")] = None
    duration_ratio: Annotated[float | None, says("the first / the second", "times")] = None
    window_launches: Annotated[int | None, says("of the windows", "launches")] = None
    quantity: Annotated[str | None, says("cycles of one kind, in one pass")] = None
    unit: Annotated[str | None, says("`cycle`")] = None
    cycles: Annotated[float | None, says("under the locked clock", "cycles")] = None
    cycles_free: Annotated[float | None, says("under free clocks", "cycles")] = None
    cycles_ratio: Annotated[float | None, says("the first / the second", "times")] = None
    clock_mhz: Annotated[float | None, says("mean SM clock while the window was profiled", "MHz")] = None
    clock_mhz_free: Annotated[float | None, says("the same under free clocks", "MHz")] = None
    notes: Annotated[list[NoteEntry], says("what one level lacks, and why")] = []


class ComparedRuns(Compared):
    """The further fields of comparisons of whole runs."""

    level: Annotated[str, says("`detailed`, `light` or `bare`")]
    under_mps: Annotated[bool, says("made under an MPS daemon")] = False


class NoiseEntry(ComparedRuns):
    """Two or more repeats of a level and condition."""

    repeats: Annotated[int, says("how many", "runs")]
    quantity: Annotated[str | None, says("the cost")] = None
    unit: Annotated[str | None, says("`ns` or `cycle`")] = None
    mean_total: Annotated[float | None, says("mean of the totals", "`unit`")] = None
    relative_standard_deviation_percent: Annotated[
        float | None, says("of the totals (n - 1), relative to their mean", "percent")
    ] = None
    interval_percent: Annotated[
        float | None,
        says("half the width of the 95 % confidence interval of the mean, by Student's t", "percent"),
    ] = None
    notes: Annotated[list[NoteEntry], says("what differs between the repeats")] = []


class OverheadEntry(ComparedRuns):
    """The time that a profiler adds to bare runs of a workload. Seconds are means over repeats."""

    repeats: Annotated[int, says("runs under the profiler", "runs")]
    bare_repeats: Annotated[int, says("bare runs", "runs")]
    executions: Annotated[float, says("of the command, one per slice", "executions")]
    wall_seconds: Annotated[float | None, says("of one execution under the profiler", "s")] = None
    bare_wall_seconds: Annotated[float | None, says("of a bare one", "s")] = None
    overhead_percent: Annotated[float | None, says("100 x (the first / the second - 1)", "percent")] = None
    busy_seconds: Annotated[
        float | None, says("of the GPU, by the driver's utilisation over time: an estimate", "s")
    ] = None
    bare_busy_seconds: Annotated[float | None, says("of the GPU in a bare execution", "s")] = None
    busy_overhead_percent: Annotated[float | None, says("the same for busy times", "percent")] = None


class FirstDifference(Part):
    """The first launch in which two runs differ."""

    process: Annotated[int, says("process", "ordinal")]
    launch: Annotated[int, says("launch in it, 0-based", "ordinal")]
    reference: Annotated[str, says("what the reference launches there")]
    run: Annotated[str, says("what the run launches there")]


class SequenceEntry(ComparedRuns):
    """A live run whose launches differ from those of the first light run of its workload and GPU.

    Its flag is `kernel_choice_differs` or `sequence_differs`. Bare runs have no profiler, so their launches
    are not known.
    """

    reference: Annotated[str, says("the run that it is compared with")]
    run: Annotated[str, says("the run")]
    launches: Annotated[int, says("launches of the run", "launches")]
    reference_launches: Annotated[int, says("launches of the reference", "launches")]
    differing: Annotated[
        int | None, says("launches that differ in kernel, grid or block, or that one lacks", "launches")
    ] = None
    first_difference: Annotated[FirstDifference | None, says("the first such launch")] = None
    counts_differ: Annotated[bool, says("one of the two has launches that the other lacks")] = False
