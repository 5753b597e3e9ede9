"""True cycles from a run in one pass, features from another run: the two joined launch by launch.

Replaying a launch for several passes saves and restores its memory between them, which disturbs its caches;
a single pass does not. Source: docs/nvidia-tools.md, "Passes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from assay_sampling.launches.alignment import align_window, require_match
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.levels import refuse_other_kind, source_of
from assay_sampling.notes.registry import Note, distinct_notes, make_note
from assay_server.analysis.runs.request import FailedRun, RunData

# The run in one pass measures these better.
COSTS = (
    "cycles_gpc_avg", "cycles_gpc_max", "cycles_sys_avg", "cycles_sm_active_avg", "profiled_duration_ns",
    "clock_gpc_hz", "instructions",
)  # fmt: skip


def with_true_cycles(features: Launches, cycles: Launches) -> Launches:
    """The launches that both runs have: those of ``features`` with the costs that ``cycles`` measured.

    ``replay_passes`` stays that of the features. Raises RefusedError if the runs are of different kinds,
    MisalignedError if fewer than 99 % of their launches are the same.
    """
    subject = f"{source_of(features)} and {source_of(cycles)}"
    refuse_other_kind(subject, features, cycles)
    # A window without a fixed end may end at different launches in the two runs.
    if len(features) <= len(cycles):
        matched = align_window(features, cycles)
        rows, cost_rows = matched.left_rows, matched.right_rows
    else:
        matched = align_window(cycles, features)
        rows, cost_rows = matched.right_rows, matched.left_rows
    require_match(matched, subject=subject)
    table, costs = features.take(rows).table, cycles.take(cost_rows).table
    for name in COSTS:
        if name in costs.schema.names:
            table = _with_column(table, costs.schema.field(name), costs[name])
    notes = (*features.notes, *_notes(features, cycles, len(rows)))
    return replace(features, table=table, notes=distinct_notes(notes))


def _with_column(table: pa.Table, field: pa.Field, values: pa.ChunkedArray) -> pa.Table:
    place = table.schema.get_field_index(field.name)
    return table.append_column(field, values) if place < 0 else table.set_column(place, field, values)


def _notes(features: Launches, cycles: Launches, joined: int) -> list[Note]:
    notes = [make_note("cycles_of_another_run", cycles=source_of(cycles), counters=source_of(features))]
    if joined < len(features):
        notes.append(make_note("launches_in_both", joined=joined, launches=len(features)))
    passes = cycles.column("replay_passes") if "replay_passes" in cycles.table.schema.names else np.ones(1)
    if np.nanmax(passes, initial=1.0) > 1:
        notes.append(make_note("cycles_disturbed", run=source_of(cycles), passes=float(np.nanmax(passes))))
    return notes


def paired(runs: Sequence[RunData], failed_runs: Sequence[FailedRun] = ()) -> tuple[RunData, ...]:
    """The runs; each run of features holds the run that measured its cycles in one pass, if any.

    The run of cycles is then no longer in the list; its flags join those of the run of features. If it has
    no data, the run of features keeps its own cycles, with a flag.
    """
    of_cycles = {_identity(run): run for run in runs if run.level == "detailed" and run.costs_only}
    gone = {_identity(run): run.run_id for run in failed_runs if run.level == "detailed"}
    all_runs: list[RunData] = []
    served: set[str] = set()
    for run in runs:
        if run.level != "detailed" or run.costs_only:
            all_runs.append(run)
        elif (cycles := of_cycles.get(_identity(run))) is not None:
            flags = ((name, f"{cycles.run_id}: {detail}", bad) for name, detail, bad in cycles.flags)
            all_runs.append(replace(run, cycles=cycles, flags=(*run.flags, *flags)))
            served.add(cycles.run_id)
        elif (failed := gone.get(_identity(run))) is not None:
            detail = f"run {failed}, which should have measured them in one pass, has no data"
            all_runs.append(replace(run, flags=(*run.flags, ("cycles_of_several_passes", detail, False))))
        else:
            all_runs.append(run)
    return tuple(run for run in all_runs if run.run_id not in served)


def _identity(run: RunData | FailedRun) -> tuple[object, ...]:
    return run.workload, run.device_kind, run.condition, run.repeat
