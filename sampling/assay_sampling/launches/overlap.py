"""How much of a run's time launches share: where they overlap, the sum of durations is not a run time.

    span_ns          = length of the union of the launches' intervals, summed over GPUs and processes
    overlap_percent  = 100 (sum of durations - span) / sum of durations

Source: docs/methods/comparing.md, "Scores". Memory: 40 bytes a launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from assay_sampling.engines.columns import engine_of
from assay_sampling.engines.seam import ArrayRows
from assay_sampling.errors import RefusedError
from assay_sampling.launches.in_memory import Launches

CONCURRENT_SHARE_PERCENT = 1.0


@dataclass(frozen=True)
class Overlap:
    """Sum of durations, union of the launches' intervals, and the share of the sum that overlaps."""

    sum_ns: int
    span_ns: int
    overlap_percent: float

    @property
    def concurrent(self) -> bool:
        """Whether so much overlaps that the sum is not a time."""
        return self.overlap_percent > CONCURRENT_SHARE_PERCENT

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def overlap_of(launches: Launches) -> Overlap | None:
    """Overlap of the launches of each process on each GPU; None where start or duration is not known.

    Intervals of different GPUs or processes are never compared: their clocks may differ. Raises
    RefusedError where the durations add up to more ns than an int64 holds.
    """
    start, duration = launches.table["start_ns"], launches.table["duration_ns"]
    if not len(launches) or start.null_count or duration.null_count:
        return None
    if launches.is_on_disk:
        return _beyond_memory(launches)
    start_ns, duration_ns = launches.column("start_ns"), launches.column("duration_ns")
    if float(duration_ns.sum(dtype=np.float64)) >= 2**63:
        raise _too_long(launches)
    device = launches.column("device").astype(np.int64)
    owner = pa.array((launches.column("process").astype(np.int64) << 32) + device).dictionary_encode()
    of_launch = owner.indices.to_numpy(zero_copy_only=False)
    span_ns = 0
    for index in range(len(owner.dictionary)):
        mine = np.flatnonzero(of_launch == index) if len(owner.dictionary) > 1 else slice(None)
        span_ns += _union_ns(start_ns[mine], duration_ns[mine])
    return _overlap(int(duration_ns.sum()), span_ns)


def _overlap(sum_ns: int, span_ns: int) -> Overlap:
    return Overlap(sum_ns, span_ns, 100.0 * (sum_ns - span_ns) / sum_ns if sum_ns else 0.0)


def _too_long(launches: Launches) -> RefusedError:
    return RefusedError(
        ", ".join(launches.sources) or "launches",
        "its durations add up to more than 64 bits hold",
        "record the workload again; a recording with such durations is damaged",
    )


_TIMES = ("process", "device", "start_ns", "duration_ns")


def _beyond_memory(launches: Launches) -> Overlap:
    """As :func:`overlap_of` of launches on disk, in the order of their starts, batch by batch."""
    sum_ns, span_ns = 0, 0
    owner, covered_until_ns = (-1, -1), 0
    for batch in _by_start(launches):
        process, device, start_ns, duration_ns = (column.to_numpy() for column in batch.columns)
        sum_ns += sum(int(part.sum()) for part in np.array_split(duration_ns, 2))
        changes = np.flatnonzero((np.diff(process) != 0) | (np.diff(device) != 0)) + 1
        for first, end in pairwise([0, *changes.tolist(), len(process)]):
            now = int(process[first]), int(device[first])
            if now != owner:
                owner, covered_until_ns = now, int(start_ns[first])
            ends = start_ns[first:end] + duration_ns[first:end]
            before = np.maximum.accumulate(np.concatenate([[covered_until_ns], ends]))
            span_ns += int(np.maximum(ends - np.maximum(start_ns[first:end], before[:-1]), 0).sum())
            covered_until_ns = int(before[-1])
    if sum_ns >= 2**63:
        raise _too_long(launches)
    return _overlap(sum_ns, span_ns)


def _by_start(launches: Launches) -> Iterator[pa.RecordBatch]:
    """Process, device (-1 if unknown), start and duration of all launches, by process, device and start."""
    columns = {name: launches.array(name) for name in _TIMES}
    return engine_of(*columns.values()).sorted(ArrayRows(columns), _TIMES[:3])


def _union_ns(start_ns: np.ndarray, duration_ns: np.ndarray) -> int:
    """Length of the union of intervals, in ns."""
    order = np.argsort(start_ns, kind="stable")
    start_ns = start_ns[order]
    end_ns = start_ns + duration_ns[order]
    covered_until_ns = np.concatenate([start_ns[:1], np.maximum.accumulate(end_ns)[:-1]])
    return int(np.maximum(end_ns - np.maximum(start_ns, covered_until_ns), 0).sum())
