"""One run at a time: waits before a run until the processes that NVML lists on the GPU have ended.

The lock keeps agents of one user apart; this sees everybody else. In a container NVML may list no process,
or the host's process numbers. Source: docs/conditions.md, "Who else is on the GPU".
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Self

from assay_agent.conditions.base import Condition, Site
from assay_agent.gpus.nvml import ABSENT, NvmlError, nvml_device
from assay_agent.gpus.processes import Clients, is_desktop, process_name

PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 1.0
# Processes that outlasted a whole wait, by GPU: another minute would not help.
_stayed: dict[str, frozenset[int]] = {}
_GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")


class AloneOnGpu(Condition):
    """Waits a while until no other process computes on the GPU.

    If one stays, the run is measured anyway: its telemetry flags it.
    """

    def __enter__(self) -> Self:
        began = time.monotonic()
        try:
            strangers = wait_until_alone(self.site)
        except NvmlError as error:
            self.site.note(f"processes on the GPU are not known: {error}")
            return self
        self.facts["foreign_processes"] = len(strangers)
        if strangers:
            waited = time.monotonic() - began
            self.site.note(f"other processes stayed on the GPU for {waited:.0f} s: {described(strangers)}")
        return self


def wait_until_alone(site: Site, *, clock: Callable[[], float] = time.monotonic) -> list[int]:
    """Wait until no other process computes on the GPU, at most PATIENCE_SECONDS; returns those that stay.

    Processes that outlasted an earlier wait are not waited for. Raises NvmlError.
    """
    uuid = site.gpu.device.uuid
    until = clock() + PATIENCE_SECONDS
    while True:
        strangers = processes_on(uuid)
        stay = clock() >= until or _stayed.get(uuid, frozenset()).issuperset(strangers)
        if stay or site.cancelled.is_set():
            _stayed[uuid] = frozenset(strangers if stay else ())
            return strangers
        site.cancelled.wait(_LOOK_SECONDS)


def processes_on(uuid: str) -> list[int]:
    """Process numbers that compute on the GPU, except this process and desktops; raises NvmlError."""
    pids: set[int] = set()
    with nvml_device(uuid) as (nvml, handle):
        for name in _LISTS:
            pids.update(process.pid for process in _listed(nvml, handle, name))
        graphics = {process.pid for process in _listed(nvml, handle, _GRAPHICS)}
    clients = Clients(pids, graphics)
    return sorted(pid for pid in pids - {os.getpid()} if not is_desktop(pid, clients))


def _listed(nvml: Any, handle: Any, name: str) -> list[Any]:
    """An NVML list; empty if this GPU or driver does not have it."""
    try:
        return list(getattr(nvml, name)(handle))
    except nvml.NVMLError as error:
        if error.value in ABSENT:
            return []
        raise


def described(processes: list[int]) -> str:
    """Process numbers with their names, where this user may see them."""
    return ", ".join(f"{process} ({process_name(process) or '?'})" for process in processes[:8])
