"""How much of a run's time launches share: where they overlap, the sum of durations is not a run time.

    span_ns          = length of the union of the launches' intervals, summed over GPUs and processes
    overlap_percent  = 100 (sum of durations - span) / sum of durations

Source: docs/methods/comparing.md, "Scores". Memory: 40 bytes a launch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

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
    start_ns, duration_ns = launches.column("start_ns"), launches.column("duration_ns")
    if float(duration_ns.sum(dtype=np.float64)) >= 2**63:
        raise RefusedError(
            ", ".join(launches.sources) or "launches",
            "its durations add up to more than 64 bits hold",
            "record the workload again; a recording with such durations is damaged",
        )
    device = launches.column("device").astype(np.int64)
    owner = pa.array((launches.column("process").astype(np.int64) << 32) + device).dictionary_encode()
    of_launch = owner.indices.to_numpy(zero_copy_only=False)
    span_ns = 0
    for index in range(len(owner.dictionary)):
        mine = np.flatnonzero(of_launch == index) if len(owner.dictionary) > 1 else slice(None)
        span_ns += _union_ns(start_ns[mine], duration_ns[mine])
    sum_ns = int(duration_ns.sum())
    return Overlap(sum_ns, span_ns, 100.0 * (sum_ns - span_ns) / sum_ns if sum_ns else 0.0)


def _union_ns(start_ns: np.ndarray, duration_ns: np.ndarray) -> int:
    """Length of the union of intervals, in ns."""
    order = np.argsort(start_ns, kind="stable")
    start_ns = start_ns[order]
    end_ns = start_ns + duration_ns[order]
    covered_until_ns = np.concatenate([start_ns[:1], np.maximum.accumulate(end_ns)[:-1]])
    return int(np.maximum(end_ns - np.maximum(start_ns, covered_until_ns), 0).sum())
