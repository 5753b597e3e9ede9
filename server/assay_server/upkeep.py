"""The server's regular upkeep: ends leases, publishes leftovers, reads identities again."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from assay_core.records.campaign import AttemptState
from assay_server.access.audit import AuditLog
from assay_server.access.directory import REFRESH_SECONDS, IdentityDirectory
from assay_server.campaigns.analysing.kept_parts import KEPT_SECONDS
from assay_server.campaigns.arrivals import clear_arrivals
from assay_server.campaigns.bundles.named import named_bundles
from assay_server.campaigns.carry_out import RequestRunner
from assay_server.campaigns.heartbeats.answering import NOTED_PART_OF_LEASE, NOTED_SECONDS
from assay_server.campaigns.ingest.publish import Publisher
from assay_server.campaigns.ingest.sweeping import sweep
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.clock import SharedClock
from assay_server.identity.withdrawn import WithdrawnCertificates
from assay_server.threads.repeating import repeated_in_thread

_log = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_HOUR_SECONDS = 3600.0
_CLOCK_SECONDS = 10.0
_ROOM_SECONDS = 5.0
_ARRIVALS_SECONDS = 10.0
_LOGS_AT_A_TIME = 100
# Of a lease: a server that stood still for this long may have missed signs of life.
_SLEPT = 0.25


class Refreshed(Protocol):
    """Something in memory that is read again regularly, for changes by other servers."""

    def refresh(self) -> None: ...


class LeaseKeeper:
    """Ends expired leases, unless this server itself did not answer.

    A server that was stopped (SIGSTOP, a debugger, a frozen container) or had no database hears signs of life
    only after it continues, so it restarts every lease before it ends any. In a suspended machine the clock
    stands still. The database's clock is asked here, so that no lease ends because somebody set it. Servers
    learn of that one after the other, and in between they note leases by different times: who has learned of
    it ends none until all have, and who has not asks before it ends any.
    """

    def __init__(self, coordinator: Coordinator, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._coordinator = coordinator
        self._monotonic = monotonic
        lease_seconds = coordinator.policy.lease_ms / 1000
        self.pause_seconds = min(_TICK_SECONDS, lease_seconds / 4)
        self._sleep_seconds = lease_seconds * _SLEPT
        self._looked = self._synchronised = monotonic()
        self._ends_none_until: float | None = None

    def look(self) -> None:
        """Call this every ``pause_seconds``."""
        looked = self._monotonic()
        away, set_by = looked - self._looked, self._clock_set_by(looked)
        if away > self.pause_seconds + self._sleep_seconds:
            self._begin_again(f"this server was stopped for {away:.0f} s")
        elif abs(set_by) > self._sleep_seconds:
            self._begin_by_new_time(set_by)
        elif self._ends_none_until is None:
            self._end()
        elif looked >= self._ends_none_until:
            self._ends_none_until = None
            self._begin_again("every server has the new time of the database")
        self._looked = looked  # only now: while the database is away, no sign of life is heard either

    def _clock_set_by(self, looked: float, *, every_seconds: float = _CLOCK_SECONDS) -> float:
        """By how many seconds the clock of the database was set since it was last asked."""
        clock = self._coordinator.clock
        if not isinstance(clock, SharedClock) or looked - self._synchronised < every_seconds:
            return 0.0
        set_by = clock.synchronise() / 1000
        self._synchronised = looked
        return set_by

    def _begin_by_new_time(self, set_by: float) -> None:
        self._begin_again(f"the clock of the database was set by {set_by:+.0f} s")
        if self._coordinator.peers.shared:
            self._ends_none_until = self._monotonic() + 2 * _CLOCK_SECONDS

    def _begin_again(self, why: str) -> None:
        _log.warning("%s: all leases start again", why)
        with self._coordinator.schedule() as schedule:
            schedule.extend_all()

    def _end(self) -> None:
        # A server may have answered a heartbeat from memory that it has not noted yet.
        now_ms = self._coordinator.clock.now_ms() - noted_after_ms(self._coordinator)
        with self._coordinator.snapshot() as store:
            due = store.attempts_in((AttemptState.LEASED,), lease_ended_before_ms=now_ms)
        if not due:
            return
        set_by = self._clock_set_by(self._monotonic(), every_seconds=0.0)
        if abs(set_by) > self._sleep_seconds:
            self._begin_by_new_time(set_by)
            return
        with self._coordinator.schedule() as schedule:
            schedule.expire(now_ms)


def noted_after_ms(coordinator: Coordinator) -> int:
    """How long after a heartbeat other servers may first see that it extended a lease; 0: there are none."""
    lease_ms = coordinator.policy.lease_ms
    noted_ms = min(int(NOTED_SECONDS * 1000), lease_ms // NOTED_PART_OF_LEASE)
    return 2 * noted_ms if coordinator.peers.shared else 0


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

    def forget_parts(self) -> None:
        """Remove what broken uploads of bundles left on this server long ago."""
        if self._coordinator.bundles is not None:
            self._coordinator.bundles.forget_parts()

    def forget_analysis_parts(self) -> None:
        """Remove old finished workloads of analyses that nobody takes up again."""
        before_ms = self._coordinator.clock.now_ms() - KEPT_SECONDS * 1000
        with self._coordinator.schedule() as schedule:
            schedule.store.forget_old_analysis_parts(before_ms)

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
    sessions: Refreshed | None,
) -> Iterator[None]:
    """Threads: watch leases, publish what a restart or a full disk interrupted, carry on people's requests
    that it interrupted, remove what crashes left of large campaigns, read identities, forget old entries of
    the audit log, keep house. Of several servers one at a time does what is the same for all.

    Publishing a large run takes longer than a lease, and must not look like a stopped server.
    """
    leases = LeaseKeeper(coordinator)
    house.look()

    def read_identities() -> None:
        withdrawn.refresh()
        directory.refresh()
        if sessions is not None:
            sessions.refresh()

    def one_alone(name: str, step: Callable[[], None]) -> Callable[[], None]:
        def led() -> None:
            with coordinator.peers.holding([f"upkeep {name}"]) as mine:
                if mine:
                    step()

        return led

    def swept() -> None:
        if (
            coordinator.peers.shared
        ):  # else only a start may look: nothing tells a leftover from a file to come
            sweep(coordinator)

    with (
        repeated_in_thread("assay-leases", leases.look, leases.pause_seconds),
        repeated_in_thread("assay-maintenance", publisher.resume, _TICK_SECONDS),
        repeated_in_thread("assay-requests", requests.resume, _TICK_SECONDS),
        repeated_in_thread("assay-identities", read_identities, REFRESH_SECONDS),
        repeated_in_thread("assay-sweep", one_alone("sweep", swept), _HOUR_SECONDS),
        repeated_in_thread("assay-audit", one_alone("audit", audit.forget), _HOUR_SECONDS),
        repeated_in_thread("assay-room", house.look, _ROOM_SECONDS),
        repeated_in_thread("assay-arrivals", lambda: clear_arrivals(coordinator), _ARRIVALS_SECONDS),
        repeated_in_thread("assay-bundles", one_alone("bundles", house.forget_bundles), _HOUR_SECONDS),
        repeated_in_thread("assay-bundle-parts", house.forget_parts, _HOUR_SECONDS),
        repeated_in_thread("assay-parts", one_alone("parts", house.forget_analysis_parts), _HOUR_SECONDS),
        repeated_in_thread("assay-logs", one_alone("logs", house.forget_logs), _HOUR_SECONDS),
    ):
        yield
