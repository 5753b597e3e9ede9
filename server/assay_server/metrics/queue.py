"""The queue and the slots, asked of the store when metrics are read, and never more often than is cheap."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from assay_core.records.campaign import AttemptState, CampaignState
from assay_sampling.errors import StorageError
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.fitting_slots import AWAY_AFTER_MS
from assay_server.campaigns.scheduling.resting import Row
from assay_server.store.model import OPEN_RUNS, Agent
from assay_server.store.overviews import StoreLoad

_log = logging.getLogger(__name__)

_FRESH_SECONDS = 5.0
_REST = 50.0  # x the time of asking: at most a fiftieth of a core, however long the queue
# An agent that was not heard of for so long was taken away on purpose.
_FORGOTTEN_MS = 7 * 86_400_000


@dataclass(frozen=True)
class Queue:
    """Numbers by state, each state with a number."""

    campaigns: Mapping[str, int] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    agents: Mapping[str, int] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)


_FAMILIES = (
    ("campaigns", "Campaigns by state."),
    ("runs", "Runs of running campaigns that have not ended, by state."),
    ("attempts", "Attempts under way, by state."),
    ("agents", "Agents heard of in the last week: present, or away for more than two minutes."),
    ("slots", "Slots of present agents: idle, busy, resting after a fault of their box, or quarantined."),
)


class QueueCollector(Collector):
    """Asks the store when it is read, unless the last answer is fresh enough."""

    def __init__(self, coordinator: Coordinator, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._coordinator = coordinator
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._queue = Queue()
        self._fresh_until = -1.0

    def describe(self) -> Iterable[Metric]:
        # Registering a collector must not ask the store.
        return [GaugeMetricFamily(f"assay_server_{name}", text) for name, text in _FAMILIES]

    def collect(self) -> Iterable[Metric]:
        queue = self._current()
        for name, text in _FAMILIES:
            family = GaugeMetricFamily(f"assay_server_{name}", text, labels=["state"])
            for state, number in getattr(queue, name).items():
                family.add_metric([state], number)
            yield family

    def _current(self) -> Queue:
        with self._lock:
            began = self._monotonic()
            if began >= self._fresh_until:
                try:
                    with self._coordinator.snapshot() as store:
                        load, agents = store.load(), store.agents()
                    now_ms = self._coordinator.clock.now_ms()
                    self._queue = queue_of(load, agents, self._coordinator.resting(), now_ms)
                except StorageError as error:
                    _log.warning("the queue cannot be counted: %s", error)
                    self._queue = Queue()  # no numbers rather than old ones
                took = self._monotonic() - began
                self._fresh_until = began + max(_FRESH_SECONDS, _REST * took)
            return self._queue


def queue_of(load: StoreLoad, agents: Iterable[Agent], resting: Row, now_ms: int) -> Queue:
    """The numbers by state; agents silent for a week are left out. ``now_ms``: by the server's clock."""
    known = [agent for agent in agents if now_ms - agent.seen_at_ms <= _FORGOTTEN_MS]
    present = [agent for agent in known if now_ms - agent.seen_at_ms <= AWAY_AFTER_MS]
    rests = {(rest.agent_id, rest.slot_id) for rest in resting.rests}
    states: Counter[str] = Counter()
    for agent in present:
        for slot in agent.slots:
            if slot.quarantine_reason:
                states["quarantined"] += 1
            elif (agent.agent_id, slot.slot_id) in rests:
                states["resting"] += 1
            else:
                states["in_service"] += 1
    busy = min(load.busy_slots, states["in_service"])
    return Queue(
        campaigns={str(state): load.campaigns.get(state, 0) for state in CampaignState},
        runs={str(state): load.runs.get(state, 0) for state in OPEN_RUNS},
        attempts={str(s): load.attempts.get(s, 0) for s in (AttemptState.LEASED, AttemptState.PUBLISHING)},
        agents={"present": len(present), "away": len(known) - len(present)},
        slots={
            "idle": states["in_service"] - busy,
            "busy": busy,
            "resting": states["resting"],
            "quarantined": states["quarantined"],
        },
    )
