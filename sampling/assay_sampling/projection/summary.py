"""Totals of projections over the launches of runs: errors, and the cycles that stopping saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assay_sampling.projection.runs import LaunchProjection


def summary_of(launches: Sequence[LaunchProjection]) -> dict[str, Any]:
    """Totals over launches: how many stop, cycles true, projected and simulated, errors and speedup.

    A sum is None if a launch lacks it, as the true cycles of one that a run was ended within; so is
    whatever is computed from it. Errors are over all cycles, and with
    ``active`` in the name over those without the launch latency. ``mean_error_percent`` is over the launches
    that stop; ``mean_error_over_all_percent`` counts the others as errors of 0, for they are simulated whole.
    """
    stopped = [launch for launch in launches if launch.stop is not None]
    true, projected, simulated, latency = (
        _total([getattr(launch, name) for launch in launches])
        for name in ("true_cycles", "projected_cycles", "simulated_cycles", "launch_latency_cycles")
    )
    errors = [launch.signed_error_percent for launch in stopped]
    active_errors = [launch.active_error_percent for launch in stopped]
    active = None if true is None or latency is None else true - latency
    off = None if true is None or projected is None else projected - true
    saved = None if true is None or simulated is None else true - simulated
    others = sum(launch.stop is None and launch.true_cycles is not None for launch in launches)
    return {
        "launches": len(launches),
        "stopped": len(stopped),
        "true_cycles": true,
        "projected_cycles": projected,
        "simulated_cycles": simulated,
        "signed_error_percent": _percent(off, true),
        "active_error_percent": _percent(off, active),
        "mean_error_percent": _over(_mean, errors),
        "mean_active_error_percent": _over(_mean, active_errors),
        "mean_error_over_all_percent": _over(_mean, errors, others),
        "mean_active_error_over_all_percent": _over(_mean, active_errors, others),
        "largest_error_percent": _over(max, errors),
        "largest_active_error_percent": _over(max, active_errors),
        "saved_percent": _percent(saved, true),
        "active_saved_percent": _percent(saved, active),
        "speedup": true / simulated if true and simulated else None,
    }


def _total(values: Sequence[float | None]) -> float | None:
    numbers = [float(value) for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None


def _percent(part: float | None, whole: float | None) -> float | None:
    return 100 * part / whole if part is not None and whole else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _over(reduce: Callable[[list[float]], float], errors: list[float | None], zeros: int = 0) -> float | None:
    """Mean or largest size of the errors that are known, together with so many errors of 0."""
    sizes = [abs(error) for error in errors if error is not None] + [0.0] * zeros
    return reduce(sizes) if sizes else None
