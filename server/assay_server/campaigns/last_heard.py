"""What agents' heartbeats told last: how full their spools are, and what the sensors of their GPUs said.

For people to see, decided on by nobody. Kept in memory only: a restarted server hears it again with the next
heartbeats.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from assay_core.records.campaign import AgentSpool
from assay_core.records.lease import SpoolState
from assay_core.records.machine import GpuSample

_log = logging.getLogger(__name__)

_FRESH_MS = 120_000
_FEW = 64

Told = TypeVar("Told")


class _LastHeard(Generic[Told]):
    """What each agent told last. Thread-safe.

    ``fresh_ms``: an agent that was silent for so long is left out, for nobody knows how its box is now.
    """

    def __init__(self, fresh_ms: int) -> None:
        self._fresh_ms = fresh_ms
        self._lock = threading.Lock()
        self._told: dict[str, tuple[Told, int]] = {}
        self._look_beyond = _FEW

    def keep(self, agent_id: str, told: Told, now_ms: int) -> Told | None:
        """Keep what an agent tells; returns what it told before."""
        with self._lock:
            before = self._told.get(agent_id)
            if len(self._told) > self._look_beyond:
                self._told = self._fresh(now_ms)
                self._look_beyond = len(self._told) * 2 + _FEW
            self._told[agent_id] = (told, now_ms)
        return None if before is None else before[0]

    def by_agent(self, now_ms: int) -> dict[str, tuple[Told, int]]:
        """What is known by agent, and when it was heard."""
        with self._lock:
            return self._fresh(now_ms)

    def _fresh(self, now_ms: int) -> dict[str, tuple[Told, int]]:
        return {key: told for key, told in self._told.items() if now_ms - told[1] <= self._fresh_ms}


class Spools:
    """The last state of each agent's spool; ``heard_ms``: agents silent for longer are left out."""

    def __init__(self, heard_ms: int) -> None:
        self._states = _LastHeard[SpoolState](heard_ms)

    def note(self, agent_id: str, state: SpoolState | None, now_ms: int) -> None:
        """An agent's heartbeat; None: it is of a release that does not tell its spool."""
        if state is None:
            return
        before = self._states.keep(agent_id, state, now_ms)
        if state.waits and not (before and before.waits):
            _log.warning("the spool of agent %s is full (%d bytes)", agent_id, state.used_bytes)

    def noteworthy(self, names: Mapping[str, str], now_ms: int) -> tuple[AgentSpool, ...]:
        """Spools that a person should look at, by the agents' names; ``names``: of agents by identity."""
        return tuple(
            AgentSpool(names.get(key, key), each.used_bytes, each.limit_bytes, each.waits, each.damaged)
            for key, (each, _) in sorted(self._states.by_agent(now_ms).items())
            if each.waits or each.damaged
        )


class GpuSamples:
    """The newest samples of each agent's GPUs."""

    def __init__(self) -> None:
        self._samples = _LastHeard[tuple[GpuSample, ...]](_FRESH_MS)

    def note(self, agent_id: str, samples: Sequence[GpuSample], now_ms: int) -> None:
        """An agent's heartbeat; without samples, the earlier ones stay until they are too old."""
        if samples:
            self._samples.keep(agent_id, tuple(samples), now_ms)

    def of(self, agent_id: str, now_ms: int) -> dict[str, GpuSample]:
        """An agent's samples by slot, as old as they are now; those of the last two minutes."""
        samples, heard_ms = self._samples.by_agent(now_ms).get(agent_id, ((), now_ms))
        waited = max(0, now_ms - heard_ms)
        return {
            each.slot_id: replace(each, age_ms=each.age_ms + waited)
            for each in samples
            if each.age_ms + waited <= _FRESH_MS
        }
