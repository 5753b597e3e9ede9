"""What has changed since a page was drawn, and how fast launches come in: heard from every transaction."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass

from assay_server.campaigns.scheduling.transitions import Effects

_WINDOW_SECONDS = 10.0
_MOST_CAMPAIGNS = 10_000


@dataclass(frozen=True)
class Ingest:
    """Launches and compressed bytes that became durable a second, over the last ten seconds."""

    launches_per_second: float
    bytes_per_second: float


class Pulse:
    """Counts changes, of each campaign and of all; sums what is stored. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes: Counter[str] = Counter()
        self._all = 0
        self._stored: deque[tuple[float, str, int, int]] = deque()

    def heard(self, effects: Effects) -> None:
        """Take note of a durable transaction."""
        with self._lock:
            self._all += 1
            if len(self._changes) > _MOST_CAMPAIGNS:
                self._changes.clear()  # pages look again every few seconds without any news, too
            self._changes.update(effects.campaigns)
            now = time.monotonic()
            for each in effects.stored:
                size = each.names_bytes + each.launches_bytes
                self._stored.append((now, each.run_id, each.launches, size))
            self._forget(now)

    def touch(self, campaign_id: str) -> None:
        """A page of this campaign may look different now, though nothing was stored."""
        with self._lock:
            self._changes[campaign_id] += 1

    def version(self, campaign_id: str = "") -> int:
        """A number that changes with each change of a campaign; "": of anything."""
        with self._lock:
            return self._changes[campaign_id] if campaign_id else self._all

    def ingest(self, campaign_id: str = "") -> Ingest:
        """How fast launches of a campaign come in; "": of all."""
        with self._lock:
            self._forget(time.monotonic())
            # A run's name begins with its campaign's.
            mine = [one for one in self._stored if not campaign_id or one[1].startswith(f"{campaign_id}.")]
        launches, size = sum(one[2] for one in mine), sum(one[3] for one in mine)
        return Ingest(launches / _WINDOW_SECONDS, size / _WINDOW_SECONDS)

    def _forget(self, now: float) -> None:
        while self._stored and self._stored[0][0] < now - _WINDOW_SECONDS:
            self._stored.popleft()
