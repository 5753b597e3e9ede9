"""Pages that are watched: each is drawn at most once a second, and one drawing serves all who watch it.

Whoever may see the same page with the same buttons shares its drawings; only what changed is sent. Drawing
takes a bounded share of one core, whatever is watched: a page rests ten times as long as it took, times the
number of pages that are watched.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from dataclasses import dataclass, field

from assay_server.web.views.region import Drawing, difference, event

_log = logging.getLogger(__name__)

_REST_SECONDS = 1.0
_REST_TIMES = 10.0  # the time of drawing
_LOOK_SECONDS = 5.0  # agents go away and time passes without any news
_PING_SECONDS = 15.0  # so that proxies keep the stream, and a lost browser is noticed
_KEPT_EVENTS = 8
_MOST_KEPT = 256

Draw = Callable[[], Awaitable[Drawing]]
Version = Callable[[], int]


@dataclass
class _Page:
    """A page in the form that one audience sees."""

    draw: Draw
    version: Version
    drawing: Drawing | None = None
    number: int = 0
    drawn_at: float = float("-inf")
    took: float = 0.0
    drawn_version: int = -1
    watchers: int = 0
    events: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=_KEPT_EVENTS))
    drawing_now: asyncio.Lock = field(default_factory=asyncio.Lock)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    failed: bool = False


class LivePages:
    """Draws pages and tells watchers of changes. Use it on one event loop.

    ``release``: what the browser compares with the release that its page came from.
    """

    def __init__(self, release: str, rest_seconds: float = _REST_SECONDS) -> None:
        self._release = release
        self._rest_seconds = rest_seconds
        self._pages: dict[Hashable, _Page] = {}
        self._epoch = secrets.token_hex(4)  # numbers of an earlier process mean nothing here
        self.drawn = 0
        self._ending = False

    async def current(self, key: Hashable, draw: Draw, version: Version) -> tuple[Drawing, str]:
        """A drawing with every change that has been heard of, at most a second old, and its number.

        So who comes back from a button's form sees what it did.
        """
        page = self._page(key, draw, version)
        await self._refresh(page, 0.0 if page.version() != page.drawn_version else self._rest_seconds)
        assert page.drawing is not None
        return page.drawing, self._numbered(page)

    async def events(self, key: Hashable, draw: Draw, version: Version, seen: str) -> AsyncGenerator[bytes]:
        """What changes on a page from the drawing ``seen`` on, for ever; b": \\n\\n" now and then."""
        page = self._page(key, draw, version)
        page.watchers += 1
        try:
            await self._refresh(page, self._rest_seconds)
            if page.task is None:
                page.task = asyncio.get_running_loop().create_task(self._keep_drawing(page))
            number = self._number_of(seen, page)
            yield b"retry: 3000\n\n"
            while not (self._ending or page.failed):
                news = page.news
                for message in self._since(page, number):
                    yield message
                number = page.number
                if news is page.news:
                    try:
                        await asyncio.wait_for(news.wait(), _PING_SECONDS)
                    except TimeoutError:
                        yield b": \n\n"
        finally:
            page.watchers -= 1
            if not page.watchers and page.task is not None:
                page.task.cancel()
                page.task = None

    def end(self) -> None:
        """End all streams, because the server ends."""
        self._ending = True
        for page in self._pages.values():
            page.news.set()

    @property
    def watched(self) -> int:
        return sum(page.watchers > 0 for page in self._pages.values())

    def _page(self, key: Hashable, draw: Draw, version: Version) -> _Page:
        if key not in self._pages and len(self._pages) >= _MOST_KEPT:
            for idle in [each for each, page in self._pages.items() if not page.watchers][: _MOST_KEPT // 2]:
                del self._pages[idle]
        if key in self._pages and self._pages[key].failed:
            del self._pages[key]
        return self._pages.setdefault(key, _Page(draw, version))

    async def _refresh(self, page: _Page, oldest: float) -> None:
        loop = asyncio.get_running_loop()
        async with page.drawing_now:
            if loop.time() - page.drawn_at < oldest:
                return
            began, version = loop.time(), page.version()
            now = await page.draw()
            page.drawn_version = version
            self.drawn += 1
            page.drawn_at, page.took = loop.time(), loop.time() - began
            changed = difference(page.drawing, now)
            if page.drawing is None or changed:
                first = page.drawing is None
                page.drawing, page.number = now, page.number + 1
                if not first:
                    message = event("change", self._numbered(page), {"release": self._release, **changed})
                    page.events.append((page.number, message))
                news, page.news = page.news, asyncio.Event()
                news.set()

    async def _keep_drawing(self, page: _Page) -> None:
        while True:
            seen = page.version()
            await asyncio.sleep(max(self._rest_seconds, _REST_TIMES * page.took * self.watched))
            waited = 0.0
            while page.version() == seen and waited < _LOOK_SECONDS:
                await asyncio.sleep(self._rest_seconds / 4)
                waited += self._rest_seconds / 4
            try:
                await self._refresh(page, 0.0)
            except Exception as error:  # noqa: BLE001 - whoever watches asks again, and is told why
                _log.info("a page is no longer drawn: %s", error)
                page.failed = True
                page.news.set()
                return

    def _since(self, page: _Page, number: int) -> list[bytes]:
        """The events after a number; everything at once if some are not kept any more."""
        if number == page.number:
            return []
        later = [message for of, message in page.events if of > number]
        if 0 <= number < page.number and len(later) == page.number - number:
            return later
        assert page.drawing is not None
        everything = difference(None, page.drawing)
        return [event("change", self._numbered(page), {"release": self._release, **everything})]

    def _numbered(self, page: _Page) -> str:
        return f"{self._epoch}.{page.number}"

    def _number_of(self, seen: str, page: _Page) -> int:
        epoch, _, number = seen.partition(".")
        is_ours = epoch == self._epoch and number.isascii() and number.isdigit() and len(number) < 16
        return int(number) if is_ours and int(number) <= page.number else -1
