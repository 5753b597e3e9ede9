"""The window that a program names itself: launches in its NVTX range ``assay`` count alone, if it has one.

A light recording with such launches is cut to them. They keep their ordinals, which count from the program's
first launch as Nsight Compute's ``--launch-skip`` and tracing tools do, so a slice with counters has the same
launches at both levels. Without a filter ``--launch-skip`` counts all launches; with one it counts those
"that match the kernel filters only" (``ncu --help``), and no document says whether NVTX ranges are kernel
filters. So slices are asked for without ``--nvtx-include``, by ordinals, and each must match the light
launches that have them.

Source: ours; ``ncu --help`` of 2022.3.0 and 2024.1.1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.launches.in_memory import WINDOW_RANGE, Launches
from assay_sampling.launches.table import LaunchBatch, Names
from assay_sampling.notes.registry import make_note


def window_ids(names: Names) -> frozenset[int]:
    """The ids of the paths of nested ranges that lie in a range of that name."""
    return frozenset(identifier for identifier, text in names.items() if _in_window(text))


def _in_window(path: str) -> bool:
    return WINDOW_RANGE in path and WINDOW_RANGE in path.split("/")


def rows_in_window(launches: Launches) -> np.ndarray:
    """The rows that lie in the range, shape (m,), ascending; empty where the program has no such range."""
    ids = window_ids(launches.names) if launches.metadata.level == "light" else frozenset()
    if not ids:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.isin(launches.array("nvtx_id"), np.array(sorted(ids), np.uint64)))


def batch_in_window(batch: LaunchBatch, ids: frozenset[int]) -> LaunchBatch:
    """The launches of a batch that lie in the range, with all its names."""
    nvtx_ids = pa.array(sorted(ids), pa.uint64())
    return LaunchBatch(
        batch.records.filter(pc.is_in(batch.records["nvtx_id"], value_set=nvtx_ids)), batch.new_names
    )


def restricted(launches: Launches, rows: np.ndarray) -> Launches:
    """The launches of these rows, with a note that says of how many; ``launches`` is in memory."""
    return as_window(launches.take(rows), len(launches))


def as_window(launches: Launches, of: int) -> Launches:
    """Launches that are the window of a recording of ``of`` launches, with the note that says so."""
    note = make_note("window_is_range", range=WINDOW_RANGE, launches=len(launches), of=of)
    return replace(launches, notes=(*launches.notes, note), in_named_range=True)
