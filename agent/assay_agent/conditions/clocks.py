"""Locked clocks: by NVML for light runs; for detailed runs ncu locks them, and we clean up after it.

``base`` locks to NVML's limit "TDP", the clock that the GPU is rated for; ``boost`` to its highest boost
clock. Locking needs root; if it is refused, the run continues with free clocks and is flagged. Afterwards
the clocks are reset, even if a person had locked them: NVML does not report earlier locks.

Source: docs/conditions.md, "Clocks".
"""

from __future__ import annotations

import logging
import shutil
from types import TracebackType
from typing import Any, Self

from assay_agent.conditions.base import Condition, Site
from assay_agent.conditions.leftovers import CLOCKS_ENTRY, NCU_CLOCKS_ENTRY, reset_ncu_clocks
from assay_agent.gpus.model import GpuModel
from assay_agent.gpus.nvml import NOT_PERMITTED, NvmlError, nvml_device
from assay_sampling.errors import StorageError
from assay_sampling.running.identity import ClockCondition

_log = logging.getLogger(__name__)


class LockedClocks(Condition):
    """The SM clock locked to ``clock`` ("base" or "boost") through NVML, while a light run is measured."""

    def __init__(self, site: Site, clock: str) -> None:
        super().__init__(site)
        self.clock = clock
        self._locked = False

    def __enter__(self) -> Self:
        self.site.journal.step(CLOCKS_ENTRY, "lock", clock=self.clock)
        try:
            with nvml_device(self.site.gpu.device.uuid) as (nvml, handle):
                limits = _limits(nvml, handle, self.clock)
                nvml.nvmlDeviceSetGpuLockedClocks(handle, *limits)
            self._locked = True
        except NvmlError as error:
            self.site.journal.end(CLOCKS_ENTRY)
            why = "the agent's user may not" if error.code == NOT_PERMITTED else str(error)
            self.flag("clock_unlocked", f"the {self.clock} clock could not be locked: {why}")
        self.facts["clock_locked"] = int(self._locked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._locked:
            return
        try:
            with nvml_device(self.site.gpu.device.uuid) as (nvml, handle):
                nvml.nvmlDeviceResetGpuLockedClocks(handle)
            self.site.journal.end(CLOCKS_ENTRY)
        except NvmlError as problem:
            _log.error("the clocks of %s stay locked: %s", self.site.gpu.device.uuid, problem)
            self.flag("clocks_left_locked", f"the clocks could not be unlocked: {problem}")
        except StorageError as problem:
            _log.warning("the clocks of %s are unlocked, but: %s", self.site.gpu.device.uuid, problem)


def _limits(nvml: Any, handle: Any, clock: str) -> tuple[int, int]:
    """Lower and upper limit: NVML's names for the rated clock, or the boost clock in MHz."""
    if clock == "base":
        return nvml.NVML_CLOCK_LIMIT_ID_TDP, nvml.NVML_CLOCK_LIMIT_ID_TDP
    try:
        boost = nvml.nvmlDeviceGetClock(handle, nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_ID_CUSTOMER_BOOST_MAX)
    except nvml.NVMLError:
        boost = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
    return boost, boost


class ModelledClocks(Condition):
    """The SM clock of a modelled GPU locked to ``clock``; its stand-in tools read it from a variable.

    A model that is asked to refuse behaves like a real driver that refuses.
    """

    def __init__(self, site: Site, model: GpuModel, clock: ClockCondition) -> None:
        super().__init__(site)
        variables = model.clock_variables(clock, site.environment)
        self.facts["clock_locked"] = int(variables is not None)
        if variables is None:
            self.flag("clock_unlocked", f"the {clock} clock could not be locked (simulated fault)")
        else:
            self.environment |= variables


class NcuClocks(Condition):
    """Nsight Compute locks the clocks itself; if it was killed, they are reset afterwards."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._program = shutil.which("ncu", path=site.gpu.path)
        self._ended_by_force = False

    def __enter__(self) -> Self:
        if self._program is not None:
            self.site.journal.step(NCU_CLOCKS_ENTRY, "lock", program=self._program)
        return self

    def before_ending(self) -> None:
        self._ended_by_force = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._program is None:
            return
        try:
            if self._ended_by_force or error is not None:
                variables = {**self.site.gpu.variables, "PATH": self.site.gpu.path}
                outcome = reset_ncu_clocks(self._program, self.site.gpu.device.uuid, variables)
                self.site.note(f"ncu --clock-control reset: {outcome}")
            self.site.journal.end(NCU_CLOCKS_ENTRY)
        except (OSError, StorageError) as problem:
            _log.warning("the clocks of %s may stay locked: %s", self.site.gpu.device.uuid, problem)
