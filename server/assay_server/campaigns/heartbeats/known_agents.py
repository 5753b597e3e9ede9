"""What the store last said of agents that send heartbeats: most heartbeats change nothing in it.

A heartbeat of a known process about attempts whose leases it is known to hold is answered from memory, and
noted in the store within a second, together with all others. Leases never end too early for that: they are
extended when the heartbeat is noted, and a restarted server begins each lease anew. What was wrong in memory
is found when the heartbeat is noted; the agent hears of it with its next one.
"""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass, field

from assay_core.records.attempt import AttemptKey
from assay_core.records.lease import Heartbeat
from assay_server.campaigns.scheduling.leases import SEEN_EVERY_MS
from assay_server.campaigns.scheduling.transitions import Effects

_MOST_KNOWN = 20_000


@dataclass
class _Known:
    """An agent's process; ``seen_ms``: when it was last seen, as the store has it."""

    session_id: str
    seen_ms: int
    secrets: dict[AttemptKey, bytes] = field(default_factory=dict)


class KnownAgents:
    """Thread-safe; never waits for the store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._agent_of: dict[AttemptKey, str] = {}
        self._due: dict[str, Heartbeat] = {}

    def covers(self, beat: Heartbeat, now_ms: int) -> bool:
        """Whether all is well with an agent as far as is known; if so, its heartbeat will be noted."""
        with self._lock:
            known = self._known.get(beat.agent_id)
            if known is None or known.session_id != beat.session_id:
                return False
            for each in beat.attempts:
                if not hmac.compare_digest(known.secrets.get(each.key, b""), each.write_secret or b"-"):
                    return False
            if beat.attempts or now_ms - known.seen_ms > SEEN_EVERY_MS:
                self._due[beat.agent_id] = beat
            return True

    def remember(self, beat: Heartbeat, seen_ms: int) -> None:
        """The store has just said that this agent's process and all of its attempts are in order."""
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._clear()
            self._forget(beat.agent_id)
            secrets = {each.key: each.write_secret for each in beat.attempts}
            self._known[beat.agent_id] = _Known(beat.session_id, seen_ms, secrets)
            self._agent_of.update(dict.fromkeys(secrets, beat.agent_id))

    def forget(self, agent_id: str) -> None:
        """Ask the store at this agent's next heartbeat."""
        with self._lock:
            self._forget(agent_id)

    def forget_all(self) -> None:
        """Ask the store at every agent's next heartbeat."""
        with self._lock:
            self._clear()

    def take_due(self) -> list[Heartbeat]:
        """The newest heartbeat of each agent that was answered from memory and must be noted."""
        with self._lock:
            due, self._due = self._due, {}
        return list(due.values())

    def heard(self, effects: Effects) -> None:
        """A transaction is durable: who is no longer as known is forgotten."""
        with self._lock:
            if effects.missed:
                self._clear()
            for agent_id in effects.registered:
                self._forget(agent_id)
            for key in effects.freed:
                agent_id = self._agent_of.pop(key, "")
                known, due = self._known.get(agent_id), self._due.get(agent_id)
                if known is not None:
                    known.secrets.pop(key, None)
                if due is not None and all(each.key == key for each in due.attempts):
                    del self._due[agent_id]

    def _forget(self, agent_id: str) -> None:
        known = self._known.pop(agent_id, None)
        for key in known.secrets if known is not None else ():
            self._agent_of.pop(key, None)

    def _clear(self) -> None:
        self._known.clear()
        self._agent_of.clear()
