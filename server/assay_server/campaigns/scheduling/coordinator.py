"""Scheduler transactions and the effects of their commit: listeners are called, files cleaned up."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from assay_core.program_log import log_about
from assay_core.records.campaign import AttemptState
from assay_core.records.failure import Failure
from assay_sampling.errors import StorageError
from assay_server.analysis.runs.intact import ChangedRecords
from assay_server.campaigns.bundles import BundleStore
from assay_server.campaigns.capacity import Capacity
from assay_server.campaigns.last_heard import LastHeard
from assay_server.campaigns.scheduling.queue import Queue
from assay_server.campaigns.scheduling.resting import Rest, RestingSlots, SlotKey
from assay_server.campaigns.scheduling.schedule import Schedule
from assay_server.campaigns.scheduling.transitions import Effects, SchedulePolicy
from assay_server.campaigns.scheduling.waiting import Lab, Line
from assay_server.clock import Clock
from assay_server.store.model import Agent, Attempt, Campaign, Run
from assay_server.store.record_store import RecordStore
from assay_server.store.sql import MetadataStore, SqlTransaction
from assay_server.store.transactions import OutcomeUnknownError

_log = logging.getLogger(__name__)

Listener = Callable[[Effects], None]


class Coordinator:
    """The rest of the server's access to store and scheduler. Thread-safe.

    ``on_stored`` hears of each transaction that is durable: how many seconds it waited for the writer,
    worked, and was committed. ``on_refusal`` is called after each that the store, or something in it,
    refused.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        records: RecordStore,
        policy: SchedulePolicy,
        clock: Clock,
        *,
        capacity: Capacity,
        bundles: BundleStore,
        on_stored: Callable[[float, float, float], None] = lambda *seconds: None,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        self.records = records
        self.clock = clock
        self.policy = policy
        self.slots = RestingSlots(policy.rest)
        self.queue = Queue()
        self.changed_records = ChangedRecords()
        self.capacity, self.bundles = capacity, bundles
        self.last_heard = LastHeard(spool_ms=2 * policy.lease_ms)
        self.arriving = threading.Lock()  # held while a large campaign comes in, or what is left of one goes
        self._metadata = metadata
        self._on_stored, self._on_refusal = on_stored, on_refusal
        self._change_numbers = itertools.count(1)
        self._last_changes: dict[str, int] = {}
        self._listeners: list[tuple[Listener, tuple[Callable[[Effects], object], ...]]] = []

    def listen(self, listener: Listener, *about: Callable[[Effects], object]) -> None:
        """Call ``listener`` with the effects of every durable transaction, in the transaction's thread.

        ``about``: only of those with effects of one of these kinds, such as ``attrgetter("ended")``.
        """
        self._listeners.append((listener, about))

    def last_change(self, campaign_id: str) -> int:
        """A number that grows with each durable change of a campaign; 0: none since the start."""
        return self._last_changes.get(campaign_id, 0)

    def snapshot(self) -> AbstractContextManager[SqlTransaction]:
        return self._metadata.snapshot()

    @contextmanager
    def schedule(self) -> Iterator[Schedule]:
        """One scheduler transaction: durable when the block ends, undone when it raises."""
        start = time.perf_counter()
        try:
            with self._metadata.transaction() as transaction:
                began = time.perf_counter()
                schedule = Schedule(transaction, self.policy, self.clock.now_ms(), self.slots, self.queue)
                yield schedule
                ended = time.perf_counter()
        except StorageError as error:
            self._on_refusal()
            if isinstance(error, OutcomeUnknownError):
                # If it was kept, nobody follows its effects: what is kept in memory is read again.
                self._follow_in_memory(Effects(work=True, doubt=True))
            else:
                self.queue.doubt()
            raise
        self._on_stored(began - start, ended - began, time.perf_counter() - ended)
        self._follow(schedule.effects)

    def resting(self) -> dict[SlotKey, Rest]:
        """The slots that rest now."""
        return self.slots.now(self.clock.now_ms())

    def lab(self, store: SqlTransaction) -> Lab:
        """The places for runs now."""
        return Lab(store.agents(), self.clock.now_ms(), self.resting())

    def line(self, store: SqlTransaction, campaign: Campaign, runs: Sequence[Run]) -> Line:
        """What decides about these runs of a campaign besides agents."""
        policy, rules, now_ms = self.policy, campaign.compiled.scheduling, self.clock.now_ms()
        still_open = store.open_workloads(campaign.campaign_id) if rules.after else set()
        beside = any(run.placement.concerns_other_slots for run in runs)
        leased = store.attempts_in((AttemptState.LEASED,)) if beside else []
        return Line(
            policy.windows,
            self.queue.budget_left_hours(
                campaign.campaign_id, campaign.owner, rules, policy.person_gpu_hours, now_ms
            ),
            {name: tuple(w for w in first if w in still_open) for name, first in rules.after.items()},
            frozenset((attempt.agent_id, slot_id) for attempt in leased for slot_id in attempt.slots),
        )

    def restarted(self, agent: Agent) -> None:
        """An agent has registered, possibly with a new process."""
        self.slots.restarted(agent.agent_id, agent.session_id, self.clock.now_ms())
        self.queue.registered(agent.agent_id)

    def _follow(self, effects: Effects) -> None:
        for key in dict.fromkeys(effects.dead):
            try:
                self.records.discard(key)
            except StorageError as error:
                _log.warning("left for the sweep at the next start: %s", error)
        for attempt, state, cause in effects.ended:
            _log_failure(attempt, state, cause)
        self._follow_in_memory(effects)

    def _follow_in_memory(self, effects: Effects) -> None:
        """Bring what is kept in memory up to date, and call the listeners."""
        for campaign_id in effects.campaigns:
            self._last_changes[campaign_id] = next(self._change_numbers)
        now_ms = self.clock.now_ms()
        for attempt, why in effects.rested:
            self.slots.failed(attempt, why, now_ms)
        for agent_id in effects.refused:
            self.slots.refused(agent_id)
        for attempt, state, _ in effects.ended:
            if state is AttemptState.PUBLISHED:
                self.slots.succeeded(attempt)
        self._tell_queue(effects, now_ms)
        for listener, about in self._listeners:
            if not about or any(kind(effects) for kind in about):
                listener(effects)

    def _tell_queue(self, effects: Effects, now_ms: int) -> None:
        if effects.doubt:
            self.queue.doubt()
        if effects.work:
            self.queue.changed(effects.campaigns, self.snapshot)
        for key, run in effects.leased:
            self.queue.began(key, run, now_ms)
        for attempt, _, _ in effects.ended:
            self.queue.ledger.ended(attempt.key, now_ms)


def _log_failure(attempt: Attempt, state: AttemptState, why: Failure | None) -> None:
    """One line for each attempt that failed or was lost; those that people cancelled are not news."""
    if why is None or state not in (AttemptState.FAILED, AttemptState.EXPIRED):
        return
    with log_about(**attempt.key.log_fields):
        _log.warning(
            "an attempt failed on slot %s of agent %s: %s [%s]",
            attempt.slot_id, attempt.agent_name, why.cause, why.failure_class,
        )  # fmt: skip
