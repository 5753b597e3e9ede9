"""Content of an attempt's segments, checked one after another as they are unpacked for publication.

Of the launches that an attempt has sent, by process: no duplicates, and no gaps in measured ones. An agent
numbers the launches that it measures without gaps, from the first launch of each process that it kept: a
missing number is a launch that was lost between the profiler and here. A recording may hold only chosen
launches, in any order, so its numbers may have gaps; duplicates are wrong in both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from assay_sampling.arrays import values_of
from assay_sampling.errors import LaunchTableError
from assay_server.store.model import Segment
from assay_server.store.segments import SegmentContent, check_named

_SPLIT = "give each recording once; a file with several recordings must be split"
_REPORT = "look at the attempt's log; if it does not explain this, report it to the authors of Assay"


class LaunchOrdinals:
    """The launches of one attempt as intervals; one per process if they were numbered in order.

    Memory: 24 bytes per interval. Time: a sort of the new launches, and of the intervals, which are mostly in
    order, for any number of processes.
    """

    def __init__(self, *, may_skip: bool) -> None:
        self._may_skip = may_skip
        # Rows: process, first and last launch; columns ascending by process, then launch, and apart.
        self._intervals = np.empty((3, 0), np.int64)

    def add(self, batches: Sequence[pa.RecordBatch], subject: str) -> None:
        """Add the launches of one more segment, or raise LaunchTableError and add none."""
        intervals = np.concatenate([self._intervals, _intervals_of(batches)], axis=1)
        intervals = intervals[:, np.lexsort((intervals[1], intervals[0]))]
        same = intervals[0, 1:] == intervals[0, :-1]
        twice = np.flatnonzero(same & (intervals[1, 1:] <= intervals[2, :-1]))
        if len(twice):
            ordinal, first, _ = intervals[:, twice[0] + 1].tolist()
            cause = f"launch {first} of process {ordinal} appears twice in its attempt"
            raise LaunchTableError(subject, cause, _SPLIT if self._may_skip else _REPORT)
        joined = _joined(intervals)
        gaps = np.flatnonzero(joined[0, 1:] == joined[0, :-1])
        if len(gaps) and not self._may_skip:
            raise LaunchTableError(subject, _left_out(joined, int(gaps[0])), _REPORT)
        self._intervals = joined


def _intervals_of(batches: Sequence[pa.RecordBatch]) -> np.ndarray:
    """The launches of a segment as sorted intervals; launches that come twice stay apart."""
    process, launch = (
        np.concatenate([np.empty(0, np.int64), *(values_of(batch.column(name)) for batch in batches)])
        for name in ("process", "launch")
    )
    # Launches of one process in order, without gaps: nearly all segments are that.
    if len(launch) and (process == process[0]).all() and (launch[1:] - launch[:-1] == 1).all():
        return np.array([process[:1], launch[:1], launch[-1:]])
    order = np.lexsort((launch, process))
    return _joined(np.stack([process, launch, launch])[:, order])


def _left_out(intervals: np.ndarray, before: int) -> str:
    ordinal, _, last = intervals[:, before].tolist()
    missing = f"{int(intervals[1, before + 1]) - last - 1:,} launches of process {ordinal} from {last + 1}"
    return f"{missing} on are missing, and launches that an agent measures have no gaps"


def _joined(intervals: np.ndarray) -> np.ndarray:
    """Sorted intervals with adjacent ones joined; duplicates stay."""
    process, first, last = intervals
    begins = np.ones(len(first), bool)
    begins[1:] = (process[1:] != process[:-1]) | (first[1:] - 1 != last[:-1])
    ends = np.ones(len(first), bool)
    ends[:-1] = begins[1:]
    return np.stack([process[begins], first[begins], last[ends]])


class AttemptContent:
    """Checks that the segments of an attempt make one launch table. For one attempt, in order.

    ``may_skip``: the numbers of its launches may have gaps, because a recording may hold only chosen ones.
    """

    def __init__(self, *, may_skip: bool) -> None:
        self._ordinals = LaunchOrdinals(may_skip=may_skip)
        self._schema: pa.Schema | None = None
        self._names: set[int] = set()

    def __call__(self, segment: Segment, content: SegmentContent, subject: str) -> None:
        """Check the next segment; raises LaunchTableError."""
        if content.launches != segment.launches:
            cause = f"it holds {content.launches:,} launches, but its header says {segment.launches:,}"
            raise LaunchTableError(subject, cause)
        if self._schema is not None and not self._schema.equals(content.schema, check_metadata=True):
            raise LaunchTableError(subject, "its schema differs from that of the attempt's first segment")
        self._schema = content.schema
        check_named(content, self._names, subject)
        self._names.update(content.names)
        self._ordinals.add(content.batches, subject)
