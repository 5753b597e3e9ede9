"""Documents of the hand-over: what ``assay export`` wrote, and what ``assay import accel-sim`` found."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from assay_sampling.documents.base import ArrangedPart, Part, says
from assay_sampling.documents.common import NoteEntry, Parameters
from assay_sampling.documents.selection import ProfilePart
from assay_sampling.parameters import WeightKind

SIMULATION_VERSION = 1


class WrittenFileEntry(Part):
    """A file that was written."""

    path: Annotated[str, says("where it is")]
    about: Annotated[str, says("what it is for")]


class HandOverDocument(Part):
    """What `assay export` wrote."""

    target: Annotated[
        str, says("the form: `accel-sim`, `accel-sim-jobs`, `macsim`, `nvbit`, `weights` or `perfetto`")
    ]
    selection: Annotated[str, says("the selection's file")]
    output: Annotated[str, says("the folder, or the one file")]
    files: Annotated[list[WrittenFileEntry], says("what was written")]
    links: Annotated[list[str], says("links to existing traces")]
    launches: Annotated[
        list[int], says("the selected launches in the order of the target, from 0", "ordinal")
    ]
    weights: Annotated[list[float], says("their weights")]
    traced_ids: Annotated[
        list[int],
        says("ids that their traces have, from 1, where a tracer missed launches; else empty", "ordinal"),
    ]
    notes: Annotated[list[NoteEntry], says("what you must know about it")]


class SelectedOn(Part):
    """The selection that launches were simulated for."""

    path: Annotated[str, says("its file")]
    method: Annotated[str, says("name of the method that made it")]
    parameters: Annotated[Parameters, says("every parameter of the method with its value")]
    seed: Annotated[int, says("seed of every random choice")]
    weights: Annotated[WeightKind, says("what the weights count")]
    profile: Annotated[ProfilePart, says("the launches that it was made from")]


class SimulatorEntry(Part):
    """The simulator and the GPU that it simulated; all logs agree on them."""

    tool: Annotated[str, says("`Accel-Sim` or `GPGPU-Sim`")]
    version: Annotated[str, says("version of GPGPU-Sim; empty if the logs do not say")]
    commits: Annotated[dict[str, str], says("commits that it was built from, by program")]
    gpu: Annotated[str, says("the GPU, by its configuration")]
    launch_latency_cycles: Annotated[
        int | None, says("cycles that each launch waits before it begins; `null`: not echoed", "cycle")
    ]


class LogEntry(Part):
    """A log that was read."""

    path: Annotated[str, says("its file")]
    kind: Annotated[
        Literal["sampled", "full"], says("of selected launches, or of all launches of the workload")
    ]
    intervals: Annotated[str | None, says("its interval log; `null`: none")]
    counted: Annotated[int, says("launches that count", "launches")]
    counted_ids: Annotated[str, says("their ids from 1, as ranges")]
    ending: Annotated[
        Literal["exit", "early stop", "cut off"],
        says("how it ends: the simulator ended, a limit ended it, or the log is cut off"),
    ]
    notes: Annotated[list[NoteEntry], says("what is doubtful in it")]


class SimulatedErrors(Part):
    """Errors and speedups in one kind of cycles ([definitions](handover.md#the-three-errors)); `null` is
    unknown."""

    silicon_cycles: Annotated[float | None, says("H: of the whole workload on silicon", "cycle")]
    full_cycles: Annotated[float | None, says("S: of all launches, simulated", "cycle")]
    pks_cycles: Annotated[
        float | None, says("sum of weight x simulated cycles of the representatives", "cycle")
    ]
    pka_cycles: Annotated[
        float | None, says("sum of weight x projected cycles of the representatives", "cycle")
    ]
    replayed_cycles: Annotated[
        float | None, says("of launches that only warmed caches for the representatives", "cycle")
    ]
    simulator_error_percent: Annotated[float | None, says("100 |H - S| / H", "percent")]
    pks_error_percent: Annotated[float | None, says("100 |H - `pks_cycles`| / H", "percent")]
    pka_error_percent: Annotated[float | None, says("100 |H - `pka_cycles`| / H", "percent")]
    pks_error_of_full_percent: Annotated[
        float | None, says("100 |S - `pks_cycles`| / S: what sampling alone costs", "percent")
    ]
    pka_error_of_full_percent: Annotated[
        float | None, says("100 |S - `pka_cycles`| / S: with projection", "percent")
    ]
    cold_start_percent: Annotated[
        float | None,
        says(
            "100 x the sum of weight x (cycles of a representative simulated apart - its cycles in the full "
            "run) / S",
            "percent",
        ),
    ]
    pks_speedup: Annotated[
        float | None, says("S / (cycles of the representatives + `replayed_cycles`)", "times")
    ]
    pka_speedup: Annotated[
        float | None, says("S / (their cycles until a rule stops them + `replayed_cycles`)", "times")
    ]
    pka_speedup_over: Annotated[
        Literal["full", "pks"] | None,
        says("`full`: over S; `pks`: S is unknown, so over the cycles of the representatives"),
    ]


class SimulatedRepresentative(ArrangedPart):
    """A representative, by operation a launch of one, and its simulation. Cycles include launch latency."""

    left_out_unless_set: ClassVar[frozenset[str]] = frozenset({"operation"})

    launch: Annotated[int, says("0-based launch", "ordinal")]
    sim_id: Annotated[int, says("1-based id of simulators", "ordinal")]
    group: Annotated[int, says("its group", "ordinal")]
    operation: Annotated[
        str | None, says("by operation: name and input shapes of the one that it is a launch of")
    ] = None
    kernel: Annotated[str, says("name in the selection")]
    weight: Annotated[float, says("by which its cycles are multiplied")]
    cycles: Annotated[
        float | None, says("simulated; `null`: its run was ended within it, and it was projected", "cycle")
    ]
    active_cycles: Annotated[float | None, says("without the launch latency; `null`: unknown", "cycle")]
    full_run_cycles: Annotated[float | None, says("in the full run; `null`: there is none", "cycle")]
    cold_start_cycles: Annotated[
        float | None, says("`cycles` - `full_run_cycles`; `null`: not simulated apart", "cycle")
    ]
    projected_cycles: Annotated[float | None, says("projected; without a stop its own", "cycle")]
    stopped_cycles: Annotated[float | None, says("until the projection's rule stops it", "cycle")]


class SimulationDocument(Part):
    """Simulated launches joined to the selection that they were simulated for."""

    simulation_version: Annotated[int, says("1; it grows when a key changes its meaning")] = (
        SIMULATION_VERSION
    )
    made_by: Annotated[str, says("the program and its version")]
    workload: Annotated[str, says("its name")]
    selection: Annotated[SelectedOn, says("the selection")]
    recording: Annotated[
        str | None, says("the recording of silicon; `null`: cycles are those of the selection, if any")
    ]
    silicon_devices: Annotated[list[str], says("GPUs of the cycles of silicon; empty: unknown")] = []
    synthetic: Annotated[bool, says("no silicon produced the cycles of silicon")]
    simulator: Annotated[SimulatorEntry, says("what ran the launches")]
    logs: Annotated[list[LogEntry], says("the logs, in the order given")]
    all_cycles: Annotated[SimulatedErrors, says("errors in all simulated cycles, as PKA's Table 4 has them")]
    active_cycles: Annotated[SimulatedErrors, says("errors without the launch latency of each launch")]
    representatives: Annotated[
        list[SimulatedRepresentative], says("each, by operation each of its launches, in order of launch")
    ]
    notes: Annotated[list[NoteEntry], says("what you must know about the numbers")]
