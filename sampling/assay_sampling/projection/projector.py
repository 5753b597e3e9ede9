"""Principal kernel projection (PKP): stop simulating a launch once its IPC is stable, and project the rest.

Source: PKA (MICRO'21) 3.2; docs/methods/projection.md. :class:`Projector` is online: it takes samples while a
simulator makes them. :func:`project` does it for a finished series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay_sampling.errors import RefusedError
from assay_sampling.notes.registry import Note
from assay_sampling.projection.rule import LaunchSize, ProjectionParameters, RuleName, Stop
from assay_sampling.projection.rules import stop_rule

__all__ = ["LaunchSize", "ProjectedMetric", "Projection", "ProjectionParameters", "Projector", "Series",
           "Stop", "project"]  # fmt: skip


@dataclass(frozen=True)
class Series:
    """Samples of one launch, columns of shape (s,), float64.

    ``cycles`` and ``instructions`` are cumulative since the start of the launch, ``ctas`` are the blocks
    completed in the interval before the sample. ``ratios`` are metrics other than cycles, each as events
    and what they are counted against, both of the interval: L2 misses and accesses, busy and all cycles.

    Raises RefusedError if the columns differ in length, cycles do not increase, or a number is not finite
    or is negative.
    """

    cycles: np.ndarray
    instructions: np.ndarray
    ctas: np.ndarray
    ratios: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = {"cycles": self.cycles, "instructions": self.instructions, "ctas": self.ctas}
        for name, column in columns.items():
            if column.shape != self.cycles.shape or column.ndim != 1:
                raise RefusedError("series", f"column {name!r} has the shape {column.shape}")
            wrong = ~(np.isfinite(column) & (column >= 0))
            if wrong.any():
                raise RefusedError(
                    "series", f"{name} of sample {int(np.argmax(wrong)) + 1} are negative or not finite"
                )
        for name in ("cycles", "instructions"):
            steps = np.diff(columns[name])
            wrong = steps <= 0 if name == "cycles" else steps < 0
            if wrong.any():
                raise RefusedError(
                    "series",
                    f"{name} of sample {int(np.argmax(wrong)) + 2} are not above those of the sample before",
                    "give counts since the start of the launch, one launch at a time",
                )

    def __len__(self) -> int:
        return len(self.cycles)


@dataclass(frozen=True)
class ProjectedMetric:
    """A ratio as projected from the samples until the stop, and over all samples.

    None if its denominator is 0.
    """

    projected: float | None
    over_all_samples: float | None


@dataclass(frozen=True)
class Projection:
    """The result of a rule for one launch.

    Without a stop, ``stop`` is None, ``reason`` says why, and the launch is simulated to its end:
    ``projected_cycles`` are then its own cycles. ``final_cycles`` are those of the whole launch, or of the
    last sample if the end is unknown; None without either.
    """

    rule: RuleName
    stop: Stop | None
    reason: Note | None
    final_cycles: float | None
    metrics: Mapping[str, ProjectedMetric]

    @property
    def projected_cycles(self) -> float | None:
        return self.stop.projected_cycles if self.stop else self.final_cycles

    @property
    def simulated_cycles(self) -> float | None:
        return self.stop.cycles if self.stop else self.final_cycles

    def to_dict(self) -> dict[str, Any]:
        """The projection as the command line prints it."""
        stop = self.stop
        return {
            "rule": self.rule,
            "stop_cycles": stop.cycles if stop else None,
            "stop_sample_index": stop.sample_index if stop else None,
            "finished_ctas": stop.finished_ctas if stop else None,
            "projected_cycles": self.projected_cycles,
            "simulated_cycles": self.simulated_cycles,
            "reason": None if self.reason is None else self.reason.to_dict(),
            "metrics": {
                name: {"projected": metric.projected, "over_all_samples": metric.over_all_samples}
                for name, metric in self.metrics.items()
            },
        }


class Projector:
    """The online form: push samples while the launch is simulated; stop it when :meth:`push` says so."""

    def __init__(self, size: LaunchSize, parameters: ProjectionParameters | None = None) -> None:
        self._rule = stop_rule(size, parameters or ProjectionParameters())
        self.stop: Stop | None = None

    @property
    def rule(self) -> RuleName:
        return self._rule.name

    @property
    def extrapolates_window(self) -> bool:
        """Whether the rest is projected from the window alone, rather than from all until the stop."""
        return self._rule.extrapolates_window

    @property
    def reason(self) -> Note | None:
        """Why it has not stopped."""
        return None if self.stop else self._rule.why_not()

    def push(self, cycles: float, instructions: float, ctas: float) -> Stop | None:
        """Take a sample (as in :class:`Series`); returns the stop from the sample on that reaches it."""
        if self.stop is None:
            self.stop = self._rule.push(cycles, instructions, ctas)
        return self.stop


def project(
    series: Series,
    size: LaunchSize,
    parameters: ProjectionParameters | None = None,
    final_cycles: float | None = None,
) -> Projection:
    """Project one launch from its samples.

    Args:
        series: the samples; those after the stop count only for ``over_all_samples``.
        size: the size of the launch, known beforehand.
        parameters: rule, window and threshold.
        final_cycles: cycles of the whole launch, if it was simulated to its end.
    """
    projector = Projector(size, parameters)
    columns = (series.cycles.tolist(), series.instructions.tolist(), series.ctas.tolist())
    for cycles, instructions, ctas in zip(*columns, strict=True):
        if projector.push(cycles, instructions, ctas):
            break
    if final_cycles is None and len(series):
        final_cycles = float(series.cycles[-1])
    return Projection(
        rule=projector.rule,
        stop=projector.stop,
        reason=projector.reason,
        final_cycles=final_cycles,
        metrics={name: _metric(series, name, projector) for name in series.ratios},
    )


def _metric(series: Series, name: str, projector: Projector) -> ProjectedMetric:
    events, base = series.ratios[name]
    over_all = _ratio(float(events.sum()), float(base.sum()))
    stop = projector.stop
    if stop is None:
        return ProjectedMetric(over_all, over_all)
    until = slice(0, stop.sample_index + 1)
    sums = np.array([events[until].sum(), base[until].sum()])
    if projector.extrapolates_window:
        # The rest continues as in the window, as the cycles do.
        start = max(stop.sample_index + 1 - stop.window_samples, 0)
        window = slice(start, stop.sample_index + 1)
        began = float(series.cycles[start - 1]) if start else 0.0
        share = (stop.projected_cycles - stop.cycles) / (stop.cycles - began)
        sums = sums + share * np.array([events[window].sum(), base[window].sum()])
    return ProjectedMetric(_ratio(float(sums[0]), float(sums[1])), over_all)


def _ratio(events: float, base: float) -> float | None:
    return events / base if base > 0 else None
