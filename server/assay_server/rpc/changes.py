"""News for waiting coroutines: a version number per topic, announced from any thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable

from assay_server.campaigns.scheduling.transitions import Effects

WORK = "work"
_NO_NEWS = ""  # a topic that is never announced


def campaign_topic(campaign_id: str) -> str:
    """The topic of a campaign's status."""
    return f"campaign {campaign_id}"


def topics_of(effects: Effects) -> list[str]:
    """What the effects of a transaction are news of."""
    topics = [campaign_topic(campaign_id) for campaign_id in effects.campaigns]
    return [*topics, WORK] if effects.work else topics


class Changes:
    """Announce topics from any thread; wait for them on the attached event loop."""

    def __init__(self) -> None:
        self.stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._versions: defaultdict[str, int] = defaultdict(int)
        self._waiters: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def announce(self, topics: Iterable[str]) -> None:
        """Wake all who wait for one of the topics; does nothing before or after the loop runs."""
        news = tuple(topics)
        if news and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
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
        """Wake everybody, because the server ends. Call it on the loop."""
        self.stopping = True
        for topic in list(self._waiters):
            self._wake(topic)

    def version(self, topic: str) -> int:
        """The number of the topic's last news; read it before looking, then wait for the next."""
        return self._versions.get(topic, 0)

    async def rest(self, seconds: float) -> None:
        """Wait for ``seconds``, or until the server ends."""
        await self.wait(_NO_NEWS, 0, seconds)

    async def wait(self, topic: str, seen: int, seconds: float) -> None:
        """Wait until the topic's version is not ``seen``, the server ends, or ``seconds`` have passed."""
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
