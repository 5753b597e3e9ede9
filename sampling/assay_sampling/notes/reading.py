"""Notes on what readers find in recordings."""

from __future__ import annotations

from assay_sampling.notes.base import NoteKind, count_of, launch_at, launches_of, several


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


READING = (
    NoteKind(
        "profiler_message",
        "the profiler wrote an error or a warning into the file",
        lambda message: f"the profiler says: {message}",
    ),
    NoteKind(
        "profiler_lost_events",
        "the profiler says that it dropped or lost events",
        lambda message: f"the profiler says: {message}",
        "launches_dropped",
    ),
    NoteKind(
        "profiler_doubt",
        "the profiler warns that events may be missing; it warns of many complete traces too",
        lambda message: f"the profiler warns: {message}",
    ),
    NoteKind(
        "kernels_lost",
        "launch calls have no kernel in the file",
        lambda calls: (
            "the profiler lost kernels: "
            + (f"{calls:,} launch calls have" if calls != 1 else "1 launch call has")
            + " no kernel in the file"
        ),
        "launches_dropped",
    ),
    NoteKind(
        "capture_cut",
        "the capture ended before the kernels of the last launch calls ran",
        lambda calls: (
            "the capture ended before the kernels of "
            f"{'its last launch call' if calls == 1 else f'its last {calls:,} launch calls'} ran"
        ),
        "capture_cut",
    ),
    NoteKind(
        "light_window",
        "a light run was ended at its limit, so only its first launches count",
        lambda window: f"the light run has {window}",
    ),
    NoteKind(
        "window_is_range",
        "the program has an NVTX range `assay`, so only the launches in it count",
        lambda range, launches, of: (
            f"only the {launches:,} of {of:,} launches in the NVTX range {range!r} count"
        ),
    ),
    NoteKind(
        "messages_left_out",
        "the profiler wrote more messages than the notes show",
        lambda messages: (
            f"{count_of(messages, 'more message', 'more messages')} of the profiler "
            f"{'is' if messages == 1 else 'are'} not shown here: see the table DIAGNOSTIC_EVENT"
        ),
    ),
    NoteKind(
        "graphs_as_a_whole",
        "CUDA graphs were traced as a whole, so their kernels are not in the file",
        lambda graph_launches: (
            f"{count_of(graph_launches, 'graph launch was', 'graph launches were')} traced as a whole, the "
            "kernels are not in the file: profile with --cuda-graph-trace=node"
        ),
        "launches_missing",
    ),
    NoteKind(
        "fewer_than_announced",
        "the profiler announced more launches than the file holds",
        lambda announced, launches: (
            f"the profiler announced {announced:,} launches, but the file holds {launches:,}: it may be cut"
        ),
        "launches_missing",
    ),
    NoteKind(
        "lines_skipped",
        "lines that are not launches, such as output of the application, were skipped",
        lambda lines, first_line: (
            f"{count_of(lines, 'line that is not a launch was', 'lines that are not launches were')} "
            f"skipped, the first is line {first_line}"
        ),
    ),
    NoteKind(
        "no_api_call",
        "launches have no API call in the file, so they are ordered by their start on the GPU",
        lambda launches: (
            f"{launches_of(launches)} {'has' if launches == 1 else 'have'} no API call in the file: ordered "
            "by the start on the GPU"
        ),
    ),
    NoteKind(
        "short_names",
        "kernels are known by their short names only, so those that differ in parameters look alike",
        lambda: "kernels are known by their short names only",
    ),
    NoteKind(
        "devices_unknown",
        "devices appear only later in the file, so their kind is not known",
        lambda devices: (
            f"devices {', '.join(map(str, devices))} appear only later in the file: their kind is not known"
        ),
    ),
)  # fmt: skip

SHAPES_AND_COUNTERS = (
    NoteKind(
        "shapes_totals_only",
        "only total numbers of blocks and threads are known (Nsight Compute's classic layout)",
        lambda: "only total numbers of blocks and threads are known: grid_x and block_x hold them",
        "shapes_totals_only",
    ),
    NoteKind(
        "shapes_unknown",
        "launches have no grid or no block in the file, as kernels of a graph that ROCm replays",
        lambda launches: f"grid or block of {launches_of(launches)} are not in the file: they are not known",
    ),
    NoteKind(
        "units_assumed",
        "the file has no units row",
        lambda: "the file has no units row: base units are assumed",
        "units_assumed",
    ),
    NoteKind(
        "counter_not_measured",
        "launches have no value (`n/a`, NaN) of a counter",
        lambda counter, launches, place, first: (
            f"{counter} was not measured for {launches_of(launches)}, the first is {place} {first}"
        ),
        "counters_nan",
    ),
    NoteKind(
        "counter_of_several_metrics",
        "several metrics of the file measure one counter; one of them is read",
        lambda counter, metric, others: (
            f"{counter} is read from {metric}, ignoring {', '.join(others)}"
        ),
    ),
    NoteKind(
        "metric_unreadable",
        "a metric of a report is left out because its unit is unknown or its values are not numbers; only "
        "an analysis that needs it refuses",
        lambda counter, metric, cause: f"{counter} is left out: {metric} cannot be read ({cause})",
        "metrics_missing",
    ),
    NoteKind(
        "metric_late",
        "a metric is ignored because the first launches do not have it",
        lambda metric: f"{metric} is ignored: the first launches do not have it",
    ),
    NoteKind(
        "values_rounded",
        "values are rounded as the details page prints them",
        lambda: "values are rounded as the details page prints them: export the raw page for exact ones",
    ),
    NoteKind(
        "shared_memory_static_only",
        "the dynamic part of the shared memory was not collected",
        lambda: "shared memory is the static part only: the dynamic part was not collected",
    ),
)  # fmt: skip

DOUBTFUL_NUMBERS = (
    NoteKind(
        "ids_missing",
        "Nsight Compute numbers its launches without gaps, but the file has gaps",
        lambda missing, first, last: (
            f"{count_of(missing, 'launch ID', 'launch IDs')} between {first} and {last} "
            f"{'is' if missing == 1 else 'are'} not in the file"
        ),
        "launches_missing",
    ),
    NoteKind(
        "kernel_events_twice",
        "a trace or export has kernels twice, equal in everything; each counts once",
        lambda events: (
            f"{count_of(events, 'kernel event is', 'kernel events are')} in the file twice, and "
            f"{'counts' if events == 1 else 'count'} once"
        ),
    ),
    NoteKind(
        "percent_over_100",
        "a share is over 100 % by more than rounding, as counters of several passes over a short launch give "
        "it",
        lambda counter, launches, greatest, process, launch: (
            f"{counter} is over 100 % for {launches_of(launches)}, up to {greatest:g} %, first for launch "
            f"{launch} of process {process}: counters of several passes do not fit together"
        ),
    ),
    NoteKind(
        "zero_cost",
        "launches cost 0 in a quantity that is scored: the clock is too coarse for them, or lost them",
        lambda quantity, launches, process, launch: (
            f"{quantity} is 0 for {launches_of(launches)}, first for launch {launch} of process {process}"
        ),
    ),
    NoteKind(
        "representative_without_cost",
        "a representative costs 0, so the launches that it stands for are projected as 0",
        lambda quantity, representatives, of, process, launch, unit="launch": (
            f"{representatives:,} of {count_of(of, 'representative', 'representatives')} "
            f"{'costs' if representatives == 1 else 'cost'} 0 in {quantity}, first "
            f"{launch_at(process, launch, unit)}: the {several(unit)} that "
            f"{'it stands' if representatives == 1 else 'they stand'} for are projected as 0"
        ),
        "representative_without_cost",
    ),
)  # fmt: skip

RANGES_AND_OPERATORS = (
    NoteKind(
        "start_stop_ranges_unread",
        "start/stop ranges of NVTX are not read",
        lambda: "start/stop ranges of NVTX are not read, only push/pop ranges",
    ),
    NoteKind(
        "nvtx_ranges_unread",
        "NVTX ranges have an unknown form",
        lambda launches: f"the NVTX ranges of {launches_of(launches)} have an unknown form",
    ),
    NoteKind(
        "no_operators",
        "the trace has no operators",
        lambda: "the trace has no operators",
    ),
    NoteKind(
        "operators_joined",
        "how operators and launches were joined, and how many launches have one",
        lambda way, joined, launches: (
            f"operators are joined by {way}: {joined:,} of {launches_of(launches)} "
            f"{'has' if joined == 1 else 'have'} one"
        ),
    ),
    NoteKind(
        "operations_cross",
        "operations that overlap without one containing the other",
        lambda launches, operation: (
            f"{launches_of(launches)} {_is(launches)} in ranges of one thread that cross, first {operation}; "
            "of operators and library routines the one that began first counts, of other ranges the last"
        ),
    ),
    NoteKind(
        "operations_nested_deep",
        "ranges nested deeper than Assay looks; the inner ones decide what the operation is",
        lambda launches, depth: (
            f"{launches_of(launches)} {_is(launches)} in ranges nested more than {depth} deep: their "
            f"operations are known by the inner {depth}"
        ),
    ),
    NoteKind(
        "operations_cut",
        "operations that had not ended when the recording ended, so their cost is not complete",
        lambda launches, operation: (
            f"{launches_of(launches)} {_is(launches)} in an operation that had not ended when the recording "
            f"ended, first {operation}: its cost is not complete"
        ),
    ),
    NoteKind(
        "operations_share_streams",
        "threads with operations of their own launch into one stream; launches belong to the operations of "
        "the thread that calls",
        lambda threads: (
            f"{threads} threads launch into one stream: each launch belongs to the operation of the thread "
            "that calls"
        ),
    ),
    NoteKind(
        "operations_without_serial_numbers",
        "ranges that say neither when they begin nor which call they are, so calls in a row look like one",
        lambda launches, operation: (
            f"{launches_of(launches)} {_is(launches)} in ranges without serial numbers, first "
            f"{operation}: calls of one range in a row count as one"
        ),
    ),
    NoteKind(
        "kernels_renamed_by_ranges",
        "kernels have the names of NVTX ranges (--print-nvtx-rename), so their own names are lost",
        lambda launches: (
            f"the kernels of {launches_of(launches)} have the names of their NVTX ranges instead of their "
            "own: export the page again without --print-nvtx-rename"
        ),
    ),
)  # fmt: skip

SEVERAL_FILES = (
    NoteKind(
        "gpu_unknown",
        "one of several files does not say on which GPU it was recorded",
        lambda files: (
            f"{', '.join(files)} {'does' if len(files) == 1 else 'do'} not name the GPU: assumed to be that "
            "of the other files"
        ),
    ),
    NoteKind(
        "ranks_share_no_kernel",
        "a rank launches no kernel that another rank launches",
        lambda files: (
            f"{', '.join(files)} {'has' if len(files) == 1 else 'have'} no kernel in common with the other "
            f"ranks: {'is it' if len(files) == 1 else 'are they'} of one job?"
        ),
    ),
)  # fmt: skip
