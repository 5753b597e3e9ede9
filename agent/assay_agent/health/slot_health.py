"""Whether the GPU of a slot takes runs: a lost GPU is out of service at once, and returns once repaired.

Repaired means: a person cleared it (``assay-agent quarantine clear``), or the box was rebooted or the driver
reloaded since, and NVML answers for the GPU with no error pending. A GPU that merely answers again stays out:
if nobody repaired it, it will be lost again.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from assay_agent.health import lost_gpu as health
from assay_agent.health.quarantine import UNREADABLE, Quarantine, Quarantined
from assay_agent.uplink.session import Session
from assay_core.records.attempt import AttemptLog
from assay_core.records.failure import Failure, failure
from assay_core.records.machine import InstalledDevice, Slot
from assay_core.records.work import Work
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)

# How often the files are read: a person who clears a GPU does not want to wait.
LOOK_SECONDS = 1.0
# The server must know that a slot is out of service before it hears why its run failed.
_ANNOUNCE_SECONDS = 10.0
# A driver that reports a problem is not asked constantly: its other GPUs are measuring.
_ASK_SECONDS = 60.0

Ask = Callable[[str], str]


class SlotHealth:
    """The health of one slot. ``reason``: why it takes no runs, "" if it does.

    For its worker's thread, and for that of the slot that leads a run over several GPUs.

    Args:
        slot: as it is registered while in service.
        quarantine: the GPUs out of service.
        session: notified when the registration has changed.
        present: False: the GPU has disappeared from the box, and the slot only reports that.
        ask: asks the driver what is wrong with a GPU; only tests replace it.
        machine: identifies the boot; only tests replace it.
    """

    def __init__(
        self,
        slot: Slot,
        quarantine: Quarantine,
        session: Session,
        *,
        present: bool = True,
        ask: Ask = health.ask,
        machine: Callable[[], Mapping[str, str]] = health.machine,
    ) -> None:
        self._slot, self._quarantine, self._session = slot, quarantine, session
        self._present, self._ask, self._machine = present, ask, machine
        self.reason = ""
        self._unwritten = False
        self._ask_at = 0.0
        self._lock = threading.Lock()
        if self._gpu and not self._is_in_service():
            entry = quarantine.get(self._gpu)
            self.reason = entry.reason if entry is not None else UNREADABLE
            _log.warning("GPU %s takes no runs: %s", self._gpu, self.reason)

    @property
    def _gpu(self) -> str:
        return self._slot.device.uuid if self._slot.device is not None else ""

    @property
    def slot(self) -> Slot | None:
        """The slot as it must be registered now; None: it no longer exists."""
        if not self._present and not self.reason:
            return None
        return dataclasses.replace(self._slot, quarantine_reason=self.reason)

    def takes_runs(self) -> bool:
        """Whether the slot may ask for work now; checks whether its GPU was repaired."""
        with self._lock:
            if self.reason and not self._unwritten and self._is_in_service():
                _log.info("GPU %s is in service again", self._gpu)
                self.reason = ""
                self._session.announce()
            return self._present and not self.reason

    def judged(
        self,
        work: Work,
        problem: Failure | None,
        log: AttemptLog,
        telemetry: Mapping[str, Any] | None = None,
    ) -> Failure | None:
        """How an attempt failed (None: it did not), after checking whether it lost the GPU or shared it.

        ``telemetry``: what the sensors of this GPU said, if it is not the only one of the run; what tools
        said may then be about another one. When this returns, a lost GPU is durably out of service, and the
        server knows if it can be reached.
        """
        device = self._slot.device
        if device is None or not device.uuid:
            return problem
        of_sensors = health.evidence_of_sensors(log.telemetry if telemetry is None else telemetry)
        of_tools = health.evidence_of_tools(problem) if telemetry is None else ""
        reason = of_sensors or of_tools
        if not reason and health.is_doubtful(problem) and not self._slot.synthetic:
            reason = self._ask(self._gpu)
        if not reason:
            return self._of_strangers(problem, log.telemetry if telemetry is None else telemetry)
        self._take_out(work, device, reason)
        cause = f"{device.name} {device.uuid} was lost ({reason}), and is out of service"
        if problem is not None and (of_sensors or not of_tools):
            cause += f"; the run failed: {problem.cause}"
        remedy = f"reset or replace the GPU, then, on its box: assay-agent quarantine clear {self._gpu}"
        return failure(FailureClass.GPU_LOST, str(work.key), cause, remedy)

    def _of_strangers(self, problem: Failure | None, telemetry: Mapping[str, Any] | None) -> Failure | None:
        """The failure; the box's if memory ran out while a process of somebody else was on the GPU."""
        strangers = (telemetry or {}).get("foreign_processes") or ()
        if problem is None or problem.failure_class != FailureClass.GPU_MEMORY or not strangers:
            return problem
        device = self._slot.device
        name = f"{device.name} {device.uuid}" if device is not None else self._slot.slot_id
        cause = f"another process was on {name} ({', '.join(strangers)}); the run failed: {problem.cause}"
        return failure(FailureClass.GPU_BUSY, problem.subject, cause, tool_said=problem.tool_said)

    def _take_out(self, work: Work, device: InstalledDevice, reason: str) -> None:
        entry = Quarantined(
            gpu=device.uuid,
            index=device.index,
            name=device.name,
            reason=reason,
            run=str(work.key),
            since_s=int(time.time()),
            synthetic=self._slot.synthetic,
            machine=dict(self._machine()),
            profilers=tuple(self._slot.profilers),
            device={
                "compute_capability": device.compute_capability,
                "sm_count": device.sm_count,
                "memory_bytes": device.memory_bytes,
            },
        )
        _log.error("GPU %s is taken out of service: %s", device.uuid, reason)
        with self._lock:
            self.reason = reason
            try:
                self._quarantine.add(entry)
            except StorageError as error:  # it stays out while this process lives
                self._unwritten = True
                _log.error("a restart of the agent will forget that: %s", error)
        self._session.announce()
        self._session.wait_registered(_ANNOUNCE_SECONDS)

    def _is_in_service(self) -> bool:
        """Whether the GPU has no quarantine entry, or it was repaired since."""
        if not self._quarantine.holds(self._gpu):
            return True
        if time.monotonic() < self._ask_at:
            return False
        entry = self._quarantine.get(self._gpu)
        if entry is None:
            # A file that cannot be read now (no descriptor left, a failing disk) does not mean a repair.
            self._ask_at = time.monotonic() + _ASK_SECONDS
            return not self._quarantine.holds(self._gpu)
        return self._is_over(entry)

    def _is_over(self, entry: Quarantined) -> bool:
        """Whether the GPU was repaired, as far as the box shows; if so, removes its entry."""
        if not self._present:
            return False
        if not health.changed(entry.machine, self._machine()):
            return False
        if not entry.synthetic and self._ask(entry.gpu):
            self._ask_at = time.monotonic() + _ASK_SECONDS
            return False
        try:
            self._quarantine.remove(entry.gpu)
        except StorageError as error:
            _log.warning("GPU %s stays out of service: %s", entry.gpu, error)
            return False
        _log.info("GPU %s was out of service (%s), and answers after a restart", entry.gpu, entry.reason)
        return True


def slot_of(entry: Quarantined) -> Slot:
    """The slot of a GPU that has disappeared, as it was when it was lost."""
    device = InstalledDevice(
        index=entry.index,
        name=entry.name,
        uuid=entry.gpu,
        compute_capability=str(entry.device.get("compute_capability", "")),
        sm_count=int(entry.device.get("sm_count", 0)),
        memory_bytes=int(entry.device.get("memory_bytes", 0)),
    )
    return Slot(entry.gpu, tuple(entry.profilers), entry.synthetic, device)
