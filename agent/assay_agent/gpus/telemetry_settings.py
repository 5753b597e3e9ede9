"""Settings for watching the GPU: how often, and when it is too hot to begin."""

from __future__ import annotations

from dataclasses import dataclass

from assay_core.files.free_space import DEFAULT_FLOOR_BYTES
from assay_sampling.errors import ParameterError


@dataclass(frozen=True)
class TelemetrySettings:
    """Raises ParameterError for invalid values.

    Args:
        interval_seconds: between two samples of clocks, temperature, power and event reasons.
        slow_interval_seconds: between two looks at other processes and ECC counters.
        pause_at_celsius: a run waits while the GPU is this hot or hotter; 0: never.
        resume_below_celsius: it begins once the GPU is cooler than that.
        longest_wait_seconds: after that it begins anyway, flagged ``started_hot``.
        minimum_free_bytes: a run ends if the disk of its reports has less left; 0: never.
    """

    interval_seconds: float = 0.25
    slow_interval_seconds: float = 2.0
    pause_at_celsius: float = 85.0
    resume_below_celsius: float = 75.0
    longest_wait_seconds: float = 180.0
    minimum_free_bytes: int = DEFAULT_FLOOR_BYTES

    def __post_init__(self) -> None:
        for name in ("interval_seconds", "slow_interval_seconds"):
            if getattr(self, name) <= 0:
                raise ParameterError(
                    name.replace("_", " "), f"{getattr(self, name):g} is not above 0", "give seconds"
                )
        if self.longest_wait_seconds < 0:
            raise ParameterError(
                "longest wait", f"{self.longest_wait_seconds:g} s is negative", "give 0 or more seconds"
            )
        if self.pause_at_celsius and not 0 < self.resume_below_celsius < self.pause_at_celsius:
            raise ParameterError(
                "thermal gate",
                f"it pauses at {self.pause_at_celsius:g} °C and resumes below "
                f"{self.resume_below_celsius:g} °C",
                "let it resume below the temperature at which it pauses",
            )
