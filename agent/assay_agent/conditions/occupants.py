"""One run at a time: the processes that NVML lists on the GPU before a run, and waiting for them to end.

The lock keeps agents of one user apart; this sees everybody else. In a container NVML lists host process
numbers, or nothing: then nothing is seen. Source: notes on NVML, sections 5 and 6.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from assay_agent.conditions.base import Condition, Site
from assay_agent.conditions.nvml import ABSENT, NvmlError, nvml_device

PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 1.0
# Those that stayed through a whole wait, by GPU: another minute would not move them.
_stayed: dict[str, frozenset[int]] = {}
_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")


class AloneOnGpu(Condition):
    """Waits a while until no other process computes on the GPU.

    One that stays is no reason not to measure: the telemetry of the run flags it.
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
    """Wait until no stranger computes on the GPU, at most PATIENCE_SECONDS; the processes that stay.

    Nobody is waited for who stayed through a whole wait before. Raises NvmlError.
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
    """Process numbers that compute on the GPU, without this process; raises NvmlError."""
    found: set[int] = set()
    with nvml_device(uuid) as (nvml, handle):
        for name in _LISTS:
            found.update(process.pid for process in _listed(nvml, handle, name))
    return sorted(found - {os.getpid()})


def _listed(nvml: Any, handle: Any, name: str) -> list[Any]:
    """What a list of NVML holds; nothing where this GPU or driver does not have it."""
    try:
        return list(getattr(nvml, name)(handle))
    except nvml.NVMLError as error:
        if error.value in ABSENT:
            return []
        raise


def described(processes: list[int]) -> str:
    """Process numbers with their names, where this user may see them."""
    return ", ".join(f"{process} ({_name(process)})" for process in processes[:8])


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text(errors="replace").strip()
    except OSError:
        return "?"
