"""The server's regular upkeep: ends leases, publishes leftovers, reads identities again."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from assay_core.records.campaign import AttemptState
from assay_server.access.audit import AuditLog
from assay_server.access.caller import REFRESH_SECONDS
from assay_server.campaigns.bundles import named_bundles
from assay_server.campaigns.carry_out import RequestRunner
from assay_server.campaigns.ingest.publish import Publisher
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.submit import clear_arrivals
from assay_server.threads.repeating import repeated_in_thread

_log = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_HOUR_SECONDS = 3600.0
_CAPACITY_SECONDS = 5.0
_ARRIVALS_SECONDS = 10.0
_LOGS_AT_A_TIME = 100
# Of a lease: a server that stood still for this long may have missed signs of life.
_SLEPT = 0.25


class LeaseKeeper:
    """Ends expired leases, unless this server itself did not answer.

    A server that was stopped (SIGSTOP, a debugger, a frozen container) or had no database hears signs of life
    only after it continues, so it restarts every lease before it ends any. In a suspended machine the clock
    stands still.
    """

    def __init__(self, coordinator: Coordinator, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._coordinator = coordinator
        self._monotonic = monotonic
        lease_seconds = coordinator.policy.lease_ms / 1000
        self.pause_seconds = min(_TICK_SECONDS, lease_seconds / 4)
        self._sleep_seconds = lease_seconds * _SLEPT
        self._looked = monotonic()

    def look(self) -> None:
        """Call this every ``pause_seconds``."""
        looked = self._monotonic()
        away = looked - self._looked
        if away > self.pause_seconds + self._sleep_seconds:
            _log.warning("this server was stopped for %.0f s: all leases start again", away)
            with self._coordinator.schedule() as schedule:
                schedule.extend_all()
        else:
            self._end()
        self._looked = looked  # only now: while the database is away, no sign of life is heard either

    def _end(self) -> None:
        now_ms = self._coordinator.clock.now_ms()
        with self._coordinator.snapshot() as store:
            due = store.attempts_in((AttemptState.LEASED,), lease_ended_before_ms=now_ms)
        if due:
            with self._coordinator.schedule() as schedule:
                schedule.expire(now_ms)


class Housekeeper:
    """Looks for room for new work, and replaces old logs of attempts without a result.

    Nothing else goes by itself: records and reports of campaigns go only when a person says so.
    """

    def __init__(self, coordinator: Coordinator, keep_logs_seconds: float) -> None:
        self._coordinator = coordinator
        self._keep_logs_ms = int(keep_logs_seconds * 1000)
        days = f"{keep_logs_seconds / 86_400:g}"
        self._removal_notice = f"(this log was removed {days} days after its campaign ended: --keep-logs)"

    def look(self) -> None:
        """Look at the disk and the quota; when there is room again, idle slots hear of it."""
        capacity = self._coordinator.capacity
        was_short = capacity.shortage is not None
        with self._coordinator.snapshot() as store:
            capacity.look(store)
        if was_short and capacity.shortage is None:
            with self._coordinator.schedule() as schedule:
                schedule.effects.work = True

    def forget_bundles(self) -> None:
        """Remove bundles that no campaign names any more, and what broken uploads left long ago."""
        with self._coordinator.snapshot() as store:
            named = named_bundles(store)
        self._coordinator.bundles.forget(named)

    def forget_logs(self) -> None:
        """Replace old logs, a few at a time, so that leases have their turn in between."""
        before_ms = self._coordinator.clock.now_ms() - self._keep_logs_ms
        while self._keep_logs_ms:
            with self._coordinator.schedule() as schedule:
                if not schedule.store.forget_logs(before_ms, _LOGS_AT_A_TIME, self._removal_notice):
                    return


@contextlib.contextmanager
def upkeep(
    coordinator: Coordinator,
    publisher: Publisher,
    requests: RequestRunner,
    house: Housekeeper,
    *,
    audit: AuditLog,
    read_identities: Callable[[], None],
) -> Iterator[None]:
    """Threads: watch leases, publish what a restart or a full disk interrupted, carry on people's requests
    that it interrupted, remove what crashes left of large campaigns, read identities, forget old entries of
    the audit log, keep house.

    Publishing a large run takes longer than a lease, and must not look like a stopped server.
    """
    leases = LeaseKeeper(coordinator)
    house.look()

    with (
        repeated_in_thread("assay-leases", leases.look, leases.pause_seconds),
        repeated_in_thread("assay-maintenance", publisher.resume, _TICK_SECONDS),
        repeated_in_thread("assay-requests", requests.resume, _TICK_SECONDS),
        repeated_in_thread("assay-identities", read_identities, REFRESH_SECONDS),
        repeated_in_thread("assay-audit", audit.forget, _HOUR_SECONDS),
        repeated_in_thread("assay-capacity", house.look, _CAPACITY_SECONDS),
        repeated_in_thread("assay-arrivals", lambda: clear_arrivals(coordinator), _ARRIVALS_SECONDS),
        repeated_in_thread("assay-bundles", house.forget_bundles, _HOUR_SECONDS),
        repeated_in_thread("assay-logs", house.forget_logs, _HOUR_SECONDS),
    ):
        yield
