"""Where a rule does not stop: which rules would, at which threshold, and what they would project.

A threshold that is wide enough stops every rule that can stop at all, so this says how far a launch is from
being projected, not that it should be: docs/methods/projection.md, "When it fails".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Any

from assay_sampling.projection.projector import Series
from assay_sampling.projection.rule import (
    LaunchSize,
    ProjectionParameters,
    RuleName,
    Stop,
    StopRule,
    ThresholdName,
)
from assay_sampling.projection.rules import RULES, stop_rule

# No spread that is above zero is below this.
_NEVER = 5e-324


@dataclass(frozen=True)
class WouldStop:
    """A rule that stops a launch if its ``parameter`` is ``value``: where, and the projected cycles.

    ``value`` is the parameter that was given if the rule stops there, else the least at which it does,
    rounded up to three digits.
    """

    rule: RuleName
    parameter: ThresholdName
    value: float
    stop_cycles: float
    projected_cycles: float

    def to_dict(self, true_cycles: float | None, launch_latency_cycles: float) -> dict[str, Any]:
        """As JSON, with its errors in percent of all cycles and of those without the launch latency."""
        active = None if true_cycles is None else true_cycles - launch_latency_cycles
        return {
            "rule": self.rule,
            "parameter": self.parameter,
            "value": self.value,
            "stop_cycles": self.stop_cycles,
            "projected_cycles": self.projected_cycles,
            "signed_error_percent": self._error(true_cycles, true_cycles),
            "active_error_percent": self._error(true_cycles, active),
        }

    def _error(self, true_cycles: float | None, over: float | None) -> float | None:
        if true_cycles is None or over is None or not over > 0:
            return None
        return 100.0 * (self.projected_cycles - true_cycles) / over


def rules_that_would_stop(
    series: Series, size: LaunchSize, parameters: ProjectionParameters
) -> tuple[WouldStop, ...]:
    """The rules that stop this launch at the threshold of ``parameters`` or at a wider one, in their order.

    Rules that need the total of thread instructions are left out where it is not known. Window, signal and
    spread are those of ``parameters``, which the artifact's rule replaces by its own.
    """
    rules = (_of_rule(name, series, size, parameters) for name in RULES)
    return tuple(each for each in rules if each is not None)


def _of_rule(
    name: RuleName, series: Series, size: LaunchSize, parameters: ProjectionParameters
) -> WouldStop | None:
    if name in ("waves", "instructions") and size.total_instructions is None:
        return None
    rule = stop_rule(size, _with_threshold(name, parameters, _NEVER))
    _run(rule, series)
    least = rule.least_threshold
    if least is None or not isfinite(least):
        return None
    threshold: float = getattr(parameters, rule.threshold_name)
    value = threshold if least < threshold else _above(least)
    again = stop_rule(size, _with_threshold(name, parameters, value))
    stop = _run(again, series)
    assert stop is not None
    return WouldStop(name, rule.threshold_name, value, stop.cycles, stop.projected_cycles)


def _with_threshold(
    name: RuleName, parameters: ProjectionParameters, threshold: float
) -> ProjectionParameters:
    if name == "waves":
        return ProjectionParameters(rule=name, tolerance_percent=threshold)
    if name == "artifact":
        return ProjectionParameters(rule=name, window_cycles=parameters.window_cycles, s=threshold)
    return ProjectionParameters(
        rule=name,
        window_cycles=parameters.window_cycles,
        s=threshold,
        signal=parameters.signal,
        spread=parameters.spread,
    )


def _run(rule: StopRule, series: Series) -> Stop | None:
    columns = (series.cycles.tolist(), series.instructions.tolist(), series.ctas.tolist())
    for cycles, instructions, ctas in zip(*columns, strict=True):
        stop = rule.push(cycles, instructions, ctas)
        if stop is not None:
            return stop
    return None


def _above(least: float) -> float:
    """The least number of three digits above a threshold that is not wide enough."""
    digits = 2 - floor(log10(least))
    step = 10.0**-digits
    value = round((floor(least / step) + 1) * step, digits)
    return value if value > least else round(value + step, digits)
