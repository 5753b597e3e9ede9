"""News for coroutines that wait: a version number a topic, announced from any thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable

WORK = "work"
_NO_NEWS = ""  # of this topic there never are any


def campaign_topic(campaign_id: str) -> str:
    """The topic of a campaign's status."""
    return f"campaign {campaign_id}"


class Changes:
    """Announce topics from any thread; wait for them on the event loop that it was attached to."""

    def __init__(self) -> None:
        self.stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._versions: defaultdict[str, int] = defaultdict(int)
        self._waiters: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def announce(self, topics: Iterable[str]) -> None:
        """Tell whoever waits for one of the topics; nothing happens before or after the loop runs."""
        news = tuple(topics)
        if news and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._announce, news)

    def _announce(self, topics: tuple[str, ...]) -> None:
        for topic in topics:
            self._versions[topic] += 1
            self._wake(topic)

    def _wake(self, topic: str) -> None:
        for waiter in self._waiters.pop(topic, ()):
            if not waiter.done():
                waiter.set_result(None)

    def stop(self) -> None:
        """Wake everybody: the server ends. On the loop."""
        self.stopping = True
        for topic in list(self._waiters):
            self._wake(topic)

    def version(self, topic: str) -> int:
        """The number of the topic's last news; read it before you look, then wait for another."""
        return self._versions.get(topic, 0)

    async def rest(self, seconds: float) -> None:
        """So long, or until the server ends."""
        await self.wait(_NO_NEWS, 0, seconds)

    async def wait(self, topic: str, seen: int, seconds: float) -> None:
        """Until the topic's version is not ``seen`` any more, the server ends, or so long."""
        if self.version(topic) != seen or self.stopping or self._loop is None:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters[topic].add(waiter)
        try:
            await asyncio.wait_for(waiter, seconds)
        except TimeoutError:
            pass
        finally:
            self._waiters[topic].discard(waiter)
            if not self._waiters[topic]:
                del self._waiters[topic]
