"""The interface for reading a GPU's sensors, and its typed errors.

A GPU is known only by its UUID. What a GPU or driver does not have is None in a reading; what ends the
reading for good is an error. Source: docs/nvidia-tools.md, "NVML".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from assay_agent.gpus.processes import Clients
from assay_sampling.errors import AssayError


class SensorError(AssayError):
    """A GPU's sensors cannot be read."""


class SensorsUnavailableError(SensorError):
    """There is no way to this GPU's sensors: no module, no driver, no such GPU."""


class SensorPermissionError(SensorError):
    """The agent's user may not read them."""


class GpuLostError(SensorError):
    """The GPU fell off the bus or needs a reset: nothing measured on it counts."""


@dataclass(frozen=True)
class Reading:
    """One sample of the quantities that change during a run; None: this GPU does not report it.

    ``event_reasons`` are NVML's clock event reasons as bits; ``busy_percent`` is the share of the driver's
    last sampling period (1/6 to 1 s) in which at least one kernel ran.
    """

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    busy_percent: float | None = None
    event_reasons: int | None = None


@dataclass(frozen=True)
class GpuState:
    """What is compared before and after a run; None: this GPU does not report it. ECC errors are totals."""

    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    compute_mode: int | None = None
    mig_mode: int | None = None
    persistence: bool | None = None


class GpuSensors(Protocol):
    """One GPU's sensors, open until :meth:`close`. Every other method raises SensorError."""

    synthetic: bool

    def read(self) -> Reading:
        """The present values."""
        ...

    def state(self) -> GpuState:
        """Counters of errors, and settings."""
        ...

    def process_ids(self) -> tuple[int, ...] | None:
        """Processes that have a compute context on the GPU, as the driver numbers them; None: unknown."""
        ...

    def graphics_process_ids(self) -> tuple[int, ...] | None:
        """Processes that have a graphics context on the GPU; they may have a compute context, too."""
        ...

    def xid_events(self) -> tuple[int, ...]:
        """Critical XID errors since the last call; empty if the driver reports none."""
        ...

    def close(self) -> None:
        """Release the GPU; never raises."""
        ...


def clients_of(sensors: GpuSensors) -> Clients:
    """The processes on the GPU, as far as the driver lists them; raises SensorError."""
    return Clients(sensors.process_ids() or (), sensors.graphics_process_ids() or ())
