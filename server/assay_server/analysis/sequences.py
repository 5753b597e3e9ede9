"""Do runs of one workload launch the same kernels in the same order? Kernel, grid and block are compared.

Every live run of a workload on a GPU at all of its SMs is compared with the first light one, launch by
launch within each process; a detailed run by the launches that it has. Runs that agree are not reported.
Where the numbers of launches agree and kernels or shapes do not, a library chose other kernels this time
(autotuning); where the numbers differ, the workload itself does other work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from assay_sampling.errors import AssayError
from assay_sampling.launches import Launches
from assay_server.analysis import rows
from assay_server.analysis.compared import DeviceRuns, Entry, HeldPairs, empty_entry, flag
from assay_server.analysis.request import RunData

_COMPARED = ("kernel_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_MOST_LAUNCHES = 1 << 40  # of a process


def sequence_entries(device: DeviceRuns, held: HeldPairs) -> Iterator[Entry]:
    """An entry for each run whose launches differ from the reference's; an AssayError becomes its status."""
    runs = [run for run in device.runs if run.live and run.launches and _all_sms(run)]
    reference = next((run for run in runs if run.level == "light"), None)
    if reference is None:
        return
    for run in runs:
        if run is not reference:
            entry = _compared(device, reference, run, held)
            if entry is not None:
                yield entry
            held.release()


def _all_sms(run: RunData) -> bool:
    return run.condition.sm_percent in (None, 100.0)


def _compared(device: DeviceRuns, reference: RunData, run: RunData, held: HeldPairs) -> Entry | None:
    entry: Entry = {
        **empty_entry(device, run.condition), "level": run.level, "under_mps": run.under_mps,
        "reference": reference.run_id, "run": run.run_id, "launches": run.launches,
        "reference_launches": reference.launches, "differing": None, "first_difference": None,
    }  # fmt: skip
    entry["runs"] = [reference.run_id, run.run_id]
    try:
        found = difference(held.launches(reference), held.launches(run), window=run.level == "detailed")
    except AssayError as error:
        rows.fail(entry, error)
        return entry
    if found is None:
        return None
    entry |= found
    first = found["first_difference"]
    detail = (
        f"against {reference.run_id}: {found['differing']:,} launches differ, the first is {_said(first)}"
    )
    flag(entry, run, "sequence_differs" if found["counts_differ"] else "kernel_choice_differs", detail)
    return entry


def difference(reference: Launches, other: Launches, *, window: bool) -> dict[str, Any] | None:
    """Where two runs launch different things; None where they agree.

    Args:
        reference: sorted by process and launch, as :class:`Launches` always are.
        other: as well.
        window: ``other`` holds only a part of the launches, so that what it lacks is no difference.

    ``differing`` counts launches of either that the other lacks, or that differ in kernel, grid or block.
    """
    left, right = _places(reference), _places(other)
    _, left_rows, right_rows = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    unequal = np.zeros(len(left_rows), dtype=bool)
    for name in _COMPARED:
        unequal |= reference.column(name)[left_rows] != other.column(name)[right_rows]
    extra = len(right) - len(right_rows)
    lacking = 0 if window else len(left) - len(left_rows)
    if not (unequal.any() or extra or lacking):
        return None
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
    place, left_row, right_row = min(firsts, key=lambda found: found[0])
    return {
        "differing": int(unequal.sum()) + extra + lacking,
        "counts_differ": bool(extra or lacking),
        "first_difference": {
            "process": place // _MOST_LAUNCHES,
            "launch": place % _MOST_LAUNCHES,
            "reference": _described(reference, left_row),
            "run": _described(other, right_row),
        },
    }


def _places(launches: Launches) -> np.ndarray:
    """One ascending number for each (process, launch), shape (n,)."""
    process = launches.column("process").astype(np.int64)
    places: np.ndarray = process * _MOST_LAUNCHES + launches.column("launch").astype(np.int64)
    return places


def _described(launches: Launches, row: int | None) -> str:
    """A launch for people; "nothing" where there is none."""
    if row is None:
        return "nothing"
    record = launches.table.slice(row, 1).to_pylist()[0]
    name = launches.names[record["kernel_id"]]
    shapes = ("x".join(str(record[f"{what}_{axis}"] or "?") for axis in "xyz") for what in ("grid", "block"))
    return f"{name} [{', '.join(shapes)}]"


def _said(first: dict[str, Any]) -> str:
    where = f"launch {first['launch']:,} of process {first['process']}"
    return f"{where}: {first['run']} instead of {first['reference']}"
