"""NVML whose state is a file, so that what a killed process changed is there for the next one.

The locked clocks of the GPU and the processes on it: ``{"locked": [low, high] or null, "processes": [...]}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

_NOT_SUPPORTED = 3
FREE: dict[str, Any] = {"locked": None, "processes": [], "refuse": {}}


class FakeNvml:
    """The part of NVML's bindings that conditions use; ``refuse`` in the file: function to error code."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_text(json.dumps(FREE))

    def install(self) -> None:
        """Take the place of the real bindings in this process."""
        sys.modules["pynvml"] = self  # type: ignore[assignment]

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.path.read_text()))

    def change(self, **changes: Any) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({**self.state, **changes}))
        new.replace(self.path)

    def __getattr__(self, name: str) -> Any:
        real = getattr(pynvml, name)
        if not name.startswith("nvml") or not callable(real):
            return real  # constants, and the class of errors

        def function(*arguments: Any) -> Any:
            answer = type(self).__dict__.get("_" + name)
            code = self.state["refuse"].get(name, None if answer else _NOT_SUPPORTED)
            if code is not None:
                raise pynvml.NVMLError(code)
            assert answer is not None
            return answer(self, *arguments)

        return function

    def _nvmlInit(self) -> None:
        """Nothing to do."""

    def _nvmlShutdown(self) -> None:
        """Nothing to do."""

    def _nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def _nvmlDeviceSetGpuLockedClocks(self, handle: str, low: int, high: int) -> None:
        self.change(locked=[low, high])

    def _nvmlDeviceResetGpuLockedClocks(self, handle: str) -> None:
        self.change(locked=None)

    def _nvmlDeviceGetClock(self, handle: str, domain: int, kind: int) -> int:
        return 1530

    def _nvmlDeviceGetMaxClockInfo(self, handle: str, domain: int) -> int:
        return 1380

    def _nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=process) for process in self.state["processes"]]

    def _nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=process) for process in self.state.get("graphics_processes", ())]

    def _nvmlDeviceGetMPSComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=process) for process in self.state.get("mps_processes", ())]
