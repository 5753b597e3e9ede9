"""Statuses that all watchers of a campaign share: one of them has it made, and the others get the same.

To make the status of a large campaign takes a good part of a second. So after each there is a pause in which
nobody has another one made; its watchers rest until then anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from assay_core.records.campaign import CampaignStatus
from assay_server.rpc.changes import Changes, campaign_topic


@dataclass(frozen=True)
class Pace:
    """How often a status is made: a pause after each of ``rest`` x its time, within these bounds, and never
    later than ``poll_seconds``, because agents and times change without news."""

    poll_seconds: float = 5.0
    least_seconds: float = 0.1  # news of many segments give one status
    rest: float = 10.0  # a status of many runs must not keep the server busy

    def pause(self, took_seconds: float) -> float:
        """How long after a status, which took so long, the next one is made at the earliest."""
        return min(max(self.least_seconds, self.rest * took_seconds), self.poll_seconds)


PACE = Pace()


@dataclass(frozen=True)
class Made:
    """A status and its message. ``seen``: the version of the campaign's news that it knows; ``rests_until``:
    by the loop's clock."""

    status: CampaignStatus
    message: Any
    seen: int
    rests_until: float


@dataclass
class _Watched:
    watchers: int = 0
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: Made | None = None


class Watching:
    """One watcher of a campaign. Use it on the event loop."""

    def __init__(self, shared: SharedStatuses, campaign_id: str, watched: _Watched) -> None:
        self._shared, self._campaign_id, self._watched = shared, campaign_id, watched
        self._mine: Made | None = None

    def __enter__(self) -> Watching:
        self._watched.watchers += 1
        return self

    def __exit__(self, *_error: object) -> None:
        self._watched.watchers -= 1
        self._shared.forget(self._campaign_id)

    async def next(self, make: Callable[[], Awaitable[CampaignStatus]]) -> Made:
        """A status that this watcher has not had: one made for another moments ago, or by ``make``."""
        shared, loop = self._shared, asyncio.get_running_loop()
        async with self._watched.making:
            last = self._watched.last
            if last is None or last is self._mine or loop.time() >= last.rests_until:
                seen, began = shared.changes.version(campaign_topic(self._campaign_id)), loop.time()
                status = await make()
                until = loop.time() + PACE.pause(loop.time() - began)
                last = self._watched.last = Made(status, status.to_proto(), seen, until)
            self._mine = last
            return last

    async def rest(self) -> None:
        """Wait until the next status may be made and there is news, or some seconds without any."""
        assert self._mine is not None, "get a status first"
        shared, topic = self._shared, campaign_topic(self._campaign_id)
        await shared.changes.rest(max(0.0, self._mine.rests_until - asyncio.get_running_loop().time()))
        await shared.changes.wait(topic, self._mine.seen, PACE.poll_seconds)


class SharedStatuses:
    """The statuses of all campaigns that somebody watches."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self._watched: dict[str, _Watched] = {}

    def watching(self, campaign_id: str) -> Watching:
        """A watcher, for a ``with`` block, after which nothing is kept for it."""
        return Watching(self, campaign_id, self._watched.setdefault(campaign_id, _Watched()))

    def forget(self, campaign_id: str) -> None:
        """Keep nothing of a campaign that nobody watches."""
        watched = self._watched.get(campaign_id)
        if watched is not None and not watched.watchers:
            del self._watched[campaign_id]
