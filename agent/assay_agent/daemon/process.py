"""The threads of a running agent: registration, heartbeats, the slots' work, and its orderly end.

The caller of :meth:`AgentProcess.run` registers and sends heartbeats; one thread per slot leases and
measures; one sends (``assay-uplink``); one makes segments durable (``assay-spool-commit``); one, at first
only, completes the attempts of an earlier process. The agent does not stop for a lease that expires while the
server is away: the server decides when it is back, and its fencing tokens keep superseded attempts out.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay_agent.config import AgentSettings
from assay_agent.daemon.attempts import AttemptRunner
from assay_agent.daemon.bundles import BundleCache
from assay_agent.daemon.places import Place
from assay_agent.daemon.seldom import SeldomLog
from assay_agent.daemon.slots import SlotWorker
from assay_agent.daemon.state import agent_name
from assay_agent.gpus.latest import LatestReading
from assay_agent.health.held_counters import HeldCounters
from assay_agent.health.quarantine import Quarantine
from assay_agent.health.slot_health import SlotHealth
from assay_agent.metrics.meter import Meter
from assay_agent.metrics.sources import GpuSource, SlotSource
from assay_agent.policy.in_force import PolicyInForce
from assay_agent.profilers.seam import Profiler
from assay_agent.spool.attempt import SpooledAttempt
from assay_agent.spool.spool import DiscardedAttempt, Spool
from assay_agent.telemetry.idle_gpus import BoxSensors, SlotGpu
from assay_agent.uplink.connection import Connection, ServerRefusedError
from assay_agent.uplink.renewal import Renewal
from assay_agent.uplink.session import Identity, Session
from assay_agent.uplink.uplink import Uplink
from assay_core.records.attempt import AttemptKey, AttemptLog, HeldAttempt
from assay_core.records.failure import failure
from assay_core.records.lease import AttemptProgress, Heartbeat, SpoolState
from assay_core.records.machine import Inventory, Registration
from assay_core.records.wire import WireError
from assay_sampling.errors import AssayError, ServerUnreachableError
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)

# How long threads may take to end by themselves, and after everything they wait for was cut off.
_LAST_WORDS_SECONDS, _LAST_WORDS_AT_ONCE_SECONDS = 3.0, 0.5
_JOIN_SECONDS, _JOIN_AT_ONCE_SECONDS = 10.0, 0.5
_HAND_BACK_SECONDS = 2.0
_LEAST_HEARTBEAT_SECONDS = 0.05
_PAUSE_AFTER_REFUSAL_SECONDS = 5.0
_DRAIN_STEP_SECONDS = 0.5


@dataclass
class Ending:
    """How the agent is to end; may change until it does.

    Attributes:
        drain_seconds: how long runs under way may take to finish before they are handed back.
        at_once: do not wait for profilers that are slow to end.
        signals_reach_all: whether what stops this agent also signals every process that it started.
    """

    drain_seconds: float
    at_once: bool = False
    signals_reach_all: bool = False


class AgentProcess:
    """One call of Agent.run: its threads and what they share."""

    def __init__(
        self,
        settings: AgentSettings,
        agent_id: str,
        place: str,
        *,
        session: Session,
        ending: Ending,
        meter: Meter,
        profilers: Mapping[str, Profiler],
        spool: Spool,
        connection: Connection,
        renewal: Renewal,
        places: Sequence[Place],
        policy: PolicyInForce,
        quarantine: Quarantine,
    ) -> None:
        self._settings = settings
        self._ending = ending
        self._policy = policy
        self._agent_id = agent_id
        self._place = place
        self._name = agent_name(settings)
        self._spool = spool
        self._connection = connection
        self._renewal = renewal
        self._session = session
        self._seldom = SeldomLog(_log)
        self._give_up = threading.Event()
        self._identity = Identity(agent_id, self._session.session_id)
        self._meter = meter
        self._bundles = BundleCache(spool.directory.parent, connection, self._identity)
        self._uplink = Uplink(spool, connection, self._identity, on_acknowledged=self._meter.acknowledged)
        self._box: dict[str, SlotHealth] = {}
        self._counters = HeldCounters()
        self._runner = self._runner_of(profilers)
        self._heartbeat_seconds = self._idle_heartbeat_seconds = 5.0
        self._answered_at = -math.inf  # the last heartbeat that was answered, by the monotonic clock
        self._last_spool_state: SpoolState | None = None
        self._threads: list[threading.Thread] = []
        self._workers = [self._worker(place, quarantine) for place in places]
        slots = [_source(worker, self._workers) for worker in self._workers]
        self._sensors = self._box_sensors(places, slots)
        self._watch(places, slots)

    def _watch(self, places: Sequence[Place], slots: list[SlotSource]) -> None:
        """Have the meter ask slots and GPUs when metrics are read, and serve them."""
        gpus = [
            (slot, LatestReading() if place.gpu is None else place.gpu.latest)
            for slot, place in zip(slots, places, strict=True)
            if place.slot.device is not None
        ]
        numbered = [GpuSource(number, slot, latest) for number, (slot, latest) in enumerate(gpus)]
        self._meter.watch(self._spool, self._session, slots, numbered)
        self._meter.serve(self._settings.metrics_place)

    def _box_sensors(self, places: Sequence[Place], slots: Sequence[SlotSource]) -> BoxSensors:
        gpus = [
            SlotGpu(place.slot.slot_id, place.gpu, slot.out_of_service)
            for slot, place in zip(slots, places, strict=True)
            if place.gpu is not None
        ]
        return BoxSensors(gpus, lambda: any(slot.measuring() for slot in slots))

    def _worker(self, place: Place, quarantine: Quarantine) -> SlotWorker:
        health = SlotHealth(place.slot, quarantine, self._session, present=bool(place.profilers))
        self._box[place.slot.slot_id] = health
        return SlotWorker(
            place.slot,
            health=health,
            agent_id=self._agent_id,
            session=self._session,
            connection=self._connection,
            runner=self._runner_of(place.profilers, health),
            spool=self._spool,
        )

    def _runner_of(
        self, profilers: Mapping[str, Profiler], health: SlotHealth | None = None
    ) -> AttemptRunner:
        return AttemptRunner(
            self._identity,
            self._spool,
            self._connection,
            profilers,
            self._give_up,
            gate=self._policy,
            on_begin=self._session.wake,
            health=health,
            box=self._box,
            counters=self._counters,
            meter=self._meter,
            bundles=self._bundles,
            stopped=self._session.stopping if self._ending.signals_reach_all else None,
        )

    def run(self, inventory: Inventory) -> None:
        recovery = self._spool.recover()
        try:
            self._renewal.tick()
            # Registered with what was on the disk, this process may report attempts of the earlier one.
            if self._register(inventory, recovery.discarded):
                self._report_discarded(recovery.discarded)
                self._start(recovery.sealed)
                while not self._session.stopping.is_set():
                    self._tick(inventory)
                self._drain()
        finally:
            self._session.stop()
            self._end()

    def _start(self, sealed: Sequence[SpooledAttempt]) -> None:
        self._uplink.start()
        if sealed:
            thread = threading.Thread(target=self._resume, args=(sealed,), name="assay-resume", daemon=True)
            thread.start()
            self._threads.append(thread)
        for worker in self._workers:
            worker.start()
            self._threads.append(worker.thread)

    def _resume(self, sealed: Sequence[SpooledAttempt]) -> None:
        for attempt in sealed:
            self._runner.resume(attempt)

    def _report_discarded(self, discarded: Sequence[DiscardedAttempt]) -> None:
        for each in discarded:
            problem = failure(each.failure_class, str(each.key), each.why)
            self._runner.report(
                each.key, each.write_secret, problem, AttemptLog(), give_up=self._session.stopping
            )

    def _register(self, inventory: Inventory, discarded: Sequence[DiscardedAttempt] = ()) -> bool:
        """Register, waiting for the server if need be; False if the agent must stop meanwhile.

        Reports what an earlier process left on the disk: sealed attempts, and ``discarded`` ones, which fail.
        """
        announced = self._session.announced
        slots = [slot for worker in self._workers if (slot := worker.health.slot) is not None]
        with self._spool.changed:
            sealed = [attempt for attempt in self._spool.attempts.values() if attempt.seal_record]
        held_attempts = [HeldAttempt(each.key, each.write_secret) for each in sealed]
        held_attempts += [HeldAttempt(each.key, each.write_secret) for each in discarded]
        registration = Registration(
            agent_id=self._agent_id,
            session_id=self._session.session_id,
            name=self._name,
            inventory=inventory,
            slots=tuple(slots),
            held=tuple(held_attempts),
            place=self._place,
        )
        try:
            response = self._connection.register(registration, self._session.stopping, self._renewal.tick)
        except ServerUnreachableError:
            return False
        self._drop(response.drop)
        if response.heartbeat_ms > 0:
            self._heartbeat_seconds = response.heartbeat_ms / 1000
            self._idle_heartbeat_seconds = max(response.heartbeat_ms, response.idle_heartbeat_ms) / 1000
        _log.info(
            "registered with %s (assay-server %s) as %s, %d slots",
            self._connection.address, response.server_version, self._name, len(slots),
        )  # fmt: skip
        self._session.register(announced)
        return True

    def _tick(self, inventory: Inventory) -> None:
        """Wait for the next heartbeat, or for something urgent, and handle it."""
        self._session.wait_for_change(self._until_heartbeat())
        if self._session.stopping.is_set():
            return
        if not all(worker.thread.is_alive() for worker in self._workers) or not self._uplink.alive:
            raise AssayError("agent", "one of its threads crashed", "see the log, and report the crash")
        self._renewal.tick()
        if self._session.registered:
            if self._has_to_tell():
                self._heartbeat()
        else:
            self._register_again(inventory)
        self._uplink.watch()

    def _until_heartbeat(self) -> float:
        """Seconds to the next heartbeat: three fit the shortest lease, so two may be lost."""
        with self._spool.changed:
            leases = [attempt.lease_seconds / 3 for attempt in self._spool.attempts.values()]
        return max(min([self._heartbeat_seconds, *leases]), _LEAST_HEARTBEAT_SECONDS)

    def _has_to_tell(self) -> bool:
        """Whether a heartbeat is due: one without attempts keeps no lease, so it is sent less often."""
        with self._spool.changed:
            if self._spool.attempts:
                return True
        spool, last_state = self._spool.state(), self._last_spool_state
        news = last_state is None or (spool.waits, spool.damaged) != (last_state.waits, last_state.damaged)
        quiet_seconds = time.monotonic() - self._answered_at
        return news or quiet_seconds + self._heartbeat_seconds / 2 >= self._idle_heartbeat_seconds

    def _register_again(self, inventory: Inventory) -> None:
        try:
            self._register(inventory)
        except ServerRefusedError as error:
            self._seldom.say(logging.ERROR, f"the server does not accept this agent again: {error}")
            self._session.stopping.wait(_PAUSE_AFTER_REFUSAL_SECONDS)

    def _heartbeat(self) -> None:
        with self._spool.changed:
            progress = tuple(
                AttemptProgress(a.key, a.launches, a.write_secret) for a in self._spool.attempts.values()
            )
        spool = self._spool.state()
        heartbeat = Heartbeat(
            self._agent_id, self._session.session_id, progress, spool, self._sensors.samples()
        )
        began = time.monotonic()
        try:
            response = self._connection.heartbeat(heartbeat, timeout=max(self._heartbeat_seconds, 2.0))
        except (ServerUnreachableError, ServerRefusedError, WireError) as error:
            self._meter.heartbeat(time.monotonic() - began, answered=False)
            self._seldom.say(logging.INFO, f"no heartbeat: {error}")
            return
        self._meter.heartbeat(time.monotonic() - began, answered=True)
        self._answered_at, self._last_spool_state = began, spool
        self._drop(response.drop)
        if response.register_again:
            self._session.lose()

    def _drop(self, keys: Sequence[AttemptKey]) -> None:
        for key in keys:
            with self._spool.changed:
                attempt = self._spool.attempts.get(key)
            if attempt is not None:
                _log.debug("the server drops %s", key)
                attempt.end(None)

    def _drain(self) -> None:
        """Let runs under way finish for a while, keeping their leases alive."""
        began = beat = time.monotonic()
        while (busy := self._busy()) and (rest := began + self._ending.drain_seconds - time.monotonic()) > 0:
            busy[0].join(min(rest, _DRAIN_STEP_SECONDS))
            if time.monotonic() - beat >= self._until_heartbeat():
                self._heartbeat()
                beat = time.monotonic()

    def _busy(self) -> list[threading.Thread]:
        return [thread for thread in self._threads if thread.is_alive()]

    def _end(self) -> None:
        """Hand back incomplete attempts, keep complete ones on the disk, and end every thread."""
        with self._spool.changed:
            attempts = list(self._spool.attempts.values())
        for attempt in attempts:
            handed_back = failure(
                FailureClass.AGENT_RESTARTED, str(attempt.key), "the agent was told to stop"
            )
            attempt.end(handed_back, keep_sealed=True)
        at_once = self._ending.at_once
        _join(self._threads, _LAST_WORDS_AT_ONCE_SECONDS if at_once else _LAST_WORDS_SECONDS)
        self._hand_back(attempts)
        self._give_up.set()
        self._uplink.stop()
        self._connection.close()  # ends every call that still waits for an answer
        _join(self._threads, _JOIN_AT_ONCE_SECONDS if self._ending.at_once else _JOIN_SECONDS)
        for thread in self._busy():
            _log.warning("thread %s does not end; it is left behind", thread.name)

    def _hand_back(self, attempts: Sequence[SpooledAttempt]) -> None:
        """Report attempts whose profilers are slow to end, so that the server need not wait for leases."""
        with self._spool.changed:
            slow = [a for a in attempts if a.seal_record is None and a.key in self._spool.attempts]
        if not slow or not self._session.registered:
            return

        def tell() -> None:
            for attempt in slow:
                cause = "the agent was told to stop, and the profiler was slow to end"
                handed_back = failure(FailureClass.AGENT_RESTARTED, str(attempt.key), cause)
                self._runner.report(attempt.key, attempt.write_secret, handed_back, AttemptLog())

        telling = threading.Thread(target=tell, name="assay-hand-back", daemon=True)
        telling.start()
        telling.join(_HAND_BACK_SECONDS)


def _source(worker: SlotWorker, workers: Sequence[SlotWorker]) -> SlotSource:
    """What metrics tell of a slot; one that is in the gang of another slot measures too."""

    def measuring() -> bool:
        return any(worker.slot.slot_id in each.measured_slots for each in workers)

    return SlotSource(measuring, lambda: worker.health.reason)


def _join(threads: Sequence[threading.Thread], seconds: float) -> None:
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
