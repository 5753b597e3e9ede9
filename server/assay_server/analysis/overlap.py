"""How much of a run's time launches share: where they overlap, the sum of durations is no run time.

Source: design, "Numbers that must mean one thing".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from assay_sampling.launches import Launches

CONCURRENT_SHARE_PERCENT = 1.0


@dataclass(frozen=True)
class Overlap:
    """Sum of durations, union of the launches' intervals, and the share of the sum that overlaps."""

    sum_ns: int
    span_ns: int
    overlap_percent: float

    @property
    def concurrent(self) -> bool:
        """Whether so much overlaps that the sum must not be read as a time."""
        return self.overlap_percent > CONCURRENT_SHARE_PERCENT

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def overlap_of(launches: Launches) -> Overlap | None:
    """Overlap of launches on each GPU; None where start times or durations were not recorded.

    Intervals of different GPUs or processes are never compared: theirs may be different clocks.
    """
    start, duration = launches.table["start_ns"], launches.table["duration_ns"]
    if not len(launches) or start.null_count or duration.null_count:
        return None
    owner = np.stack([launches.column("process"), launches.column("device")], axis=1).astype(np.int64)
    start_ns, duration_ns = launches.column("start_ns"), launches.column("duration_ns")
    sum_ns = int(duration_ns.sum())
    span_ns = 0
    owners, of_launch = np.unique(owner, axis=0, return_inverse=True)
    for index in range(len(owners)):
        mine = of_launch.reshape(-1) == index
        span_ns += _union_ns(start_ns[mine], duration_ns[mine])
    share = 100.0 * (sum_ns - span_ns) / sum_ns if sum_ns else 0.0
    return Overlap(sum_ns, span_ns, share)


def _union_ns(start_ns: np.ndarray, duration_ns: np.ndarray) -> int:
    order = np.argsort(start_ns, kind="stable")
    start_ns = start_ns[order]
    end_ns = start_ns + duration_ns[order]
    latest_end_ns = np.maximum.accumulate(end_ns)
    covered_until_ns = np.concatenate([start_ns[:1], latest_end_ns[:-1]])
    return int(np.maximum(end_ns - np.maximum(start_ns, covered_until_ns), 0).sum())
