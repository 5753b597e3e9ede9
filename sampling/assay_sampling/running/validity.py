"""Every validity flag: a caveat about a run or a result that a reader of the numbers must know.

Results refuse a run with a flag that *invalidates*, and name the flag; other flags are shown next to the
numbers. A flag's name decides its cause, remedy and effect, no matter who sets it. Where ``retry_as`` names a
failure class, the server tries the run again while that class has retries left, and keeps the flagged
launches of the last try.

The tables of ``docs/validity.md`` are made from it. That page also says which clock event reasons
reject a measurement ("How the GPU is watched").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from assay_sampling.running.failures import FailureClass

Scope = Literal["run", "result"]


@dataclass(frozen=True)
class FlagKind:
    """A kind of flag. ``cause`` and ``remedy`` are phrases without a full stop, Markdown allowed."""

    name: str
    cause: str
    remedy: str
    invalidates: bool = False
    scope: Scope = "run"
    retry_as: FailureClass | None = None


_RUN_FLAGS = (
    FlagKind(
        "launches_dropped",
        "the profiler reports lost events, or kernels of launch calls are missing from its trace",
        "profile again, over a shorter range or with larger buffers",
        invalidates=True,
        retry_as=FailureClass.DROPPED_EVENTS,
    ),
    FlagKind(
        "capture_cut",
        "a window of the workload was captured (`--duration`, a capture range), and it ended before the "
        "kernels of the last launch calls ran",
        "none needed: those launches are outside the window; capture a longer one to include them",
    ),
    FlagKind(
        "light_window",
        "a light run was ended at its limit (`light_limit_s`, `--light-limit`): the launches are the first "
        "of the program, and results are of these alone",
        "none needed; raise the limit to record more of the program",
    ),
    FlagKind(
        "launches_missing",
        "the profiler announced other launches than the file holds, or traced graphs as a whole; or kernels "
        "were still running when the tracer stopped waiting for them",
        "profile again; with Nsight Systems use `--cuda-graph-trace=node`; with the tracer let the workload "
        "synchronise before it ends, or raise `ASSAY_TRACER_SYNC_MS`",
        invalidates=True,
    ),
    FlagKind(
        "empty_capture",
        "a slice has no launches although a later slice has some, so the profiler missed launches",
        "profile again; see the log of the empty slice's attempt",
        invalidates=True,
    ),
    FlagKind(
        "slice_gap",
        "a slice ended early although a later slice has launches: the workload launches a different number "
        "of kernels each time",
        "fix the workload's seeds and autotuning, or profile it in one slice",
        invalidates=True,
    ),
    FlagKind(
        "window_short",
        "fewer launches have counters than were asked for, although a light run of the workload on that GPU "
        "launches more: the profiler stopped early (under MPS Nsight Compute gives one launch of each "
        "process), or the workload launches a different number of kernels each time",
        "look at the log of the detailed run for what stopped the profiler, and profile again; if nothing "
        "did (the workload may run for a fixed time), let it do a fixed amount of work",
        invalidates=True,
    ),
    FlagKind(
        "throttled_thermal",
        "the GPU lowered its clocks for heat while the run was measured (event reasons 0x20, 0x40)",
        "improve the cooling, raise the thermal gate's pause, or lock a lower clock",
        invalidates=True,
        retry_as=FailureClass.THROTTLED,
    ),
    FlagKind(
        "throttled_power",
        "the power supply made the GPU brake while the run was measured (event reason 0x80)",
        "look at the box's power supply and cabling",
        invalidates=True,
        retry_as=FailureClass.THROTTLED,
    ),
    FlagKind(
        "throttled_hardware",
        "the GPU halved its clocks, for heat or power, and does not say which (event reason 0x8)",
        "improve the cooling and look at the power supply",
        invalidates=True,
        retry_as=FailureClass.THROTTLED,
    ),
    FlagKind(
        "power_capped",
        "the GPU kept to its power limit, so its clocks moved with the load (event reason 0x4)",
        "none needed where all runs have the same limit; else lock a clock that the limit allows",
    ),
    FlagKind(
        "clock_limited",
        "the GPU kept its clocks down for a board, reliability or sync-boost limit "
        "(event reasons 0x10, 0x200, 0x400)",
        "compare with `nvidia-smi -q -d PERFORMANCE`, and lock a clock below the limit",
    ),
    FlagKind(
        "clock_unlocked",
        "the profiler was asked to lock the clocks and could not",
        "let the agent's user lock clocks, or lock them from outside; cycles stay valid, times vary",
    ),
    FlagKind(
        "clocks_left_locked",
        "the clocks that were locked for the run could not be unlocked after it",
        "`nvidia-smi -rgc` as root, or start the agent again, which tries once more",
    ),
    FlagKind(
        "clock_varied",
        "the SM clock of the busy GPU moved by more than 5 % of its mean during the run",
        "lock the clocks (`clock: base` at the detailed level, or `nvidia-smi -lgc` for light runs)",
    ),
    FlagKind(
        "started_hot",
        "the GPU had not cooled down when the thermal gate's time was up, so the run began anyway",
        "improve the cooling, or raise the gate's temperatures or its longest wait",
    ),
    FlagKind(
        "foreign_process",
        "another process computed on the GPU before, during or after the run",
        "keep others off the GPU while a campaign runs (a scheduler, or compute mode EXCLUSIVE_PROCESS)",
        invalidates=True,
    ),
    FlagKind(
        "desktop_on_gpu",
        "a desktop (Xorg, gnome-shell, kwin and the like; type C+G of nvidia-smi) drew on the GPU; it "
        "computes nothing, but takes time and memory of it",
        "none needed for counters; for times let the desktop use another GPU, or log out",
    ),
    FlagKind(
        "foreign_mps_daemon",
        "an MPS daemon other than the agent's was running on the box; the run was kept away from it",
        "none needed, unless `foreign_process` is set too",
    ),
    FlagKind(
        "sm_share_not_in_force",
        "the workload saw all SMs, or another share of them than was asked for",
        "check the MPS daemon's log and CUDA_MPS_ACTIVE_THREAD_PERCENTAGE in the attempt's environment",
        invalidates=True,
    ),
    FlagKind(
        "gpu_settings_changed",
        "the GPU's compute mode or MIG mode changed during the run",
        "let nobody change the GPU's settings during a campaign; profile again",
        invalidates=True,
    ),
    FlagKind(
        "persistence_off",
        "persistence mode is off, so the driver may have been reloaded during the run",
        "`nvidia-smi -pm 1`, or run nvidia-persistenced",
    ),
    FlagKind(
        "gpu_lost",
        "the driver lost the GPU, or it needs a reset, while the run was measured",
        "take the GPU out of service and look at the kernel log",
        invalidates=True,
        retry_as=FailureClass.GPU_UNHEALTHY,
    ),
    FlagKind(
        "xid_error",
        "the driver reported a critical XID error during the run",
        "look the number up in NVIDIA's list of XID errors; reset or replace the GPU",
        invalidates=True,
        retry_as=FailureClass.GPU_UNHEALTHY,
    ),
    FlagKind(
        "ecc_error",
        "the GPU's memory had errors during the run that ECC could not correct",
        "reset the GPU; replace it if the errors return",
        invalidates=True,
        retry_as=FailureClass.GPU_UNHEALTHY,
    ),
    FlagKind(
        "ecc_corrected",
        "ECC corrected errors of the GPU's memory during the run; the results are right, times may vary",
        "watch the GPU, and replace it if they become frequent",
    ),
    FlagKind(
        "telemetry_missing",
        "the GPU's clocks, temperature and event reasons could not be read, or not all of them",
        "install the extra `agent` (nvidia-ml-py) and give the agent the driver's NVML library",
    ),
    FlagKind(
        "dcgm_not_paused",
        "DCGM, in `nv-hostengine` or inside a program such as `dcgm-exporter`, may collect counters on the "
        "box, and could not be paused for a detailed run",
        "let the agent's user run `dcgmi profile --pause`, stop the program, or stop DCGM's profiling fields",
    ),
    FlagKind(
        "counters_nan",
        "some launches have no value (`n/a`, NaN) of some counters; an analysis that uses them ends in an "
        "error",
        "profile those launches again, or choose other features",
    ),
    FlagKind(
        "shapes_totals_only",
        "the file gives only total numbers of blocks and threads (Nsight Compute's classic layout)",
        "none needed; matching compares totals",
    ),
    FlagKind(
        "units_assumed",
        "the file has no units row; base units were assumed",
        "export again with `--print-units base` and the units row",
    ),
    FlagKind(
        "metrics_missing",
        "the GPU or the tool's release has no metric for some counters, or a report gives one that cannot be "
        "read; they were left out",
        "choose features without them",
    ),
    FlagKind(
        "operations_missing",
        "the campaign file says `unit: operation`, but the run recorded no operator, library routine or "
        "range",
        "see `assay docs how-to/record-operations`: what records operations depends on the program and on "
        "the tool's release",
    ),
    FlagKind(
        "operations_doubtful",
        "the campaign file says `unit: operation`, but ranges of one thread cross, nest more than 128 deep, "
        "were not closed, or have no serial numbers",
        "use push/pop ranges that are closed, or a profiler that knows when they begin and end",
    ),
    FlagKind(
        "light_by_tracer",
        "`light: auto` was made by our own tracer, because the box has no Nsight Systems; the two have not "
        "been shown to agree on a GPU",
        "install nsys on the box, or write `light: cupti` or `light: nsys`, so that all runs use one tool",
    ),
    FlagKind(
        "cycles_of_several_passes",
        "no run measured cycles in one pass, or that run has no data, so the cycles come from replayed "
        "launches, with memory saved and restored between passes",
        "leave `detailed.sets` at its default, or make the failed run again; features do not need it",
    ),
    FlagKind(
        "slice_short",
        "the workload ended within the slice",
        "none needed at the end of a workload; unexpected in its middle",
    ),
    FlagKind(
        "window_cut",
        "launches with counters ended early: no new kind of launch came, the time was up, or a run had as "
        "many slices as it may have",
        "none needed; `first`, `unseen_percent` and `time_budget_s` of `detailed` set the limits",
    ),
    FlagKind(
        "slice_empty",
        "the workload ended before the slice began, so the slice has no launches",
        "plan fewer slices, if you like",
    ),
    FlagKind(
        "processes_interleaved",
        "several processes launch concurrently, so which launches a slice holds depends on their timing",
        "profile such a workload in one slice",
    ),
    FlagKind(
        "condition_assumed",
        "the campaign file does not give the whole condition of a recording, and the recording does not hold "
        "it; the baseline's is assumed",
        "write `condition: {cache: ..., clock: ..., sm_percent: ...}` next to the recording, or use "
        "`assay import --condition`",
    ),
    FlagKind(
        "recorded_time_unavailable",
        "the recording has no start times, so it was played at full speed",
        "none needed",
    ),
)
_RESULT_FLAGS = (
    FlagKind(
        "concurrent_launches",
        "for more than 1 % of the time more than one launch ran: the sum of durations is not the time that "
        "passed",
        "read the span along with the sum",
        scope="result",
    ),
    FlagKind(
        "matched_by_name_block",
        "launches were matched by kernel and block, because another GPU runs other grids",
        "compare the match percentages of all three kinds",
        scope="result",
    ),
    FlagKind(
        "matched_by_position",
        "launches were paired by their ordinals alone, as requested",
        "use `name_block` unless you know that the sequences are the same",
        scope="result",
    ),
    FlagKind(
        "not_under_mps",
        "the run at 100 % that an SM share is compared with was not made under an MPS daemon",
        "make it under one too; campaigns of live runs do so automatically",
        scope="result",
    ),
    FlagKind(
        "kernel_choice_differs",
        "two runs of one workload launched the same number of kernels, but different kernels or shapes in "
        "some places: a library tuned itself again",
        "switch autotuning off, or fix its choice (a tuning cache, `torch.backends.cudnn.benchmark = False`)",
        scope="result",
    ),
    FlagKind(
        "sequence_differs",
        "two runs of one workload launched different numbers of kernels",
        "fix the workload's seeds and input; compare the match percentages",
        scope="result",
    ),
    FlagKind(
        "libraries_differ",
        "two runs that are compared loaded different builds of CUDA's or the framework's libraries; another "
        "build may launch other kernels, under a profiler too",
        "run both in one environment, with one `LD_LIBRARY_PATH`; `assay explain RUN` lists the libraries of "
        "each",
        scope="result",
    ),
    FlagKind(
        "tools_differ",
        "two runs that are compared were measured by different releases of one profiler, which may count or "
        "lock clocks differently",
        "measure both with one release, or compare only what does not depend on it",
        scope="result",
    ),
    FlagKind(
        "drivers_differ",
        "two runs that are compared were made under different releases of NVIDIA's driver",
        "bring the boxes to one release, or run both on one box",
        scope="result",
    ),
    FlagKind(
        "programs_differ",
        "two runs of one workload that are compared ran different files as their program: it was rebuilt, or "
        "the boxes have different ones",
        "give all boxes the same file; `assay explain RUN` gives the path and SHA-256 of each",
        scope="result",
    ),
    FlagKind(
        "profiler_overhead_high",
        "the workload took more than twice as long under the profiler of a light run as without one",
        "use a lighter profiler, or longer kernels; durations of launches may be inflated",
        scope="result",
    ),
    FlagKind(
        "representative_without_cost",
        "a representative has the cost 0 on this GPU, so the launches it stands for are projected as 0",
        "record with a finer clock, or choose representatives by another rule or seed",
        scope="result",
    ),
    FlagKind(
        "other_gpu_recorded",
        "the campaign file names one GPU as a recording's device, and the recording says that it was made on "
        "another",
        "name the GPU that it was made on, or give the file that you meant",
        scope="result",
    ),
)  # fmt: skip

FLAGS: Mapping[str, FlagKind] = MappingProxyType({kind.name: kind for kind in (*_RUN_FLAGS, *_RESULT_FLAGS)})


def invalidates(name: str) -> bool:
    """Whether results refuse to use a run with the flag; False for an unknown flag."""
    kind = FLAGS.get(name)
    return kind is not None and kind.invalidates


def flag_table(scope: Scope) -> str:
    """The reference table of docs/validity.md for one scope, as Markdown."""
    lines = ["| flag | invalidates | cause | remedy |", "|---|---|---|---|"]
    for kind in FLAGS.values():
        if kind.scope == scope:
            effect = "yes" if kind.invalidates else "no"
            lines.append(f"| `{kind.name}` | {effect} | {kind.cause} | {kind.remedy} |")
    return "\n".join(lines)
