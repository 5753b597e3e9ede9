"""Heartbeats: those that arrive within a moment are answered from one look at the store, and one write.

A heartbeat must never wait long: it is what keeps an agent's leases. So most are answered from memory
(:mod:`assay_server.campaigns.heartbeats.known_agents`), and the others have a thread of their own.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from operator import attrgetter

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.lease import Heartbeat, HeartbeatAnswer
from assay_sampling.errors import AssayError, StorageError
from assay_server.campaigns.heartbeats.known_agents import KnownAgents
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.leases import SEEN_EVERY_MS
from assay_server.campaigns.scheduling.schedule import Schedule
from assay_server.store.connections.retry import repeated
from assay_server.store.model import Attempt
from assay_server.store.sql import SqlTransaction

_log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.02
_MOST_TOGETHER = 256
NOTED_SECONDS = 1.0
NOTED_PART_OF_LEASE = 8  # a lease is extended so much later than its heartbeat at most

_Waiting = tuple[Heartbeat, "Future[HeartbeatAnswer]"]
_Told = tuple[HeartbeatAnswer, int]


class Heartbeats:
    """Takes heartbeats from any thread. One thread answers them, another notes those answered from memory."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._known = KnownAgents()
        coordinator.listen(self._known.heard, *map(attrgetter, ("freed", "registered", "missed")))
        self._closing = threading.Event()
        self._noting = threading.Thread(
            target=self._note_regularly, name="assay-heartbeats-noted", daemon=True
        )
        self._noting.start()
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="assay-heartbeats", daemon=True)
        self._thread.start()

    def from_memory(self, heartbeat: Heartbeat) -> HeartbeatAnswer | None:
        """The answer to a heartbeat that changes nothing; None: :meth:`take` it. Never waits."""
        now_ms = self._coordinator.clock.now_ms()
        if not self._known.covers(heartbeat, now_ms):
            return None
        self._hear(heartbeat, now_ms)
        return HeartbeatAnswer()

    def note(self) -> None:
        """Note the heartbeats that were answered from memory; if the store refuses, all ask it next."""
        beats = self._known.take_due()
        try:
            for start in range(0, len(beats), _MOST_TOGETHER):
                group = beats[start : start + _MOST_TOGETHER]
                self._remember(group, self._answers(group))
        except StorageError:  # the agents hear of it: their next heartbeats get the same error
            self._known.forget_all()
        except Exception:  # noqa: BLE001 - this thread must outlive every fault
            self._known.forget_all()
            _log.exception("%d heartbeats were not noted", len(beats))

    def _note_regularly(self) -> None:
        while True:
            lease_seconds = self._coordinator.policy.lease_ms / 1000
            if self._closing.wait(min(NOTED_SECONDS, lease_seconds / NOTED_PART_OF_LEASE)):
                return
            self.note()

    def take(self, heartbeat: Heartbeat) -> Future[HeartbeatAnswer]:
        """The answer, as soon as it is durable; StorageError if the store refused."""
        answer: Future[HeartbeatAnswer] = Future()
        answer.set_running_or_notify_cancel()
        self._waiting.put((heartbeat, answer))
        return answer

    def close(self) -> None:
        """Answer what was taken, note the rest, then stop."""
        self._closing.set()
        self._waiting.put(None)
        self._thread.join()
        self._noting.join()
        self.note()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            time.sleep(_GATHER_SECONDS)
            group, ends = [first], False
            while len(group) < _MOST_TOGETHER and not self._waiting.empty():
                following = self._waiting.get()
                if following is None:
                    ends = True
                    break
                group.append(following)
            self._answer(group)
            if ends:
                return

    def _answer(self, group: list[_Waiting]) -> None:
        try:
            answers = self._answers([heartbeat for heartbeat, _ in group])
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for the futures
            if not isinstance(error, AssayError):
                _log.exception("%d heartbeats failed", len(group))
                error = StorageError("heartbeat", f"it could not be noted ({error})", "see the server's log")
            for _, answer in group:
                answer.set_exception(error)
            return
        self._remember([heartbeat for heartbeat, _ in group], answers)
        now_ms = self._coordinator.clock.now_ms()
        for (heartbeat, future), (told, _) in zip(group, answers, strict=True):
            if not told.register_again:
                self._hear(heartbeat, now_ms)
            future.set_result(told)

    def _hear(self, heartbeat: Heartbeat, now_ms: int) -> None:
        """Keep in memory what it says about its box."""
        self._coordinator.spools.note(heartbeat.agent_id, heartbeat.spool, now_ms)
        self._coordinator.gpu_samples.note(heartbeat.agent_id, heartbeat.gpus, now_ms)

    def _remember(self, beats: Sequence[Heartbeat], answers: Sequence[_Told]) -> None:
        for beat, (told, seen_ms) in zip(beats, answers, strict=True):
            if told == HeartbeatAnswer():
                self._known.remember(beat, seen_ms)
            else:
                self._known.forget(beat.agent_id)

    @repeated
    def _answers(self, beats: Sequence[Heartbeat]) -> list[_Told]:
        """The answers, each with when its agent was last seen, as the store has it now."""
        now_ms = self._coordinator.clock.now_ms()
        if not any(beat.attempts for beat in beats):
            with self._coordinator.snapshot() as store:
                seen = _seen_a_moment_ago(store, beats, now_ms)
            if seen is not None:
                return [(HeartbeatAnswer(), each) for each in seen]
        with self._coordinator.schedule() as schedule:
            return _noted(schedule, beats)


def _seen_a_moment_ago(store: SqlTransaction, beats: Sequence[Heartbeat], now_ms: int) -> list[int] | None:
    """When these agents, which have no attempts, were seen; None unless all are known and were just seen."""
    known = store.sessions([beat.agent_id for beat in beats])
    if all(
        beat.agent_id in known
        and known[beat.agent_id].session_id == beat.session_id
        and now_ms - known[beat.agent_id].seen_at_ms <= SEEN_EVERY_MS
        for beat in beats
    ):
        return [known[beat.agent_id].seen_at_ms for beat in beats]
    return None


def _noted(schedule: Schedule, beats: Sequence[Heartbeat]) -> list[_Told]:
    """Note that these agents were seen, and that their attempts live."""
    store, now_ms = schedule.store, schedule.now_ms
    sessions = store.sessions([beat.agent_id for beat in beats])
    attempts = store.attempts_with(each.key for beat in beats for each in beat.attempts)
    known = [
        beat.agent_id in sessions and sessions[beat.agent_id].session_id == beat.session_id for beat in beats
    ]
    seen = [
        beat.agent_id
        for beat, is_known in zip(beats, known, strict=True)
        if is_known and now_ms - sessions[beat.agent_id].seen_at_ms > SEEN_EVERY_MS
    ]
    store.saw_agents(seen, now_ms)
    just_seen = frozenset(seen)
    longer: list[tuple[AttemptKey, int]] = []
    answers: list[_Told] = []
    for beat, is_known in zip(beats, known, strict=True):
        drop = () if not is_known else _to_drop(schedule, beat, attempts, longer)
        at_ms = sessions[beat.agent_id].seen_at_ms if is_known else 0
        at_ms = now_ms if beat.agent_id in just_seen else at_ms
        answers.append((HeartbeatAnswer(drop, register_again=not is_known), at_ms))
    store.extend_attempts(longer, now_ms + schedule.policy.lease_ms)
    return answers


def _to_drop(
    schedule: Schedule,
    beat: Heartbeat,
    attempts: dict[AttemptKey, Attempt],
    longer: list[tuple[AttemptKey, int]],
) -> tuple[AttemptKey, ...]:
    """The attempts of an agent that it must drop; adds to ``longer`` whose leases start again."""
    drop = []
    for progress in beat.attempts:
        attempt = attempts.get(progress.key)
        if attempt is None or not attempt.is_held_by(beat.claim(progress)):
            drop.append(progress.key)
        elif attempt.state is AttemptState.LEASED:
            longer.append((progress.key, progress.launches_spooled))
            if progress.launches_spooled > attempt.launches_spooled:
                schedule.note_change(progress.key.run_id)
        elif not schedule.extend(progress.key, progress.launches_spooled):
            drop.append(progress.key)
    return tuple(drop)
