"""Heartbeats: those that arrive within a moment are answered from one look at the store, and one write.

A heartbeat must never wait long: it is what keeps an agent's leases. So they have a thread of their own.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.lease import Heartbeat, HeartbeatAnswer
from assay_sampling.errors import AssayError, StorageError
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.leases import SEEN_EVERY_MS
from assay_server.campaigns.scheduling.schedule import Schedule
from assay_server.store.model import Attempt
from assay_server.store.sql import SqlTransaction
from assay_server.store.transactions import repeated

_log = logging.getLogger(__name__)

_GATHER_SECONDS = 0.05
_MOST_TOGETHER = 256

_Waiting = tuple[Heartbeat, "Future[HeartbeatAnswer]"]


class Heartbeats:
    """Takes heartbeats from any thread, and answers them in one."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="assay-heartbeats", daemon=True)
        self._thread.start()

    def take(self, heartbeat: Heartbeat) -> Future[HeartbeatAnswer]:
        """The answer, as soon as it is durable; StorageError if the store refused."""
        answer: Future[HeartbeatAnswer] = Future()
        answer.set_running_or_notify_cancel()
        self._waiting.put((heartbeat, answer))
        return answer

    def close(self) -> None:
        """Answer what was taken, then stop."""
        self._waiting.put(None)
        self._thread.join()

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
            for _, future in group:
                future.set_exception(error)
            return
        now_ms = self._coordinator.clock.now_ms()
        for (heartbeat, future), answer in zip(group, answers, strict=True):
            if not answer.register_again:
                self._hear(heartbeat, now_ms)
            future.set_result(answer)

    def _hear(self, heartbeat: Heartbeat, now_ms: int) -> None:
        """Keep in memory what it says about its box."""
        self._coordinator.spools.note(heartbeat.agent_id, heartbeat.spool, now_ms)
        self._coordinator.gpu_samples.note(heartbeat.agent_id, heartbeat.gpus, now_ms)

    @repeated
    def _answers(self, beats: Sequence[Heartbeat]) -> list[HeartbeatAnswer]:
        if not any(beat.attempts for beat in beats):
            with self._coordinator.snapshot() as store:
                if _were_just_seen(store, beats, self._coordinator.clock.now_ms()):
                    return [HeartbeatAnswer()] * len(beats)
        with self._coordinator.schedule() as schedule:
            return _noted(schedule, beats)


def _were_just_seen(store: SqlTransaction, beats: Sequence[Heartbeat], now_ms: int) -> bool:
    """Whether the store knows all of these agents and has just seen them."""
    known = store.sessions([beat.agent_id for beat in beats])
    return all(
        beat.agent_id in known
        and known[beat.agent_id].session_id == beat.session_id
        and now_ms - known[beat.agent_id].seen_at_ms <= SEEN_EVERY_MS
        for beat in beats
    )


def _noted(schedule: Schedule, beats: Sequence[Heartbeat]) -> list[HeartbeatAnswer]:
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
    longer: list[tuple[AttemptKey, int]] = []
    answers: list[HeartbeatAnswer] = []
    for beat, is_known in zip(beats, known, strict=True):
        drop = () if not is_known else _to_drop(schedule, beat, attempts, longer)
        answers.append(HeartbeatAnswer(drop, register_again=not is_known))
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
