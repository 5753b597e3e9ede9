"""What agents' heartbeats said last: how full their spools are, and what the sensors of their GPUs said.

For people to see, decided on by nobody. Kept in memory only: a restarted server hears it again with the next
heartbeats.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from assay_core.records.campaign import AgentSpool
from assay_core.records.lease import Heartbeat, SpoolState
from assay_core.records.machine import GpuSample

_log = logging.getLogger(__name__)

_FRESH_MS = 120_000

News = TypeVar("News")


class LastHeard:
    """The last state of each agent's spool, and the newest samples of its GPUs. Thread-safe.

    ``spool_ms``: the spools of agents that were silent for longer are left out, for nobody knows how their
    boxes are now.
    """

    def __init__(self, spool_ms: int) -> None:
        self._spool_ms = spool_ms
        self._lock = threading.Lock()
        # By agent, with the moment at which it was heard; the one that is silent longest comes first.
        self._spools: dict[str, tuple[SpoolState, int]] = {}
        self._samples: dict[str, tuple[tuple[GpuSample, ...], int]] = {}

    def note(self, beat: Heartbeat, now_ms: int) -> None:
        """An agent's heartbeat; without samples, the earlier ones stay until they are too old."""
        spool = beat.spool
        with self._lock:
            if spool is not None:
                before = _put(self._spools, beat.agent_id, spool, now_ms, self._spool_ms)
                if spool.waits and not (before and before.waits):
                    _log.warning("the spool of agent %s is full (%d bytes)", beat.agent_id, spool.used_bytes)
            if beat.gpus:
                _put(self._samples, beat.agent_id, tuple(beat.gpus), now_ms, _FRESH_MS)

    def noteworthy_spools(self, names: Mapping[str, str], now_ms: int) -> tuple[AgentSpool, ...]:
        """Spools that a person should look at, by the agents' names; ``names``: of agents by identity."""
        with self._lock:
            spools = sorted(self._spools.items())
        return tuple(
            AgentSpool(names.get(key, key), each.used_bytes, each.limit_bytes, each.waits, each.damaged)
            for key, (each, at_ms) in spools
            if (each.waits or each.damaged) and now_ms - at_ms <= self._spool_ms
        )

    def gpu_samples(self, agent_id: str, now_ms: int) -> dict[str, GpuSample]:
        """An agent's samples by slot, as old as they are now; those of the last two minutes."""
        with self._lock:
            samples, heard_ms = self._samples.get(agent_id, ((), now_ms))
        waited = max(0, now_ms - heard_ms)
        return {
            each.slot_id: replace(each, age_ms=each.age_ms + waited)
            for each in samples
            if each.age_ms + waited <= _FRESH_MS
        }


def _put(
    by_agent: dict[str, tuple[News, int]], agent_id: str, news: News, now_ms: int, fresh_ms: int
) -> News | None:
    """Keep what an agent says, and forget those that fell silent; returns what it said before."""
    before = by_agent.pop(agent_id, None)
    by_agent[agent_id] = (news, now_ms)
    while now_ms - by_agent[oldest := next(iter(by_agent))][1] > fresh_ms:
        del by_agent[oldest]
    return None if before is None else before[0]
