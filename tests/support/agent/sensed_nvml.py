"""An NVML whose sensors and clocks say what a test sets."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

UUID = "GPU-11111111-2222-3333-4444-555555555555"


class FakeNvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class FakeNvml:
    """NVML as nvidia-ml-py shows it; ``fail`` maps functions to the error that each call of them gives."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 0, 1, 0
    nvmlEventTypeXidCriticalError = 8

    def __init__(self, **fail: int) -> None:
        self.fail = fail
        self.xids = [79, 31]
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *arguments: self._called(name, arguments)

    def _called(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self.calls.append(name)
        if name in self.fail:
            raise FakeNvmlError(self.fail[name])
        if name == "nvmlEventSetWait_v2":
            if not self.xids:
                raise FakeNvmlError(10)
            return SimpleNamespace(eventData=self.xids.pop(0))
        answers = {
            "nvmlDeviceGetHandleByUUID": lambda uuid: f"handle of {uuid}",
            "nvmlDeviceGetClockInfo": lambda handle, which: {1: 1410, 2: 1593}[which],
            "nvmlDeviceGetTemperatureV": lambda handle, sensor: 61,
            "nvmlDeviceGetTemperature": lambda handle, sensor: 60,
            "nvmlDeviceGetPowerUsage": lambda handle: 250_500,
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=97, memory=3),
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x24,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x4,
            "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: {0: 5, 1: 2}[kind],
            "nvmlDeviceGetComputeMode": lambda handle: 3,
            "nvmlDeviceGetMigMode": lambda handle: [1, 0],
            "nvmlDeviceGetPersistenceMode": lambda handle: 0,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
                SimpleNamespace(pid=9), SimpleNamespace(pid=7), SimpleNamespace(pid=9),
            ],
            "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: [SimpleNamespace(pid=9)],
        }  # fmt: skip
        answer = answers.get(name)
        return answer(*arguments) if answer else "events"
