"""What is counted while simulated agents run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from assay_core.records.attempt import AttemptKey


@dataclass
class Counts:
    """What a fleet saw in one phase; seconds are those of the caller.

    ``leased_at``: the moment of each lease, by the loop's clock.
    ``heartbeats``: from the moment a heartbeat was due to its answer. ``heartbeats_late``: answered when the
    next was due already; ``heartbeats_missed``: not answered at all, or with a request to register again.
    """

    leases: list[float] = field(default_factory=list)
    leased_at: list[float] = field(default_factory=list)
    heartbeats: list[float] = field(default_factory=list)
    heartbeats_late: int = 0
    heartbeats_missed: int = 0
    finishes: list[float] = field(default_factory=list)
    finished: list[AttemptKey] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    statuses: int = 0

    def note_heartbeat(self, seconds: float, interval_seconds: float) -> None:
        self.heartbeats.append(seconds)
        self.heartbeats_late += seconds > interval_seconds


def milliseconds(seconds: list[float], percent: float) -> float:
    """A percentile of durations, in milliseconds; NaN if there are none."""
    return 1000 * float(np.percentile(seconds, percent)) if seconds else float("nan")
