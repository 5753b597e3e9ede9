"""Whether runs of one workload launch the same sequence of kernels, grids and blocks.

Each live run of a workload on all SMs of a GPU is compared with the first light run, launch by launch within
each process; a detailed run only by the launches that it has. Runs that agree are not reported. If the
numbers of launches agree but kernels or shapes differ, a library chose other kernels this time (autotuning);
if the numbers differ, the workload itself did other work.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from assay_report.model.compared import FirstDifference, SequenceEntry
from assay_sampling.launches.in_memory import Launches
from assay_server.analysis import rows
from assay_server.analysis.comparisons.device_runs import DeviceRuns
from assay_server.analysis.runs.request import RunData

_COMPARED = ("kernel_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_MOST_LAUNCHES = 1 << 40  # per process


def sequence_entries(device: DeviceRuns) -> Iterator[SequenceEntry]:
    """An entry for each run whose launches differ from the reference's; an AssayError becomes its status."""
    on_all_sms = [run for run in device.runs if run.condition.sm_percent in (None, 100.0)]
    runs = [run for run in on_all_sms if run.live and run.launches]
    reference = next((run for run in runs if run.level == "light"), None)
    if reference is None:
        return
    for run in runs:
        if run is not reference:
            entry = _compared(device, reference, run)
            if entry.status != "ok" or entry.differing:
                yield entry
            device.memory.release()


def _compared(device: DeviceRuns, reference: RunData, run: RunData) -> SequenceEntry:
    entry = device.entry(
        SequenceEntry,
        run.condition,
        runs=[reference.run_id, run.run_id],
        level=run.level,
        under_mps=run.under_mps,
        reference=reference.run_id,
        run=run.run_id,
        launches=run.launches,
        reference_launches=reference.launches,
    )
    with rows.status_of(entry):
        _compare(entry, device.memory.launches(reference), device.memory.launches(run))
    first = entry.first_difference
    if first is not None:
        detail = (
            f"against {reference.run_id}: {entry.differing:,} launches differ, the first is launch "
            f"{first.launch:,} of process {first.process}: {first.run} instead of {first.reference}"
        )
        name = "sequence_differs" if entry.counts_differ else "kernel_choice_differs"
        rows.flag(entry, run.run_id, name, detail)
    return entry


def _compare(entry: SequenceEntry, reference: Launches, other: Launches) -> None:
    """Fill in where the launches of two runs differ; nothing if they agree.

    ``differing`` counts launches that only one run has, or that differ in kernel, grid or block;
    ``counts_differ``: one run has launches that the other lacks. A detailed run holds only part of the
    launches, so launches that it lacks do not count. Both are sorted by process and launch, as
    :class:`Launches` always are.
    """
    left, right = _places(reference), _places(other)
    _, left_rows, right_rows = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    unequal = np.zeros(len(left_rows), dtype=bool)
    for name in _COMPARED:
        unequal |= reference.column(name)[left_rows] != other.column(name)[right_rows]
    extra = len(right) - len(right_rows)
    lacking = 0 if entry.level == "detailed" else len(left) - len(left_rows)
    firsts: list[tuple[int, int | None, int | None]] = []
    if unequal.any():
        at = int(np.argmax(unequal))
        firsts.append((int(left[left_rows[at]]), int(left_rows[at]), int(right_rows[at])))
    if extra:
        row = int(np.argmax(~np.isin(right, left)))
        firsts.append((int(right[row]), None, row))
    if lacking:
        row = int(np.argmax(~np.isin(left, right)))
        firsts.append((int(left[row]), row, None))
    if not firsts:
        return
    place, left_row, right_row = min(firsts, key=lambda each: each[0])
    entry.differing, entry.counts_differ = int(unequal.sum()) + extra + lacking, bool(extra or lacking)
    entry.first_difference = FirstDifference(
        process=place // _MOST_LAUNCHES,
        launch=place % _MOST_LAUNCHES,
        reference=_described(reference, left_row),
        run=_described(other, right_row),
    )


def _places(launches: Launches) -> np.ndarray:
    """One ascending number for each (process, launch), shape (n,)."""
    process = launches.column("process").astype(np.int64)
    places: np.ndarray = process * _MOST_LAUNCHES + launches.column("launch").astype(np.int64)
    return places


def _described(launches: Launches, row: int | None) -> str:
    """A launch for people; "nothing" without a launch."""
    if row is None:
        return "nothing"
    record = launches.table.slice(row, 1).to_pylist()[0]
    name = launches.names[record["kernel_id"]]
    shapes = ("x".join(str(record[f"{what}_{axis}"] or "?") for axis in "xyz") for what in ("grid", "block"))
    return f"{name} [{', '.join(shapes)}]"
