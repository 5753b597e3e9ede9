"""The sensors of an NVIDIA GPU through NVML (the module ``pynvml`` of nvidia-ml-py).

Source: docs/nvidia-tools.md, "NVML": which errors mean that a GPU or driver lacks a field, which that the GPU
is lost, and what replaced the deprecated calls.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

from assay_agent.gpus.sensors import (
    GpuLostError,
    GpuState,
    Reading,
    SensorError,
    SensorPermissionError,
    SensorsUnavailableError,
)
from assay_sampling.installation import install_command

# Not supported, not found, function not found, version mismatch, deprecated: the field does not exist.
_ABSENT = frozenset({3, 6, 13, 25, 26})
_NO_PERMISSION = 4
_TIMEOUT = 10
_LOST = frozenset({15, 16})  # lost, reset required
_UNAVAILABLE = {
    9: "the NVIDIA driver is not loaded",
    12: "no NVIDIA driver library on this box",
    18: "the NVIDIA driver was upgraded without being loaded again",
}
_MILLI = 1e-3


class NvmlSensors:
    """See :class:`assay_agent.gpus.sensors.GpuSensors`. Raises SensorError if it cannot be opened.

    Args:
        uuid: of the GPU, "GPU-..." or "MIG-...".
        nvml: the module; only tests replace it.
    """

    synthetic = False

    def __init__(self, uuid: str, nvml: Any = None) -> None:
        self._uuid = uuid
        self._nvml = nvml if nvml is not None else _module(uuid)
        self._events: Any = None
        self._absent: set[str] = set()
        self._call(self._nvml.nvmlInit)
        try:
            self._handle = self._call(self._nvml.nvmlDeviceGetHandleByUUID, uuid)
            self._listen()
        except BaseException:
            self.close()
            raise

    def read(self) -> Reading:
        nvml = self._nvml
        clock = self._asker("nvmlDeviceGetClockInfo")
        power = self._answer("nvmlDeviceGetPowerUsage")
        usage = self._answer("nvmlDeviceGetUtilizationRates")
        return Reading(
            sm_clock_mhz=_number(clock(nvml.NVML_CLOCK_SM)),
            memory_clock_mhz=_number(clock(nvml.NVML_CLOCK_MEM)),
            temperature_celsius=self._temperature(),
            power_watts=None if power is None else power * _MILLI,
            busy_percent=None if usage is None else float(usage.gpu),
            event_reasons=self._event_reasons(),
        )

    def state(self) -> GpuState:
        nvml = self._nvml
        errors = self._asker("nvmlDeviceGetTotalEccErrors")
        mig = self._answer("nvmlDeviceGetMigMode")
        persistence = self._answer("nvmlDeviceGetPersistenceMode")
        return GpuState(
            ecc_corrected=errors(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC),
            ecc_uncorrected=errors(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
            compute_mode=self._answer("nvmlDeviceGetComputeMode"),
            mig_mode=None if mig is None else int(mig[0]),
            persistence=None if persistence is None else bool(persistence),
        )

    def pending_error(self) -> str:
        """The errors that stay on the GPU until it is reset or replaced, in words; "" for a sound GPU."""
        errors = self.state().ecc_uncorrected
        rows = self._answer("nvmlDeviceGetRemappedRows")  # corrected, uncorrected, pending, failed
        action = self._recovery_action()
        pending = (
            (bool(errors), f"{errors or 0:,} uncorrectable memory errors since the driver was loaded"),
            (bool(rows and rows[2]), "memory rows wait for a reset to be remapped"),
            (bool(rows and rows[3]), "the remapping of faulty memory rows failed"),
            (
                bool(self._answer("nvmlDeviceGetRetiredPagesPendingStatus")),
                "memory pages wait for a reload of the driver to be retired",
            ),
            (bool(action), f"the driver asks for a repair (recovery action {action})"),
        )
        return next((text for holds, text in pending if holds), "")

    def _recovery_action(self) -> int:
        """0: none, or the driver does not say."""
        field = getattr(self._nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        values = None if field is None else self._answer("nvmlDeviceGetFieldValues", [field])
        if not values or values[0].nvmlReturn:
            return 0
        return int(values[0].value.uiVal)

    def process_ids(self) -> tuple[int, ...] | None:
        return self._process_ids("nvmlDeviceGetComputeRunningProcesses")

    def graphics_process_ids(self) -> tuple[int, ...] | None:
        return self._process_ids("nvmlDeviceGetGraphicsRunningProcesses")

    def _process_ids(self, name: str) -> tuple[int, ...] | None:
        processes = self._answer(name)
        return None if processes is None else tuple(sorted({int(process.pid) for process in processes}))

    def xid_events(self) -> tuple[int, ...]:
        events = []
        while self._events is not None:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError as error:
                if error.value in _LOST:
                    raise self._typed(error) from error
                if error.value != _TIMEOUT:  # it never reports events
                    self._events = None
                break
            events.append(int(event.eventData))
        return tuple(events)

    def close(self) -> None:
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):
            if self._events is not None:
                nvml.nvmlEventSetFree(self._events)
        self._events = None
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()

    def _listen(self) -> None:
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
            self._events = events
            nvml.nvmlDeviceRegisterEvents(self._handle, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError as error:
            if error.value in _LOST:
                raise self._typed(error) from error
            self._release_events()

    def _release_events(self) -> None:
        if self._events is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._events)
        self._events = None

    def _temperature(self) -> float | None:
        """Of the GPU's core; by the newer call if the driver has it."""
        sensor = self._nvml.NVML_TEMPERATURE_GPU
        if hasattr(self._nvml, "nvmlDeviceGetTemperatureV"):
            value = self._asker("nvmlDeviceGetTemperatureV")(sensor)
            if value is not None:
                return float(value)
        return _number(self._asker("nvmlDeviceGetTemperature")(sensor))

    def _event_reasons(self) -> int | None:
        """Calls the older name if the newer does not exist: NVML does not fall back by itself."""
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            value = self._answer(name)
            if value is not None:
                return int(value)
        return None

    def _asker(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: self._answer(name, *arguments)

    def _answer(self, name: str, *arguments: Any) -> Any:
        """The answer about this GPU; None if this GPU or driver does not have it, or refuses."""
        function = getattr(self._nvml, name, None)
        if function is None or name in self._absent:
            return None
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            if error.value == 13:  # the driver does not have the function, so asking again is useless
                self._absent.add(name)
            if error.value in _ABSENT or error.value == _NO_PERMISSION:
                return None
            raise self._typed(error) from error

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            raise self._typed(error) from error

    def _typed(self, error: Any) -> SensorError:
        subject, code = f"GPU {self._uuid}", int(error.value)
        if code in _LOST:
            cause = "the driver lost it" if code == 15 else "it needs a reset"
            return GpuLostError(
                subject,
                f"{cause} (NVML error {code})",
                "look at the kernel log, and reset or replace the GPU",
            )
        if code == _NO_PERMISSION:
            return SensorPermissionError(
                subject, "the agent's user may not read its sensors (NVML error 4)", "check /dev/nvidia*"
            )
        cause = _UNAVAILABLE.get(code, f"NVML error {code}: {error}")
        return SensorsUnavailableError(subject, cause, "nvidia-smi must work as the agent's user")


def _module(uuid: str) -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise SensorsUnavailableError(
            f"GPU {uuid}",
            "the Python module 'pynvml' is not installed",
            f"install it with: {install_command('agent')}",
        ) from error


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
