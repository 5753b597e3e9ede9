"""Slots that get no runs for a time: after failures of their box, in maintenance, or kept free for a run.

A slot rests after attempts that failed through its box's fault and not the run's. That is kept in memory
only, by this process's clock: a restarted server tries each slot with one run, which costs that run nothing.
A slot rests longer after each failure in a row and gets a run after each rest; a run that succeeds ends the
row.

In a maintenance window agents get no new runs. Runs that have begun go on.

Boxes and GPUs are kept free for a run that needs more than one slot, or a GPU or box alone. A run with
``exclusive`` begins when its rivals are idle: the other slots of its GPU, or all other GPUs of its box; a
run over several GPUs, when all of them are idle. Once such a run is next for a slot, that slot and those
others take nothing else of its priority or below until it has begun, so that a stream of small runs cannot
keep it waiting for ever.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from assay_core.records.failure import Failure
from assay_sampling.errors import ParameterError
from assay_sampling.running.failures import Fault
from assay_server.store.model import Agent, Attempt

_log = logging.getLogger(__name__)

# A reservation that no slot renews ends: its box may be gone.
KEPT_MS = 300_000

SlotKey = tuple[str, str]  # agent_id, slot_id
_WINDOW_LABEL = "label:"
_WINDOW_REMEDY = (
    "write AGENT START/END (* for all), or label:LABEL START/END, with times like 2026-12-01T08:00Z"
)


@dataclass(frozen=True)
class RestPolicy:
    """``first_ms`` after the first failure, twice as long after each further one, at most ``longest_ms``.

    If a run failed like this ``most_exonerated`` times, or on ``most_exonerating_slots`` slots, each of which
    did another run afterwards, the run is blamed instead: it may be a workload that fills every disk.
    """

    first_ms: int = 5_000
    longest_ms: int = 900_000
    most_exonerated: int = 10
    most_exonerating_slots: int = 3

    def pause_ms(self, failures: int) -> int:
        """How long a slot rests after this many failures in a row."""
        doublings = min(failures - 1, self.longest_ms.bit_length())
        return min(self.first_ms << doublings, self.longest_ms)


@dataclass(frozen=True)
class Rest:
    """Why a slot rests, and until when; ``failures``: in a row. After ``until_ms`` it may have one run."""

    agent_id: str
    slot_id: str
    agent_name: str
    session_id: str
    failures: int
    until_ms: int
    why: Failure


@dataclass
class RestingSlots:
    """All slots of a server. Thread-safe."""

    policy: RestPolicy = field(default_factory=RestPolicy)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._rests: dict[SlotKey, Rest] = {}
        self._done: dict[SlotKey, int] = {}
        self._refused: set[str] = set()

    def failed(self, attempt: Attempt, why: Failure, now_ms: int) -> None:
        """An attempt failed through its box's fault: let its slot rest."""
        key = (attempt.agent_id, attempt.slot_id)
        with self._lock:
            before = self._rests.get(key)
            failures = before.failures + 1 if before is not None else 1
            pause_ms = self.policy.pause_ms(failures)
            until_ms = now_ms + pause_ms
            self._rests[key] = Rest(*key, attempt.agent_name, attempt.session_id, failures, until_ms, why)
        _log.warning(
            "slot %s of agent %s rests for %d s (failures in a row: %d): %s [%s]; %s",
            attempt.slot_id, attempt.agent_name, pause_ms // 1000, failures, why.cause, why.failure_class,
            why.remedy,
        )  # fmt: skip

    def succeeded(self, attempt: Attempt) -> None:
        """The slots of an attempt have done a run, so their box is in order: they no longer rest."""
        for slot_id in attempt.slots:
            key = (attempt.agent_id, slot_id)
            with self._lock:
                self._done[key] = max(attempt.key.token, self._done.get(key, 0))
                rest = self._rests.pop(key, None)
            if rest is not None:
                _log.warning(
                    "slot %s of agent %s has done a run and no longer rests", slot_id, rest.agent_name
                )

    def restarted(self, agent_id: str, session_id: str, now_ms: int) -> None:
        """An agent was restarted, possibly on a repaired box: each of its slots may have a run."""
        with self._lock:
            self._refused.discard(agent_id)
            for key, rest in list(self._rests.items()):
                if rest.agent_id == agent_id and rest.session_id != session_id:
                    until_ms = min(rest.until_ms, now_ms)
                    self._rests[key] = replace(rest, session_id=session_id, until_ms=until_ms)

    def refused(self, agent_id: str) -> None:
        """The policy of an agent refused a run."""
        with self._lock:
            self._refused.add(agent_id)

    def has_refused(self, agent_id: str) -> bool:
        """Whether the policy of an agent has refused a run since the agent or this server started."""
        with self._lock:
            return agent_id in self._refused

    def at(self, agent_id: str, slot_id: str, now_ms: int) -> Rest | None:
        """Why a slot rests now; None if it does not."""
        rest = self.last(agent_id, slot_id)
        return rest if rest is not None and now_ms < rest.until_ms else None

    def last(self, agent_id: str, slot_id: str) -> Rest | None:
        """The last rest, even a past one, of a slot that has done no run since; None: it never rested."""
        with self._lock:
            return self._rests.get((agent_id, slot_id))

    def now(self, now_ms: int) -> dict[SlotKey, Rest]:
        """All slots that rest."""
        with self._lock:
            return {key: rest for key, rest in self._rests.items() if now_ms < rest.until_ms}

    def run_is_to_blame(self, attempts: Sequence[Attempt]) -> bool:
        """Whether attempts of one slice failed on too many slots that worked afterwards."""
        with self._lock:
            exonerated = [
                (attempt.agent_id, attempt.slot_id)
                for attempt in attempts
                if is_of_box(attempt.failure)
                and self._done.get((attempt.agent_id, attempt.slot_id), 0) > attempt.key.token
            ]
        policy = self.policy
        return (
            len(exonerated) >= policy.most_exonerated or len(set(exonerated)) >= policy.most_exonerating_slots
        )


def is_of_box(why: Failure | None) -> bool:
    """Whether a failure is the box's fault."""
    return why is not None and why.known_class.fault is Fault.BOX


@dataclass(frozen=True)
class Reservation:
    """Slots of an agent that wait for the runs of a lane."""

    agent_id: str
    slots: frozenset[str]
    lane_id: int
    priority: int
    until_ms: int


class Reservations:
    """At most one for each lane and slot. Thread-safe; in memory only, so a restart forgets them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_lanes: dict[int, Reservation] = {}

    def of_slot(self, agent_id: str, slot_id: str, now_ms: int) -> Reservation | None:
        """The reservation that a slot waits for."""
        with self._lock:
            return next(
                (r for r in self._live(now_ms) if r.agent_id == agent_id and slot_id in r.slots), None
            )

    def of_lane(self, lane_id: int, agent_id: str, now_ms: int) -> frozenset[str]:
        """The slots of an agent that are kept for a lane."""
        with self._lock:
            mine = (r for r in self._live(now_ms) if (r.lane_id, r.agent_id) == (lane_id, agent_id))
            return next((reservation.slots for reservation in mine), frozenset())

    def reserve(self, reservation: Reservation, now_ms: int) -> bool:
        """Reserve slots, or renew that; False if the lane has slots elsewhere, or another lane has these."""
        with self._lock:
            for other in self._live(now_ms):
                same_box = other.agent_id == reservation.agent_id
                if other.lane_id == reservation.lane_id:
                    if not same_box:
                        return False
                elif same_box and other.slots & reservation.slots and other.priority >= reservation.priority:
                    return False
            self._of_lanes[reservation.lane_id] = reservation
            return True

    def release(self, lane_id: int) -> None:
        """Its run has begun, or nothing waits in the lane any more."""
        with self._lock:
            self._of_lanes.pop(lane_id, None)

    def _live(self, now_ms: int) -> list[Reservation]:
        self._of_lanes = {lane: r for lane, r in self._of_lanes.items() if now_ms < r.until_ms}
        return list(self._of_lanes.values())


@dataclass(frozen=True)
class Window:
    """``agents``: a pattern of agents' names with ``*``, or ``label:`` and a label; times are Unix ms."""

    agents: str
    start_ms: int
    end_ms: int

    @property
    def end(self) -> str:
        """When it ends, ISO 8601."""
        return datetime.fromtimestamp(self.end_ms / 1000, UTC).isoformat(timespec="minutes")

    def covers(self, agent: Agent, now_ms: int) -> bool:
        """Whether an agent gets no run now."""
        if not self.start_ms <= now_ms < self.end_ms:
            return False
        if self.agents.startswith(_WINDOW_LABEL):
            return self.agents.removeprefix(_WINDOW_LABEL) in agent.labels
        return fnmatchcase(agent.name, self.agents)


def window_of(windows: Sequence[Window], agent: Agent, now_ms: int) -> Window | None:
    """The window that an agent is in, the one that ends last; None if it is in none."""
    covering = [window for window in windows if window.covers(agent, now_ms)]
    return max(covering, key=lambda window: window.end_ms, default=None)


def windows_of(texts: Iterable[str]) -> tuple[Window, ...]:
    """Windows from their texts, "box-1 2026-12-01T08:00Z/2026-12-01T12:00Z"; raises ParameterError."""
    return tuple(_window(text) for text in texts)


def _window(text: str) -> Window:
    subject = f"maintenance window {text!r}"
    agents, _, times = text.strip().rpartition(" ")
    start, slash, end = times.partition("/")
    agents = agents.strip()
    if not agents or not slash:
        raise ParameterError(subject, "it does not name agents and a time", _WINDOW_REMEDY)
    if agents.startswith(_WINDOW_LABEL) and not agents.removeprefix(_WINDOW_LABEL).strip():
        raise ParameterError(subject, "it names no label, so no agent would be in it", _WINDOW_REMEDY)
    window = Window(agents, _moment(start, subject), _moment(end, subject))
    if window.end_ms <= window.start_ms:
        raise ParameterError(subject, "it ends before it begins", _WINDOW_REMEDY)
    return window


def _moment(text: str, subject: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ParameterError(subject, f"{text!r} is not a time", _WINDOW_REMEDY) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
