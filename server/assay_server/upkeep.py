"""The server's regular upkeep: ends leases, publishes leftovers, reads identities again."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from assay_core.records.campaign import AttemptState
from assay_sampling.errors import AssayError
from assay_server.access.audit import AuditLog
from assay_server.access.directory import REFRESH_SECONDS, IdentityDirectory
from assay_server.campaigns.bundles.named import named_bundles
from assay_server.campaigns.carry_out import RequestRunner
from assay_server.campaigns.ingest.publish import Publisher
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.identity.withdrawn import WithdrawnCertificates

_log = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_HOUR_SECONDS = 3600.0
_ROOM_SECONDS = 5.0
_LOGS_AT_A_TIME = 100
# Of a lease: a server that stood still for this long may have missed signs of life.
_SLEPT = 0.25


class LeaseKeeper:
    """Ends expired leases, unless this server itself did not answer.

    A server that was stopped (SIGSTOP, a debugger, a frozen container) hears signs of life only after it
    continues, so it restarts every lease before it ends any. In a suspended machine the clock stands still.
    """

    def __init__(self, coordinator: Coordinator, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._coordinator = coordinator
        self._monotonic = monotonic
        lease_seconds = coordinator.policy.lease_ms / 1000
        self.pause_seconds = min(_TICK_SECONDS, lease_seconds / 4)
        self._longest_seconds = self.pause_seconds + lease_seconds * _SLEPT
        self._looked = monotonic()

    def look(self) -> None:
        """Call this every ``pause_seconds``."""
        before, self._looked = self._looked, self._monotonic()
        if self._looked - before > self._longest_seconds:
            _log.warning("this server was stopped for %.0f s: all leases start again", self._looked - before)
            with self._coordinator.schedule() as schedule:
                schedule.extend_all()
            return
        now_ms = self._coordinator.clock.now_ms()
        with self._coordinator.snapshot() as store:
            due = store.attempts_in((AttemptState.LEASED,), lease_ended_before_ms=now_ms)
        if due:
            with self._coordinator.schedule() as schedule:
                schedule.expire()


class Housekeeper:
    """Looks for room for new work, and replaces old logs of attempts without a result.

    Nothing else goes by itself: records and reports of campaigns go only when a person says so.
    """

    def __init__(self, coordinator: Coordinator, keep_logs_seconds: float) -> None:
        self._coordinator = coordinator
        self._keep_logs_ms = int(keep_logs_seconds * 1000)
        days = f"{keep_logs_seconds / 86_400:g}"
        self._told = f"(this log was removed {days} days after its campaign ended: --keep-logs)"

    def look(self) -> None:
        """Look at the disk and the quota; when there is room again, idle slots hear of it."""
        room = self._coordinator.room
        if room is None:
            return
        was_short = room.shortage is not None
        with self._coordinator.snapshot() as store:
            room.look(store)
        if was_short and room.shortage is None:
            with self._coordinator.schedule() as schedule:
                schedule.effects.work = True

    def forget_bundles(self) -> None:
        """Remove bundles that no campaign names any more."""
        if self._coordinator.bundles is None:
            return
        with self._coordinator.snapshot() as store:
            named = named_bundles(store)
        self._coordinator.bundles.forget(named)

    def forget_logs(self) -> None:
        """Replace old logs, a few at a time, so that leases have their turn in between."""
        before_ms = self._coordinator.clock.now_ms() - self._keep_logs_ms
        while self._keep_logs_ms:
            with self._coordinator.schedule() as schedule:
                if not schedule.store.forget_logs(before_ms, _LOGS_AT_A_TIME, self._told):
                    return


@contextlib.contextmanager
def upkeep(
    coordinator: Coordinator,
    publisher: Publisher,
    requests: RequestRunner,
    house: Housekeeper,
    *,
    directory: IdentityDirectory,
    withdrawn: WithdrawnCertificates,
    audit: AuditLog,
) -> Iterator[None]:
    """Threads: watch leases, publish what a restart or a full disk interrupted, carry on people's requests
    that it interrupted, read identities, forget old entries of the audit log, keep house.

    Publishing a large run takes longer than a lease, and must not look like a stopped server.
    """
    leases = LeaseKeeper(coordinator)
    house.look()

    def read_identities() -> None:
        withdrawn.refresh()
        directory.refresh()

    with (
        _repeated("assay-leases", leases.look, leases.pause_seconds),
        _repeated("assay-maintenance", publisher.resume, _TICK_SECONDS),
        _repeated("assay-requests", requests.resume, _TICK_SECONDS),
        _repeated("assay-identities", read_identities, REFRESH_SECONDS),
        _repeated("assay-audit", audit.forget, _HOUR_SECONDS),
        _repeated("assay-room", house.look, _ROOM_SECONDS),
        _repeated("assay-bundles", house.forget_bundles, _HOUR_SECONDS),
        _repeated("assay-logs", house.forget_logs, _HOUR_SECONDS),
    ):
        yield


@contextlib.contextmanager
def _repeated(name: str, step: Callable[[], None], pause_seconds: float) -> Iterator[None]:
    end = threading.Event()

    def run() -> None:
        while True:
            try:
                step()
            except AssayError as error:
                _log.warning("%s: %s", name, error)
            except Exception:  # noqa: BLE001 - this thread must outlive every fault
                _log.exception("%s failed", name)
            if end.wait(pause_seconds):
                return

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
