"""Whether the GPU of a slot takes runs: out of service at once when it is lost, back when that is over.

Back means: a person cleared it (``assay-agent quarantine clear``), or the box was booted or the driver loaded
anew since, and NVML answers for the GPU with no error pending. A GPU that merely answers again stays out: one
that was lost once, and repaired by nobody, is lost again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from assay_agent.quarantine import UNREADABLE, Quarantine, Quarantined
from assay_agent.records import AttemptLog
from assay_agent.session import Session
from assay_agent.telemetry import health
from assay_agent.work import Assignment
from assay_protos import agent_pb2
from assay_sampling.errors import StorageError
from assay_sampling.failures import Failure, FailureClass, failure

_log = logging.getLogger(__name__)

# Journals are looked at so often: who clears one does not want to wait.
LOOK_SECONDS = 1.0
# The server is to know that a slot is out of service before it hears why its run failed.
_ANNOUNCE_SECONDS = 10.0
# A driver that objects to a GPU is not asked all the time: others of its GPUs measure.
_ASK_SECONDS = 60.0

Ask = Callable[[str], str]


class SlotHealth:
    """Of one slot; used by the thread of its worker. ``reason`` is why it takes no runs, "" where it does.

    Args:
        slot: as the server is told of it, in service.
        quarantine: what is out of service.
        session: is told when what was registered has changed.
        present: False: the GPU is not to be found on the box, and the slot is there only to say so.
        ask: what the driver has to say against a GPU; only tests give another.
        machine: what a reboot changes; only tests give another.
    """

    def __init__(
        self,
        slot: agent_pb2.Slot,
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
        if self._gpu and not self._is_in_service():
            entry = quarantine.get(self._gpu)
            self.reason = entry.reason if entry is not None else UNREADABLE
            _log.warning("GPU %s takes no runs: %s", self._gpu, self.reason)

    @property
    def _gpu(self) -> str:
        return self._slot.device.uuid

    @property
    def slot(self) -> agent_pb2.Slot | None:
        """As it is to be registered now; None: nothing is left of it."""
        if not self._present and not self.reason:
            return None
        told = agent_pb2.Slot()
        told.CopyFrom(self._slot)
        told.quarantine_reason = self.reason
        return told

    def takes_runs(self) -> bool:
        """Whether the slot may ask for work now; looks whether what kept it from that is over."""
        if self.reason and not self._unwritten and self._is_in_service():
            _log.info("GPU %s is in service again", self._gpu)
            self.reason = ""
            self._session.announce()
        return self._present and not self.reason

    def judged(self, work: Assignment, problem: Failure | None, log: AttemptLog) -> Failure | None:
        """How an attempt failed (None: it did not), once it is known whether it lost the GPU.

        A GPU that was lost is out of service when this returns, durably, and the server has been told where
        it could be.
        """
        if not self._gpu:
            return problem
        reason = health.evidence(problem, log.telemetry)
        if not reason and health.is_doubtful(problem) and not self._slot.synthetic:
            reason = self._ask(self._gpu)
        if not reason:
            return problem
        self._take_out(work, reason)
        cause = f"{self._slot.device.name} {self._gpu} was lost ({reason}), and is out of service"
        if problem is not None and problem.cause != reason:
            cause += f"; the run failed: {problem.cause}"
        remedy = f"reset or replace the GPU, then, on its box: assay-agent quarantine clear {self._gpu}"
        return failure(FailureClass.GPU_LOST, str(work.key), cause, remedy)

    def _take_out(self, work: Assignment, reason: str) -> None:
        device = self._slot.device
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
        self.reason = reason
        try:
            self._quarantine.add(entry)
        except StorageError as error:  # it stays out as long as this process lives
            self._unwritten = True
            _log.error("that is not known after a restart of the agent: %s", error)
        self._session.announce()
        self._session.wait_registered(_ANNOUNCE_SECONDS)

    def _is_in_service(self) -> bool:
        """Whether nothing is written against the GPU, or what is has been overtaken by a repair."""
        if not self._quarantine.holds(self._gpu):
            return True
        if time.monotonic() < self._ask_at:
            return False
        entry = self._quarantine.get(self._gpu)
        if entry is None:
            # A file that cannot be read now (no descriptor is left, a disk that fails) is no repair.
            self._ask_at = time.monotonic() + _ASK_SECONDS
            return not self._quarantine.holds(self._gpu)
        return self._is_over(entry)

    def _is_over(self, entry: Quarantined) -> bool:
        """Whether the GPU was repaired, as far as the box tells; removes its entry then."""
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


def slot_of(entry: Quarantined) -> agent_pb2.Slot:
    """The slot of a GPU that is not to be found any more, as it was when it was lost."""
    slot = agent_pb2.Slot(slot_id=entry.gpu, profilers=entry.profilers, synthetic=entry.synthetic)
    slot.device.index, slot.device.name, slot.device.uuid = entry.index, entry.name, entry.gpu
    slot.device.compute_capability = str(entry.device.get("compute_capability", ""))
    slot.device.sm_count = int(entry.device.get("sm_count", 0))
    slot.device.memory_bytes = int(entry.device.get("memory_bytes", 0))
    return slot
