"""The document of ``assay simulate``: representatives simulated on several designs of a GPU."""

from __future__ import annotations

from typing import Annotated, Literal

from assay_sampling.documents.base import Part, says
from assay_sampling.documents.common import NoteEntry
from assay_sampling.documents.handover import SelectedOn
from assay_sampling.parameters import WeightKind

DESIGNS_VERSION = 1

WarmUp = Literal["none", "tail", "whole"]
EarlyStop = Literal["none", "waves"]
SimulationFailureKind = Literal[
    "refused", "crashed", "killed", "out_of_memory", "deadlock", "hung", "incomplete", "another_launch",
    "damaged_trace", "occupied", "worker_differs", "worker_died",
]  # fmt: skip


class LaunchNumbers(Part):
    """A launch that a simulator ran in a process of its own: to its end, or until a rule stopped it and the
    rest was projected."""

    gpu: Annotated[str, says("the GPU, by its configuration")]
    core_clock_mhz: Annotated[float | None, says("its core clock; `null`: not echoed", "MHz")]
    cycles: Annotated[int, says("with the launch latency; projected where a rule stopped it", "cycle")]
    stop_cycles: Annotated[
        int | None, says("cycle at which the rule stopped it; `null`: it was simulated whole", "cycle")
    ]
    active_cycles: Annotated[int | None, says("without it; `null`: not echoed", "cycle")]
    instructions: Annotated[int, says("thread instructions of the whole launch", "instructions")]
    executed_instructions: Annotated[
        int, says("of them, simulated; fewer where a rule stopped it", "instructions")
    ]
    l2_accesses: Annotated[
        int | None, says("of the L2; `null`: not printed, as of a launch that was stopped", "requests")
    ]
    l2_misses: Annotated[int | None, says("of them, misses", "requests")]
    dram_reads: Annotated[int | None, says("read requests of DRAM", "requests")]
    dram_writes: Annotated[int | None, says("write requests of DRAM", "requests")]
    replayed_instructions: Annotated[
        int, says("thread instructions that were replayed before, to warm caches", "instructions")
    ]
    wall_seconds: Annotated[float, says("of the process", "s")]
    cpu_seconds: Annotated[float, says("of the process and what it started", "s")]
    peak_memory_bytes: Annotated[int, says("the most that one of them held", "bytes")]


class DesignLaunch(LaunchNumbers):
    """A representative on one design."""

    design: Annotated[str, says("name of the design")]
    launch: Annotated[int, says("0-based launch", "ordinal")]
    sim_id: Annotated[int, says("1-based id of simulators", "ordinal")]
    group: Annotated[int, says("its group", "ordinal")]
    kernel: Annotated[str, says("name in the selection")]
    weight: Annotated[float, says("by which its numbers are multiplied")]
    resumed: Annotated[bool, says("an earlier call had simulated it")]


class ColdStart(Part):
    """What starting cold costs, of the launches that the folder has both cold and warmed up."""

    warm_up: Annotated[WarmUp, says("what the warm runs replay")]
    launches: Annotated[int, says("launches that were simulated both ways", "launches")]
    of: Annotated[int, says("representatives", "launches")]
    percent: Annotated[
        float,
        says("100 x sum of weight x (cycles cold - cycles warm) / sum of weight x cycles warm", "percent"),
    ]


class DesignEntry(Part):
    """A design, and what its representatives add up to; `null` until all of them are simulated."""

    name: Annotated[str, says("its name")]
    configuration: Annotated[str, says("the folder with its gpgpusim.config")]
    options: Annotated[list[str], says("options of the simulator on top")]
    folder: Annotated[str, says("where its simulations are kept")]
    gpu: Annotated[str | None, says("the GPU, by its configuration; `null`: no launch has ended")]
    core_clock_mhz: Annotated[float | None, says("its core clock", "MHz")]
    simulated: Annotated[int, says("representatives that are simulated", "launches")]
    failed: Annotated[int, says("representatives that failed", "launches")]
    projected: Annotated[int, says("of the simulated ones, those that a rule stopped", "launches")]
    simulated_cycles_percent: Annotated[
        float | None,
        says("share of the representatives' cycles that was simulated; `null`: nothing is", "percent"),
    ]
    cycles: Annotated[float | None, says("sum of weight x cycles", "cycle")]
    active_cycles: Annotated[float | None, says("the same without launch latency", "cycle")]
    ipc: Annotated[
        float | None, says("sum of weight x instructions / `cycles`", "thread instructions / cycle")
    ]
    l2_accesses: Annotated[float | None, says("sum of weight x requests of the L2", "requests")]
    l2_miss_percent: Annotated[float | None, says("of them, misses", "percent")]
    dram_reads: Annotated[float | None, says("sum of weight x read requests of DRAM", "requests")]
    dram_writes: Annotated[float | None, says("sum of weight x write requests of DRAM", "requests")]
    cpu_seconds: Annotated[float | None, says("spent on the representatives, warm-ups included", "s")]
    whole_cpu_seconds: Annotated[
        float | None,
        says("what all launches would take: sum of weight x CPU seconds without the warm-ups", "s"),
    ]
    cold_start: Annotated[
        list[ColdStart], says("what starting cold costs; empty: no launch was simulated both ways")
    ]


class SpeedupInterval(Part):
    """From the draw of the representatives alone: no cold caches, no error of the simulator."""

    low: Annotated[float, says("its lower end", "times")]
    high: Annotated[float, says("its upper end", "times")]
    confidence: Annotated[float, says("how often such intervals hold the speedup", "fraction")]


class SpeedupEntry(Part):
    """The speedup of a design over the first one, in cycles; above 1 it takes fewer."""

    design: Annotated[str, says("its name")]
    over: Annotated[str, says("the first design")]
    speedup: Annotated[float, says("cycles of the first / cycles of this one", "times")]
    active_speedup: Annotated[float | None, says("the same without launch latency", "times")]
    interval: Annotated[SpeedupInterval | None, says("around `speedup`; `null`: there is none")]
    interval_reason: Annotated[NoteEntry | None, says("why there is none")]
    not_vouched_percent: Annotated[
        float,
        says(
            "share of the cycles in strata of which one launch of several was drawn, or any by a rule: the "
            "interval says nothing of them",
            "percent",
        ),
    ]


class SimulationFailure(Part):
    """A launch that a simulator did not simulate."""

    design: Annotated[str, says("name of the design")]
    sim_id: Annotated[int, says("1-based id of simulators", "ordinal")]
    kernel: Annotated[str, says("name in the selection")]
    kind: Annotated[SimulationFailureKind, says("the failure class ([simulate.md](how-to/simulate.md))")]
    cause: Annotated[str, says("what happened")]
    remedy: Annotated[str, says("what to do about it")]
    log: Annotated[str, says("the simulator's output")]
    last_lines: Annotated[list[str], says("its last lines")]


class DesignsDocument(Part):
    """Representatives simulated on designs of a GPU."""

    designs_version: Annotated[int, says("1; it grows when a key changes its meaning")] = DESIGNS_VERSION
    made_by: Annotated[str, says("the program and its version")]
    workload: Annotated[str, says("its name")]
    selection: Annotated[SelectedOn, says("the selection")]
    weights: Annotated[WeightKind, says("what the weights count")]
    simulator: Annotated[str, says("the simulator's program")]
    warm_up: Annotated[WarmUp, says("what is replayed before each representative")]
    stop: Annotated[EarlyStop, says("the rule of projection that ends simulations")]
    designs: Annotated[list[DesignEntry], says("the designs, in the order given")]
    speedups: Annotated[list[SpeedupEntry], says("of each further design over the first")]
    launches: Annotated[list[DesignLaunch], says("by design, each representative that is simulated")]
    failures: Annotated[list[SimulationFailure], says("those that failed")]
    notes: Annotated[list[NoteEntry], says("what you must know about the numbers")]
