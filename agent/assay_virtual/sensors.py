"""The sensors of a virtual GPU: synthetic numbers, so that the whole path runs without a GPU.

The clock is the boost clock of the kind, constant or with a small ripple; temperature and power rise from
idle to a plateau. Nothing was fitted to a measurement. ``ASSAY_VIRTUAL_SENSORS`` in a workload's environment
switches faults on, separated by commas: FAULTS says what each does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection

from assay_agent.gpus.event_reasons import EventReason
from assay_agent.gpus.sensors import GpuLostError, GpuState, Reading, SensorsUnavailableError
from assay_sampling.errors import ParameterError

VARIABLE = "ASSAY_VIRTUAL_SENSORS"
FAULTS = {
    "sensors_missing": "the sensors cannot be opened",
    "gpu_lost": "the GPU is lost after the first reading",
    "xid_error": "XID 79 during the run",
    "ecc_error": "one uncorrected memory error during the run",
    "ecc_corrected": "three corrected memory errors during the run",
    "foreign_process": "process 1 computes on the GPU",
    "throttled_thermal": "software and hardware thermal slowdown from the second reading on",
    "throttled_power": "hardware power brake from the second reading on",
    "throttled_hardware": "hardware slowdown without a cause from the second reading on",
    "power_capped": "software power cap from the second reading on",
    "clock_limited": "a reliability limit from the second reading on",
    "clock_varied": "the SM clock swings by a tenth",
    "hot": "90 degrees Celsius that never fall",
    "settings_changed": "the compute mode changes during the run",
    "persistence_off": "persistence mode is off",
}
_REASONS = {
    "throttled_thermal": EventReason.SOFTWARE_THERMAL | EventReason.HARDWARE_THERMAL,
    "throttled_power": EventReason.HARDWARE_POWER_BRAKE | EventReason.HARDWARE_SLOWDOWN,
    "throttled_hardware": EventReason.HARDWARE_SLOWDOWN,
    "power_capped": EventReason.SOFTWARE_POWER_CAP,
    "clock_limited": EventReason.RELIABILITY,
}
_IDLE_CELSIUS, _PLATEAU_CELSIUS, _HOT_CELSIUS = 38.0, 64.0, 90.0
_IDLE_WATTS, _PLATEAU_WATTS = 45.0, 240.0
_MEMORY_CLOCK_MHZ = 877.0
_RIPPLE, _SWING = 0.002, 0.05
# While nothing runs; which clock a GPU idles at, the model does not say.
IDLE = Reading(temperature_celsius=_IDLE_CELSIUS, power_watts=_IDLE_WATTS, busy_percent=0.0)


class VirtualSensors:
    """See :class:`assay_agent.gpus.sensors.GpuSensors`; the same readings every time.

    Args:
        uuid: of the virtual GPU.
        boost_clock_mhz: its SM clock under load.
        faults: switches of FAULTS. Raises ParameterError for others, SensorsUnavailableError for one.
    """

    synthetic = True

    def __init__(self, uuid: str, boost_clock_mhz: float, faults: Collection[str] = ()) -> None:
        unknown = sorted(set(faults) - set(FAULTS))
        if unknown:
            raise ParameterError(
                VARIABLE, f"it has no switch {unknown[0]!r}", f"use one of {', '.join(FAULTS)}"
            )
        if "sensors_missing" in faults:
            raise SensorsUnavailableError(f"GPU {uuid}", "its virtual sensors are switched off")
        self._uuid, self._boost_clock_mhz, self._faults = uuid, boost_clock_mhz, frozenset(faults)
        self._readings = self._states = 0
        self._xid_told = False

    def read(self) -> Reading:
        self._require_there()
        number, self._readings = self._readings, self._readings + 1
        warm = 1 - math.exp(-number / 20)
        ripple = _SWING if "clock_varied" in self._faults else _RIPPLE
        reasons = 0
        if number >= 1:
            for fault in self._faults & _REASONS.keys():
                reasons |= _REASONS[fault]
        hot = "hot" in self._faults
        return Reading(
            sm_clock_mhz=self._boost_clock_mhz * (1 + ripple * (-1) ** number),
            memory_clock_mhz=_MEMORY_CLOCK_MHZ,
            temperature_celsius=_HOT_CELSIUS
            if hot
            else _IDLE_CELSIUS + warm * (_PLATEAU_CELSIUS - _IDLE_CELSIUS),
            power_watts=_IDLE_WATTS + warm * (_PLATEAU_WATTS - _IDLE_WATTS),
            busy_percent=100.0,
            event_reasons=int(reasons),
        )

    def state(self) -> GpuState:
        self._require_there()
        later, self._states = self._states > 0, self._states + 1
        return GpuState(
            ecc_corrected=3 if later and "ecc_corrected" in self._faults else 0,
            ecc_uncorrected=1 if later and "ecc_error" in self._faults else 0,
            compute_mode=3 if later and "settings_changed" in self._faults else 0,
            mig_mode=0,
            persistence="persistence_off" not in self._faults,
        )

    def process_ids(self) -> tuple[int, ...]:
        self._require_there()
        return (1, os.getpid()) if "foreign_process" in self._faults else (os.getpid(),)

    def graphics_process_ids(self) -> tuple[int, ...]:
        self._require_there()
        return ()

    def xid_events(self) -> tuple[int, ...]:
        self._require_there()
        was_told, self._xid_told = self._xid_told, True
        return (79,) if "xid_error" in self._faults and not was_told else ()

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def _require_there(self) -> None:
        if "gpu_lost" in self._faults and self._readings:
            raise GpuLostError(f"GPU {self._uuid}", "it was lost (simulated fault)")


def parse_faults(text: str) -> tuple[str, ...]:
    """The switches of the variable."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))
