"""Notes on a simulator's logs, on projections from them, on cold starts and scale models."""

from __future__ import annotations

from assay_sampling.notes.base import NoteKind, count_of, launches_of

SIMULATOR_LOGS = (
    NoteKind(
        "log_cut_in_sample",
        "an interval log ends within a sample",
        lambda line: f"the log ends within the sample at line {line}, which is left out",
    ),
    NoteKind(
        "log_cut_in_statistics",
        "a simulator's output ends within the statistics of a launch",
        lambda line: f"the log ends within the statistics at line {line}, which are left out",
    ),
    NoteKind(
        "log_cut_in_compression",
        "the compressed file of a simulator's output is cut off: what comes before the cut is read",
        lambda: "the compressed file is cut off before its end: what comes before is read",
    ),
    NoteKind(
        "intervals_cut_in_compression",
        "the compressed file of an interval log is cut off: what comes before the cut is read",
        lambda: "the compressed interval log is cut off before its end: what comes before is read",
    ),
    NoteKind(
        "launches_at_once",
        "a simulator ran several launches at the same time and printed their statistics together",
        lambda launches: (
            f"launches {', '.join(map(str, launches))} ran at the same time: the log has only the sum of "
            "their statistics"
        ),
    ),
    NoteKind(
        "launch_without_statistics",
        "the simulation ended within a launch",
        lambda launch, kernel: (
            f"launch {launch} ({kernel or 'without a name'}) has no statistics: the run ended within it"
        ),
    ),
    NoteKind(
        "launch_not_whole",
        "the simulation was ended early within a launch",
        lambda launch, line: (
            f"the simulation was ended within launch {launch}: its statistics at line {line} are left out"
        ),
    ),
    NoteKind(
        "launches_side_by_side",
        "simulated launches of several streams ran side by side, so their active cycles are unknown",
        lambda launches, first: (
            f"{count_of(launches, 'launch', 'launches')} ran beside others, first launch {first}: cycles "
            "count from the end of the launch before, and active cycles are unknown"
        ),
    ),
    NoteKind(
        "launch_latency_unknown",
        "a simulator's output does not echo the launch latency, so active cycles are unknown",
        lambda: "the log does not echo -gpgpu_kernel_launch_latency: active cycles are unknown",
    ),
    NoteKind(
        "cycles_below_latency",
        "simulated launches took fewer cycles than the launch latency",
        lambda launches, first: (
            f"{count_of(launches, 'launch', 'launches')} took fewer cycles than the launch latency, first "
            f"launch {first}: their active cycles are unknown"
        ),
    ),
    NoteKind(
        "log_may_be_cut",
        "a simulator's output does not say that the simulator ended",
        lambda: "the log does not say that the simulator ended: it may be cut off",
    ),
    NoteKind(
        "log_synthetic",
        "a simulator's output is marked synthetic: it was made up",
        lambda: "the log is marked synthetic: it was made up, and no simulator ran",
    ),
    NoteKind(
        "intervals_cut_in_launch",
        "an interval log ends before the launch that it samples",
        lambda launch, cycle, cycles: (
            f"the interval log ends within launch {launch}, at cycle {cycle:,} of {cycles:,}"
        ),
    ),
)  # fmt: skip
PROJECTIONS = (
    NoteKind(
        "intervals_missing",
        "a launch is not projected: no interval log was given",
        lambda: "there is no interval log",
    ),
    NoteKind(
        "intervals_end_before",
        "a launch is not projected: the interval log ends before it",
        lambda: "the interval log ends before it",
    ),
    NoteKind(
        "shorter_than_interval",
        "a launch is not projected: no sample was taken while it ran",
        lambda interval_cycles: f"it is shorter than the sampling interval of {interval_cycles:,} cycles",
    ),
    NoteKind(
        "blocks_unknown",
        "a launch is not projected: its blocks, or those of an SM, are not known",
        lambda: "the log does not say how many blocks it has or how many an SM holds",
    ),
    NoteKind(
        "instructions_unknown",
        "a launch is not projected: the run ended within it",
        lambda: "the run ended within it: its thread instructions are not known",
    ),
    NoteKind(
        "no_sample",
        "a rule does not stop: the launch has no sample",
        lambda: "there is no sample",
    ),
    NoteKind(
        "window_not_filled",
        "a rule does not stop: there are fewer samples than the window needs",
        lambda samples, used, window: (
            f"of {samples:,} samples {used:,} are in use, fewer than a window of {window:,}"
        ),
    ),
    NoteKind(
        "never_stable",
        "a rule does not stop: the IPC never spreads less than `s`",
        lambda least_spread, s: (
            f"the IPC is never stable: its least spread is {least_spread:.3g}, s is {s:g}"
        ),
    ),
    NoteKind(
        "wave_not_finished",
        "a rule does not stop: the IPC is stable, and fewer blocks than a wave have finished",
        lambda finished_blocks, wave_blocks: (
            f"{finished_blocks:g} blocks have finished where it is stable, of {wave_blocks:,} in a wave"
        ),
    ),
    NoteKind(
        "wave_not_ended",
        "a rule does not stop: the wave in which the IPC becomes stable does not end",
        lambda finished_blocks, needed_blocks: (
            f"{finished_blocks:g} blocks have finished, of {needed_blocks:g} until the end of the wave in "
            "which the IPC becomes stable"
        ),
    ),
    NoteKind(
        "small_grid_of_unknown_instructions",
        "a rule does not stop: the grid is smaller than a wave, and its instructions are not known",
        lambda: "the grid is smaller than a wave, and its instructions are not known",
    ),
    NoteKind(
        "too_few_waves",
        "the rule `waves` does not stop: the grid has too few waves to compare",
        lambda blocks, wave_blocks, least: (
            f"the grid has {blocks / wave_blocks:.3g} waves ({blocks:,} blocks, {wave_blocks:,} in a wave), "
            f"and the rule compares waves from the end of wave {least} on"
        ),
    ),
    NoteKind(
        "no_sample_after_waves",
        "the rule `waves` does not stop: no sample with blocks left shows enough ends of waves",
        lambda least: f"no sample that leaves blocks to project comes after {least} observed ends of waves",
    ),
    NoteKind(
        "waves_disagree",
        "the rule `waves` does not stop: projections by blocks and by instructions, or the IPC of two waves, "
        "never agree",
        lambda least_disagreement, tolerance_percent: (
            f"waves disagree about the rest of the launch by {least_disagreement:.3g} % or more, and the "
            f"tolerance is {tolerance_percent:g} %"
        ),
    ),
)  # fmt: skip
COLD_STARTS = (
    NoteKind(
        "flushed_by_switch",
        "the flushed run of a simulator was made by its own switch, which leaves part of the caches warm",
        lambda file: (
            f"{file} was flushed by the simulator's own switch, which drops only dirty lines of half the "
            "slices: it is not a cold cache; simulate the launches alone instead"
        ),
    ),
    NoteKind(
        "not_corrected",
        "a launch, or all of a log, cannot be corrected for cold caches",
        lambda error, subject, cause, remedy: f"{cause}; {remedy}" if remedy else cause,
    ),
    NoteKind(
        "reuse_unknown",
        "a launch is not corrected: the reuse of the launch before it is not known",
        lambda: "the reuse of the launch before it is not known",
    ),
    NoteKind(
        "line_size_unknown",
        "a launch is not corrected: the line size of the L2 is not known",
        lambda: "the log does not echo the line size of the L2",
    ),
    NoteKind(
        "launch_cut",
        "a launch is not corrected: the run ended within it",
        lambda: "the run ended within it",
    ),
    NoteKind(
        "l2_misses_unknown",
        "a launch is not corrected: its L2 misses are not known",
        lambda: "the log has no L2 misses of it",
    ),
)  # fmt: skip
HAND_OVERS = (
    NoteKind(
        "names_compared_without_arguments",
        "kernel names of a trace or log are mangled and those of the selection are not, or the other way "
        "round: namespaces and functions were compared, template arguments were not",
        lambda: (
            "kernel names were compared by namespace and function, without template arguments: one side has "
            "them mangled"
        ),
    ),
    NoteKind(
        "launch_ids_realigned",
        "a tracer missed launches and so numbered later ones too low: selected launches were found by "
        "kernel, shapes and order",
        lambda moved, launches, least, most, by_recording: (
            f"the tracer missed launches: {moved:,} of the {launches:,} selected ones have traces with lower "
            f"ids ({least:,}{'' if most == least else f' to {most:,}'} lower), found by kernel, shapes and "
            "order " + ("of the recording" if by_recording else "of the selected launches alone")
        ),
    ),
    NoteKind(
        "names_not_in_traces",
        "traces do not name their kernels: the number of launches was compared, and blocks and warps of the "
        "selected ones",
        lambda: (
            "these traces do not name kernels: their number was compared with the selection, and the blocks "
            "and warps of the selected launches"
        ),
    ),
    NoteKind(
        "ranges_too_long",
        "the ranges of launches to trace do not fit into a variable of the environment",
        lambda text_bytes: (
            f"the ranges of launches take {text_bytes:,} bytes, more than a variable of the environment "
            "holds: use ids.txt"
        ),
    ),
    NoteKind(
        "launches_on_several_streams",
        "selected launches are of several streams: a simulator that runs streams side by side overlaps them",
        lambda streams: (
            f"the selected launches are of {streams:,} streams: with -gpgpu_concurrent_kernel_sm 1 they run "
            "at the same time, and have no cycles of their own; simulate with 0, or with 'assay simulate'"
        ),
    ),
    NoteKind(
        "timeline_without_groups",
        "a selection without labels: a timeline shows the groups of representatives only",
        lambda: "the selection has no labels: only the groups of its representatives are known",
    ),
    NoteKind(
        "timeline_laid_end_to_end",
        "a recording does not say when launches started: a timeline lays them end to end",
        lambda quantity: (
            f"the recording does not say when launches started: they are laid end to end by {quantity}"
        ),
    ),
    NoteKind(
        "log_counts_launches",
        "a simulator's log ends within a launch: which of its launches count",
        lambda log, counted, launches, left_out: (
            f"{log} ends within a launch: {launches_of(launches)} of it "
            f"{'counts' if launches == 1 else 'count'} ({counted or 'none'}), launch {left_out} does not"
        ),
    ),
    NoteKind(
        "log_cut_after_launches",
        "a simulator's log is cut off, but not within a launch: which of its launches count",
        lambda log, counted, launches: (
            f"{log} is cut off: {launches_of(launches)} of it {'counts' if launches == 1 else 'count'} "
            f"({counted or 'none'})"
        ),
    ),
    NoteKind(
        "stopped_launches_projected",
        "simulations that were ended within a launch count with their projected cycles",
        lambda log, launches: (
            f"{log} ends within launch {', '.join(map(str, launches))}, which counts with its projected "
            "cycles: its own are unknown, so there is no PKS error"
        ),
    ),
    NoteKind(
        "replays_left_out",
        "launches of which only memory instructions were simulated, to warm caches, count as cost alone",
        lambda log, launches: (
            f"{log}: {launches_of(launches)} only warmed caches with memory instructions, and "
            f"{'counts' if launches == 1 else 'count'} as cost alone"
        ),
    ),
    NoteKind(
        "no_silicon_cycles",
        "there are no cycles of silicon to compare simulations with",
        lambda: (
            "the selection was not made on cycles of silicon: name a recording with --recording for errors "
            "against silicon"
        ),
    ),
    NoteKind(
        "no_full_simulation",
        "not all launches of a workload were simulated",
        lambda: (
            "not all launches were simulated: the simulator's own error is unknown, and the speedup of PKA "
            "is over PKS"
        ),
    ),
    NoteKind(
        "designs_of_several_clocks",
        "designs of a GPU have other core clocks, so a speedup in cycles is none in time",
        lambda: (
            "the designs' core clocks differ: speedups are of cycles; for time, multiply by the clocks' ratio"
        ),
    ),
    NoteKind(
        "simulated_from_cold_caches",
        "representatives were simulated apart, each from empty caches",
        lambda: (
            "each launch started with cold caches: --warm-up tail in the same folder shows what that costs"
        ),
    ),
    NoteKind(
        "designs_projected",
        "simulations of representatives were ended by a rule, and their cycles projected",
        lambda launches: (
            f"{count_of(launches, 'simulation', 'simulations')} ended early by a rule, with projected "
            "cycles: no interval has the error of projection"
        ),
    ),
    NoteKind(
        "nothing_projected",
        "without interval logs each launch is simulated to its end",
        lambda: "there is no interval log: each launch is simulated to its end, so PKA is PKS",
    ),
    NoteKind(
        "representatives_of_the_full_run",
        "representatives were not simulated apart: their cycles are those of the full run",
        lambda: (
            "the representatives' cycles are those of the full run, with its warm caches: a simulation of "
            "them alone starts cold"
        ),
    ),
)
SCALE_MODELS = (
    NoteKind(
        "rule_not_calibrated",
        "a prediction has no interval",
        lambda rule: (
            f"no interval: the rule {rule} is not in the calibration; give workloads with --calibration"
        ),
    ),
    NoteKind(
        "calibrated_on_other_sizes",
        "intervals of a prediction come from scale models of other sizes, so they are extrapolated",
        lambda small, large: (
            f"the intervals are extrapolated: their errors were found with scale models of {small} and "
            f"{large}; give workloads with these sizes and known targets with --calibration"
        ),
    ),
    NoteKind(
        "no_miss_rate_curve",
        "the workload has no miss rates, so a cliff would not be seen",
        lambda: "no miss-rate curve: a cliff would not be seen",
    ),
    NoteKind(
        "cliff_between_scale_models",
        "the miss rate falls between the two scale models",
        lambda factor: (
            f"mpki falls by more than {factor:g}x between the scale models: their correction measures that "
            "cliff, which will not recur"
        ),
    ),
    NoteKind(
        "correction_not_positive",
        "a size is not predicted: the larger scale model is no faster than the smaller one",
        lambda: "the larger scale model is no faster than the smaller one, so the correction is not positive",
    ),
    NoteKind(
        "miss_rate_missing",
        "a size is not predicted: a miss rate on the way there is not known",
        lambda size: (
            f"no mpki at {size}, so a cliff cannot be ruled out; give the miss rate there, or say "
            "that the scaling is weak"
        ),
    ),
    NoteKind(
        "memory_share_missing",
        "a size is not predicted: it lies at or beyond a cliff, and `f_mem` is not known",
        lambda factor, size, scale_model: (
            f"mpki falls by more than {factor:g}x at {size}, and without f_mem at {scale_model} the cliff "
            "factor 1 / (1 - f_mem) cannot be applied"
        ),
    ),
    NoteKind(
        "prediction_not_positive",
        "a size is not predicted: the rule gives no positive IPC there",
        lambda: "the prediction is not positive",
    ),
    NoteKind(
        "workload_not_predicted",
        "an evaluation of scale models leaves out a workload at a size",
        lambda rule, workload, size, why, reason: f"{rule}: {workload} at {size}: {why}",
    ),
)  # fmt: skip
