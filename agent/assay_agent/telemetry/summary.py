"""Summary of one attempt's samples: running statistics and a series, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay_agent.gpus.event_reasons import EventReason, reason_names
from assay_agent.gpus.sensors import GpuState, Reading

MOST_POINTS = 512
_MOST_LISTED = 20
_QUANTITIES = ("sm_clock_mhz", "memory_clock_mhz", "temperature_celsius", "power_watts", "busy_percent")
_SERIES = (*_QUANTITIES, "event_reasons")


@dataclass
class RunningStatistic:
    """Least, greatest and mean of the values added."""

    count: int = 0
    least: float = math.inf
    greatest: float = -math.inf
    total: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.least, self.greatest = min(self.least, value), max(self.greatest, value)
        self.total += value

    def to_dict(self) -> dict[str, float] | None:
        """None if no value was added."""
        if not self.count:
            return None
        return {"least": self.least, "greatest": self.greatest, "mean": self.total / self.count}


class DecimatedSeries:
    """At most ``most_points`` evenly spaced samples: every ``stride``-th one."""

    def __init__(self, most_points: int = MOST_POINTS) -> None:
        self._most_points = most_points
        self._reading_count = 0
        self.stride = 1
        self.points: list[tuple[float, Reading]] = []

    def add(self, seconds: float, reading: Reading) -> None:
        if self._reading_count % self.stride == 0:
            if len(self.points) == self._most_points:
                del self.points[1::2]
                self.stride *= 2
            if self._reading_count % self.stride == 0:
                self.points.append((seconds, reading))
        self._reading_count += 1

    def to_dict(self) -> dict[str, list[float | None]]:
        """Columns of equal length: seconds since the run began, and each quantity."""
        columns: dict[str, list[float | None]] = {"seconds": [round(at, 3) for at, _ in self.points]}
        for name in _SERIES:
            values = [getattr(reading, name) for _, reading in self.points]
            if any(value is not None for value in values):
                columns[name] = values
        return columns


@dataclass
class TelemetrySummary:
    """All that is known about the GPU while an attempt was measured; the sampler fills it.

    ``problem`` says why there are no samples, or no more; ``lost``: because the GPU was lost. ``seconds``
    is the wall time of the measured command, ``busy_seconds`` how long of it at least one kernel ran, by
    the driver's utilisation: an estimate, with a resolution of a sixth of a second to a second.
    """

    gpu: str
    source: str
    synthetic: bool = False
    seconds: float = 0.0
    samples: int = 0
    busy_seconds: float = 0.0
    event_reasons: int = 0
    reason_samples: dict[int, int] = field(default_factory=dict)
    statistics: dict[str, RunningStatistic] = field(
        default_factory=lambda: {name: RunningStatistic() for name in _QUANTITIES}
    )
    series: DecimatedSeries = field(default_factory=DecimatedSeries)
    before: GpuState | None = None
    after: GpuState | None = None
    xid_events: list[int] = field(default_factory=list)
    foreign_processes: dict[int, str] = field(default_factory=dict)
    desktop_processes: dict[int, str] = field(default_factory=dict)
    problem: str = ""
    lost: bool = False
    waited_seconds: float = 0.0
    began_celsius: float | None = None
    started_hot: bool = False

    def add(self, seconds: float, reading: Reading, since_last_seconds: float) -> None:
        """A sample, ``seconds`` after the run began."""
        self.samples += 1
        for name, statistic in self.statistics.items():
            value = getattr(reading, name)
            if value is not None:
                statistic.add(value)
        self.add_busy(reading, since_last_seconds)
        bits = reading.event_reasons or 0
        self.event_reasons |= bits
        for position in range(bits.bit_length()):
            if bits & 1 << position:
                self.reason_samples[1 << position] = self.reason_samples.get(1 << position, 0) + 1
        self.series.add(seconds, reading)

    def add_busy(self, reading: Reading, seconds: float) -> None:
        """Count ``seconds`` in which the GPU was as busy as the reading says."""
        if reading.busy_percent is not None:
            self.busy_seconds += reading.busy_percent / 100 * max(0.0, seconds)

    def add_xid_events(self, numbers: Sequence[int]) -> None:
        """Critical errors, the first few by their numbers."""
        self.xid_events += numbers[: _MOST_LISTED - len(self.xid_events)]

    def add_others(self, foreign: Mapping[int, str], desktops: Mapping[int, str]) -> None:
        """Processes that are not ours, with their names; the first few of each kind are kept."""
        for processes, others in ((self.foreign_processes, foreign), (self.desktop_processes, desktops)):
            for process_id, name in others.items():
                if len(processes) < _MOST_LISTED:
                    processes.setdefault(process_id, name)

    def grown(self, counter: str) -> int:
        """How much a counter of the state grew over the run; 0 if unknown."""
        first, last = (getattr(state, counter, None) for state in (self.before, self.after))
        return max(0, last - first) if first is not None and last is not None else 0

    def busy_clocks_mhz(self) -> list[float]:
        """SM clocks of the kept samples in which the GPU was not idle."""
        return [
            reading.sm_clock_mhz
            for _, reading in self.series.points
            if reading.sm_clock_mhz is not None and not _idle(reading)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the log of an attempt, at most some tens of kilobytes as JSON."""
        statistics = {name: statistic.to_dict() for name, statistic in self.statistics.items()}
        return {
            "gpu": self.gpu,
            "source": self.source,
            "synthetic": self.synthetic,
            "problem": self.problem,
            "lost": self.lost,
            "seconds": round(self.seconds, 3),
            "samples": self.samples,
            "busy_seconds": round(self.busy_seconds, 3) if statistics["busy_percent"] else None,
            **statistics,
            "event_reasons": reason_names(self.event_reasons),
            "event_reason_samples": {
                name: count
                for bit, count in sorted(self.reason_samples.items())
                for name in reason_names(bit)
            },
            "ecc_corrected": self.grown("ecc_corrected"),
            "ecc_uncorrected": self.grown("ecc_uncorrected"),
            "xid_events": list(self.xid_events),
            "foreign_processes": [f"{pid} {name}" for pid, name in sorted(self.foreign_processes.items())],
            "desktop_processes": [f"{pid} {name}" for pid, name in sorted(self.desktop_processes.items())],
            "thermal_gate": {
                "waited_seconds": round(self.waited_seconds, 3),
                "began_celsius": self.began_celsius,
                "started_hot": self.started_hot,
            },
            "series": self.series.to_dict(),
        }


def _idle(reading: Reading) -> bool:
    return bool((reading.event_reasons or 0) & EventReason.IDLE) or reading.busy_percent == 0
