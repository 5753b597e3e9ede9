"""How full the spools of agents are, as their last heartbeats told it.

Kept in memory only: a restarted server hears it again with the next heartbeats.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from assay_core.records.campaign import AgentSpool
from assay_core.records.lease import SpoolState

_log = logging.getLogger(__name__)

_FEW = 64


class Spools:
    """The last state of each agent's spool. Thread-safe.

    ``heard_ms``: an agent that was silent for so long is left out, for nobody knows how its spool is now.
    """

    def __init__(self, heard_ms: int) -> None:
        self._heard_ms = heard_ms
        self._lock = threading.Lock()
        self._states: dict[str, tuple[SpoolState, int]] = {}
        self._look_beyond = _FEW

    def note(self, agent_id: str, state: SpoolState | None, now_ms: int) -> None:
        """An agent's heartbeat; None: it is of a release that does not tell its spool."""
        if state is None:
            return
        with self._lock:
            before = self._states.get(agent_id)
            if len(self._states) > self._look_beyond:
                self._states = {key: self._states[key] for key in self._live(now_ms)}
                self._look_beyond = len(self._states) * 2 + _FEW
            self._states[agent_id] = (state, now_ms)
        if state.waits and not (before and before[0].waits):
            _log.warning("the spool of agent %s is full (%d bytes)", agent_id, state.used_bytes)

    def noteworthy(self, names: Mapping[str, str], now_ms: int) -> tuple[AgentSpool, ...]:
        """Spools that a person should look at, by the agents' names; ``names``: of agents by identity."""
        with self._lock:
            live = self._live(now_ms)
        return tuple(
            AgentSpool(names.get(key, key), each.used_bytes, each.limit_bytes, each.waits, each.damaged)
            for key, each in sorted(live.items())
            if each.waits or each.damaged
        )

    def _live(self, now_ms: int) -> dict[str, SpoolState]:
        return {
            key: state for key, (state, at_ms) in self._states.items() if now_ms - at_ms <= self._heard_ms
        }
