"""The server's metrics: counters, and values read from the store and the state folder.

Labels name states, RPCs, statuses and failure classes: never a run or a kernel.
"""

from __future__ import annotations

import collections
import functools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter
from pathlib import Path

from cryptography import x509
from prometheus_client import Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from assay_core.metrics.certificates import CertificatesCollector, certificate_of_file
from assay_core.metrics.program import SECONDS_BUCKETS, program_registry
from assay_core.records.campaign import AttemptState, CampaignState
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.fitting_slots import AWAY_AFTER_MS
from assay_server.campaigns.scheduling.resting import SlotKey
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.identity.authority import read_authority
from assay_server.maintenance.backup_log import Task, last_done
from assay_server.store.model import ACTIVE_ATTEMPTS, OPEN_RUNS, Agent
from assay_server.store.parts.overviews import StoreLoad

_log = logging.getLogger(__name__)

_CLASSES = frozenset(str(each) for each in FailureClass)
OTHER = "other"  # a class that only a newer agent knows

_FRESH_SECONDS = 5.0
_REST = 50.0  # x the time of asking: at most a fiftieth of a core, however long the queue
# An agent that was not heard of for so long was taken away on purpose.
_FORGOTTEN_MS = 7 * 86_400_000
_QUEUE = {
    "campaigns": "Campaigns by state.",
    "runs": "Runs of running campaigns that have not ended, by state.",
    "attempts": "Attempts under way, by state.",
    "agents": "Agents heard of in the last week: present, or away for more than two minutes.",
    "slots": "Slots of present agents: idle, busy, resting after a fault of their box, or quarantined.",
}
_Queue = Mapping[str, Mapping[str, int]]  # numbers by state, for each of _QUEUE


class ServerMetrics:
    """The metrics of one server object, in a registry of its own. Its methods are called from any thread."""

    def __init__(self, state: Path) -> None:
        self.registry = registry = program_registry("assay-server", state)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"assay_server_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"assay_server_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"assay_server_{name}", text, labels, registry=registry, buckets=SECONDS_BUCKETS)

        calls = counter("calls_total", "Calls that have ended, by RPC and gRPC status.", "call", "code")
        running = gauge("calls_running", "Calls under way, waiting ones included.", "call")
        call_seconds = histogram(
            "call_seconds", "Time to answer, without waits for work; streams are left out.", "call"
        )
        self._launches = counter("launches_total", "Launches stored durably.")
        self._bytes = counter("bytes_total", "Compressed bytes of segments stored durably.")
        self._segments = counter("segments_total", "Segments stored durably.")
        self._attempts = counter("attempts_ended_total", "Attempts that have ended, by outcome.", "outcome")
        self._failures = counter("failures_total", "Failed attempts by failure class.", "failure_class")
        self._analyses = counter("analyses_total", "Analyses that have ended, by outcome.", "outcome")
        store_seconds = histogram(
            "store_seconds", "Writing transactions: wait for the writer, work, commit.", "part"
        )
        self.store_errors = counter("store_errors_total", "Writing transactions that were undone.")
        # Looking up labels takes longer than counting; these are few, and needed for every call.
        self._running_of = functools.cache(running.labels)
        self._calls_of = functools.cache(calls.labels)
        self._call_seconds_of = functools.cache(call_seconds.labels)
        self._store_seconds_of = functools.cache(store_seconds.labels)
        self.serving = gauge("serving", "1 while the health service says SERVING.")
        self.draining = gauge("draining", "1 once the server was told to end.")
        self.standing_by = gauge("standing_by", "1 while another server leads its database.")
        # Other processes back up and check; their notes in the folder are read when metrics are.
        kept_at = gauge(
            "kept_time_seconds", "When the last backup and the last check ended, Unix time; 0: never.", "task"
        )
        kept_faults = gauge(
            "kept_faults", "Files that the last backup lacks, and findings of the last check.", "task"
        )
        for task in Task:
            kept_at.labels(task).set_function(functools.partial(_ended_seconds, state, task))
            kept_faults.labels(task).set_function(functools.partial(_faults, state, task))
        # A counter that appears only with its first event hides that event from rate().
        for outcome in set(AttemptState) - set(ACTIVE_ATTEMPTS):
            self._attempts.labels(str(outcome))
        for name in sorted({*_CLASSES, OTHER}):
            self._failures.labels(name)
        self._analyses.labels("done")
        self._analyses.labels("failed")

    def watch(self, coordinator: Coordinator, analyses_running: Callable[[], int]) -> None:
        """Count the effects of this coordinator's transactions, and ask it for its queue when read."""
        coordinator.listen(self._heard, attrgetter("stored"), attrgetter("ended"))
        self.registry.register(QueueCollector(coordinator))
        running = Gauge("assay_server_analyses_running", "Analyses under way.", registry=self.registry)
        running.set_function(analyses_running)

    def tell_certificates(self, state: Path, of_metrics: Callable[[], Path | None]) -> None:
        """Tell when a state folder's authority ends (and the server's certificate), and that of metrics."""

        def authority() -> x509.Certificate | None:
            stored_authority = read_authority(state)
            return None if stored_authority is None else stored_authority.certificate

        sources: dict[str, Callable[[], x509.Certificate | None]] = {
            "authority": authority,
            "metrics": lambda: certificate_of_file(of_metrics()),
        }
        self.registry.register(CertificatesCollector(sources))

    def _heard(self, effects: Effects) -> None:
        if effects.stored:
            self._segments.inc(len(effects.stored))
            self._launches.inc(sum(segment.launches for segment in effects.stored))
            self._bytes.inc(sum(each.names_bytes + each.launches_bytes for each in effects.stored))
        for _, state, why in effects.ended:
            self._attempts.labels(str(state)).inc()
            if why is not None and state is not AttemptState.CANCELLED:
                name = why.failure_class if why.failure_class in _CLASSES else OTHER
                self._failures.labels(name).inc()

    # The meter of calls, on the event loop.

    def began(self, call: str) -> None:
        """A call has arrived; ``call`` is the name of its RPC."""
        self._running_of(call).inc()

    def ended(self, call: str, code: str, seconds: float | None) -> None:
        """It has ended with this status. ``seconds``: None for streams."""
        self._running_of(call).dec()
        self._calls_of(call, code).inc()
        if seconds is not None:
            self._call_seconds_of(call).observe(seconds)

    # The meter of the store.

    def stored(self, wait_seconds: float, work_seconds: float, commit_seconds: float) -> None:
        self._store_seconds_of("wait").observe(wait_seconds)
        self._store_seconds_of("work").observe(work_seconds)
        self._store_seconds_of("commit").observe(commit_seconds)

    def analysed(self, done: bool) -> None:
        """An analysis has ended."""
        self._analyses.labels("done" if done else "failed").inc()


def _ended_seconds(state: Path, task: Task) -> float:
    """When a task of maintenance was last done, Unix time; 0: never."""
    done = last_done(state, task)
    return 0.0 if done is None else done.ended_at_ms / 1000


def _faults(state: Path, task: Task) -> int:
    """What it found then."""
    done = last_done(state, task)
    return 0 if done is None else done.faults


class QueueCollector(Collector):
    """The queue and the slots: asks the store when it is read, unless the last answer is fresh enough."""

    def __init__(self, coordinator: Coordinator, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._coordinator = coordinator
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._queue: _Queue = {}
        self._fresh_until = -1.0

    def describe(self) -> Iterable[Metric]:
        # Registering a collector must not ask the store.
        return [GaugeMetricFamily(f"assay_server_{name}", text) for name, text in _QUEUE.items()]

    def collect(self) -> Iterable[Metric]:
        queue = self._current()
        for name, text in _QUEUE.items():
            family = GaugeMetricFamily(f"assay_server_{name}", text, labels=["state"])
            for state, number in queue.get(name, {}).items():
                family.add_metric([state], number)
            yield family

    def _current(self) -> _Queue:
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
                    self._queue = {}  # no numbers rather than old ones
                took = self._monotonic() - began
                self._fresh_until = began + max(_FRESH_SECONDS, _REST * took)
            return self._queue


def queue_of(load: StoreLoad, agents: Iterable[Agent], resting: Collection[SlotKey], now_ms: int) -> _Queue:
    """The numbers by state; agents silent for a week are left out. ``now_ms``: by the server's clock."""
    recent = [agent for agent in agents if now_ms - agent.seen_at_ms <= _FORGOTTEN_MS]
    present = [agent for agent in recent if now_ms - agent.seen_at_ms <= AWAY_AFTER_MS]
    states: collections.Counter[str] = collections.Counter()
    for agent in present:
        for slot in agent.slots:
            if slot.quarantine_reason:
                states["quarantined"] += 1
            else:
                rests = (agent.agent_id, slot.slot_id) in resting
                states["resting" if rests else "in_service"] += 1
    busy = min(load.busy_slots, states["in_service"])
    return {
        "campaigns": {str(state): load.campaigns.get(state, 0) for state in CampaignState},
        "runs": {str(state): load.runs.get(state, 0) for state in OPEN_RUNS},
        "attempts": {str(state): load.attempts.get(state, 0) for state in ACTIVE_ATTEMPTS},
        "agents": {"present": len(present), "away": len(recent) - len(present)},
        "slots": {
            "idle": states["in_service"] - busy,
            "busy": busy,
            "resting": states["resting"],
            "quarantined": states["quarantined"],
        },
    }
