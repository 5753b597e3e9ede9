"""A slot: a place that takes one run at a time, and the thread that fills it with work."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator

from tenacity import Retrying, retry_if_exception_type, sleep_using_event, stop_when_event_set

from assay_agent.daemon.attempts import AttemptRunner
from assay_agent.daemon.seldom import SeldomLog
from assay_agent.health.slot_health import LOOK_SECONDS, SlotHealth
from assay_agent.spool.spool import Spool
from assay_agent.uplink.connection import PAUSES, Connection, ServerRefusedError
from assay_agent.uplink.session import Session
from assay_core.records.attempt import AttemptLog
from assay_core.records.failure import failure_of
from assay_core.records.lease import LeaseRequest, UnreadableWork
from assay_core.records.machine import Slot
from assay_core.records.wire import WireError
from assay_core.records.work import Work
from assay_sampling.errors import ServerUnreachableError
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)

# An idle slot asks for work again after these pauses. Work that comes meanwhile begins within 0.75 s in the
# middle and 2 s at most, and 500 idle slots make some 330 calls a second.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 1.5


def idle_pauses() -> Iterator[float]:
    """Seconds between an idle slot's requests for work, without end: growing, as work often comes soon after
    work, and by chance, as many slots that ended together must not ask together."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        yield pause * random.uniform(2 / 3, 4 / 3)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


class SlotWorker:
    """Leases work for one slot and measures it, one attempt after the other, until the session stops.

    A slot whose GPU is out of service asks for nothing, and neither does any while the spool is full.
    ``measured_slots``: those of the run that it leads now, itself first; empty while it waits.
    """

    def __init__(
        self,
        slot: Slot,
        *,
        health: SlotHealth,
        agent_id: str,
        session: Session,
        connection: Connection,
        runner: AttemptRunner,
        spool: Spool,
    ) -> None:
        self.slot = slot
        self.health = health
        self._session = session
        self._seldom = SeldomLog(_log)
        self._connection = connection
        self._runner = runner
        self._spool = spool
        self._request = LeaseRequest(agent_id, session.session_id, slot.slot_id)
        self.measured_slots: tuple[str, ...] = ()
        self.thread = threading.Thread(target=self._run, name=f"assay-slot-{slot.slot_id}", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def _run(self) -> None:
        repeated = Retrying(
            retry=retry_if_exception_type((ServerUnreachableError, ServerRefusedError, WireError)),
            wait=PAUSES,
            stop=stop_when_event_set(self._session.stopping),
            sleep=sleep_using_event(self._session.stopping),
            retry_error_callback=lambda state: None,
            before_sleep=lambda state: _log.debug(
                "no lease: %s", state.outcome and state.outcome.exception()
            ),
        )
        pauses = idle_pauses()
        while self._session.wait_registered():
            if not self.health.takes_runs() or not self._spool.takes_runs():
                self._session.stopping.wait(LOOK_SECONDS)
                continue
            work = repeated(self._lease)
            if work is not None:
                self.measured_slots = (self.slot.slot_id, *work.gang)
                try:
                    self._runner.run(work)
                finally:
                    self.measured_slots = ()
                pauses = idle_pauses()
            else:
                self._session.stopping.wait(next(pauses))

    def _lease(self) -> Work | None:
        """Ask once; None if there is nothing to do. Raises errors after which asking again may help."""
        if not self._spool.takes_runs():
            return None
        try:
            response = self._connection.lease(self._request)
        except ServerRefusedError as error:
            self._seldom.say(logging.ERROR, f"no work for slot {self.slot.slot_id}: {error}")
            raise
        if response.register_again:
            self._session.lose()
            return None
        work = response.work
        if self._session.stopping.is_set():
            return None
        if isinstance(work, UnreadableWork):
            _log.error("cannot read the work that the server gave: %s", work.error)
            problem = failure_of(work.error, FailureClass.SERVER_REFUSED)
            self._runner.report(work.key, work.write_secret, problem, AttemptLog())
            return None
        return work
