"""Which launches of which process an attempt has sent: none may come twice, and measured ones leave none out.

What an agent measures itself it numbers without gaps, from the first launch that it kept of each process on:
a number that is left out is a launch that was lost between the profiler and here. A recording may hold
chosen launches only, in any order, so its numbers may have gaps; the same launch twice is wrong in both.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from assay_sampling.errors import LaunchTableError

_SPLIT = "give each recording once; a file with several recordings must be split"
_REPORT = "look at the log of the attempt; where that tells nothing, report it to the authors of Assay"


class LaunchOrdinals:
    """The launches of one attempt as intervals, one for each process where they were numbered in order.

    Memory: 16 bytes for each interval. Time: a sort of the new launches and of all intervals of a process.
    """

    def __init__(self, *, may_skip: bool) -> None:
        self._may_skip = may_skip
        self._intervals: dict[int, np.ndarray] = {}  # shape (n, 2): first and last; ascending, apart

    def add(self, batches: Iterable[pa.RecordBatch], subject: str) -> None:
        """Take in the launches of one more segment; where it raises LaunchTableError, none of them."""
        columns = [
            (batch.column("process").to_numpy().astype(np.int64), batch.column("launch").to_numpy())
            for batch in batches
        ]
        if not columns:
            return
        process = np.concatenate([each[0] for each in columns])
        launch = np.concatenate([each[1] for each in columns])
        changed = {
            ordinal: self._joined(ordinal, launch[process == ordinal], subject)
            for ordinal in np.unique(process).tolist()
        }
        self._intervals.update(changed)

    def _joined(self, process: int, launch: np.ndarray, subject: str) -> np.ndarray:
        known = self._intervals.get(process, np.empty((0, 2), np.int64))
        found = np.concatenate([known, _intervals(np.sort(launch))])
        found = found[np.argsort(found[:, 0], kind="stable")]
        overlap = np.flatnonzero(found[1:, 0] <= found[:-1, 1])
        if len(overlap):
            twice = f"launch {found[overlap[0] + 1, 0]} of process {process} stands twice in its attempt"
            raise LaunchTableError(subject, twice, _SPLIT if self._may_skip else _REPORT)
        begins = np.flatnonzero(found[:, 0] - 1 != np.concatenate([[-2], found[:-1, 1]]))
        joined = np.stack([found[begins, 0], found[np.append(begins[1:], len(found)) - 1, 1]], axis=1)
        if len(joined) > 1 and not self._may_skip:
            missing = (
                f"{joined[1, 0] - joined[0, 1] - 1:,} launches of process {process} from {joined[0, 1] + 1}"
            )
            cause = f"{missing} on are left out, and what an agent measures has no gaps"
            raise LaunchTableError(subject, cause, _REPORT)
        return joined


def _intervals(launch: np.ndarray) -> np.ndarray:
    """Sorted launches as intervals, shape (n, 2); a launch that is there twice begins another interval."""
    begins = np.flatnonzero(np.diff(launch, prepend=launch[0] - 2) != 1)
    ends = np.append(begins[1:], len(launch)) - 1
    return np.stack([launch[begins], launch[ends]], axis=1)
