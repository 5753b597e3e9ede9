"""Heartbeats: those that arrive within a moment are answered from one look at the store, and one write.

A heartbeat must never wait long: it is what keeps an agent's leases. So they have a thread of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.lease import Heartbeat, HeartbeatAnswer
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.leases import SEEN_EVERY_MS
from assay_server.campaigns.scheduling.schedule import Schedule
from assay_server.store.model import Attempt
from assay_server.store.sql import SqlTransaction
from assay_server.store.transactions import repeated
from assay_server.threads.grouped import Grouped

_GATHER_SECONDS = 0.05
_MOST_TOGETHER = 256


class Heartbeats(Grouped[Heartbeat, HeartbeatAnswer]):
    """Takes heartbeats from any thread, and answers them in one, as soon as the answer is durable."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        super().__init__(
            self._heard,
            name="assay-heartbeats",
            most=_MOST_TOGETHER,
            fault=("heartbeat", "it could not be noted"),
            gather_seconds=_GATHER_SECONDS,
        )

    def _heard(self, beats: Sequence[Heartbeat]) -> list[HeartbeatAnswer]:
        """The answers; what the heartbeats say about their boxes is kept in memory."""
        answers = self._answers_to(beats)
        now_ms = self._coordinator.clock.now_ms()
        for beat, answer in zip(beats, answers, strict=True):
            if not answer.register_again:
                self._coordinator.last_heard.note(beat, now_ms)
        return answers

    @repeated
    def _answers_to(self, beats: Sequence[Heartbeat]) -> list[HeartbeatAnswer]:
        if not any(beat.attempts for beat in beats):
            with self._coordinator.snapshot() as store:
                seen_at_ms, now_ms = _seen_at_ms(store, beats), self._coordinator.clock.now_ms()
            if all(at_ms is not None and now_ms - at_ms <= SEEN_EVERY_MS for at_ms in seen_at_ms):
                return [HeartbeatAnswer()] * len(beats)
        with self._coordinator.schedule() as schedule:
            return _noted(schedule, beats)


def _seen_at_ms(store: SqlTransaction, beats: Sequence[Heartbeat]) -> list[int | None]:
    """When each of these agents was seen last; None: the store does not know this process of it."""
    sessions = store.sessions([beat.agent_id for beat in beats])
    pairs = ((beat, sessions.get(beat.agent_id)) for beat in beats)
    return [
        session.seen_at_ms if session is not None and session.session_id == beat.session_id else None
        for beat, session in pairs
    ]


def _noted(schedule: Schedule, beats: Sequence[Heartbeat]) -> list[HeartbeatAnswer]:
    """Note that these agents were seen, and that their attempts live."""
    store, now_ms = schedule.store, schedule.now_ms
    attempts = store.attempts_with(each.key for beat in beats for each in beat.attempts)
    moments = list(zip(beats, _seen_at_ms(store, beats), strict=True))
    late = [b.agent_id for b, at_ms in moments if at_ms is not None and now_ms - at_ms > SEEN_EVERY_MS]
    store.saw_agents(late, now_ms)
    longer: list[tuple[AttemptKey, int]] = []
    answers: list[HeartbeatAnswer] = []
    for beat, at_ms in moments:
        drop = () if at_ms is None else _to_drop(schedule, beat, attempts, longer)
        answers.append(HeartbeatAnswer(drop, register_again=at_ms is None))
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
