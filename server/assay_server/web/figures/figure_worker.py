"""Figures of reports: listed and drawn in another process, so that Vega and long reports hold up nobody here.

What was drawn is kept by the content of its report. The process begins with the first figure that somebody
looks at, and ends when nobody has looked at one for a while.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from assay_server.campaigns.errors import NotYetError, UnknownThingError
from assay_server.web.figures.work import Described, described, picture

Drawn = TypeVar("Drawn")

_log = logging.getLogger(__name__)

_MOST_LISTS = 32
_MOST_PICTURE_BYTES = 32 << 20
_MOST_WAITING = 64
_PATIENCE_SECONDS = 30.0
_IDLE_SECONDS = 600.0


@dataclass(frozen=True)
class Source:
    """A report: the campaign, what identifies the report's content, and its JSON or the file that has it."""

    campaign_id: str
    key: str
    report: Path | bytes


class Studio:
    """Lists and draws figures. Thread-safe.

    Args:
        make_executor: makes the process, and another one after it broke or was ended.
        listed: called with the campaign whose figures have been listed, so that its page is drawn again.
    """

    def __init__(self, make_executor: Callable[[], Executor], listed: Callable[[str], None]) -> None:
        self._make_executor = make_executor
        self._listed = listed
        self._lock = threading.Lock()
        self._executor: Executor | None = None
        self._ending: threading.Timer | None = None
        self._lists: OrderedDict[tuple[str, str], tuple[Described, ...] | None] = OrderedDict()
        self._pictures: OrderedDict[tuple[str, str, str, bool], bytes] = OrderedDict()
        self._picture_bytes = 0
        self._waiting = 0
        self._closed = False

    def figures(self, source: Source) -> tuple[Described, ...] | None:
        """The figures of a report; None while they are being listed. Never waits."""
        key = (source.campaign_id, source.key)
        with self._lock:
            if key in self._lists:
                return self._lists[key]
            self._lists[key] = None
            while len(self._lists) > _MOST_LISTS:
                self._lists.popitem(last=False)
        try:
            self._submit(partial(described, source.report)).add_done_callback(partial(self._described, key))
        except RuntimeError:  # the server ends
            return None
        return None

    async def picture(self, source: Source, name: str, *, narrow: bool = False) -> bytes:
        """A figure as SVG, ``narrow`` for a phone.

        Raises UnknownThingError if the report has no such figure, NotYetError if too many are being drawn.
        """
        key = (source.campaign_id, source.key, name, narrow)
        with self._lock:
            if key in self._pictures:
                self._pictures.move_to_end(key)
                return self._pictures[key]
            if self._waiting >= _MOST_WAITING:
                raise _busy()
            self._waiting += 1
        try:
            drawing = asyncio.wrap_future(self._submit(partial(picture, source.report, name, narrow=narrow)))
            drawn = await asyncio.wait_for(drawing, _PATIENCE_SECONDS)
        except TimeoutError:
            self.end()  # whatever holds it would hold every other figure
            raise _busy() from None
        except (BrokenExecutor, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                raise
            raise _busy() from error
        finally:
            with self._lock:
                self._waiting -= 1
        if drawn is None:
            raise UnknownThingError(
                f"figure {name[:100]!r}", "the campaign's report has no such figure", "reload the page"
            )
        self._keep(key, drawn)
        return drawn

    def close(self) -> None:
        """Draw nothing more."""
        self._closed = True
        self.end()

    def end(self) -> None:
        """End the process; the next figure begins another one."""
        with self._lock:
            if self._ending is not None:
                self._ending.cancel()
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)

    def _submit(self, work: Callable[[], Drawn]) -> Future[Drawn]:
        with self._lock:
            if self._closed:
                raise RuntimeError("the server ends")
            if self._ending is not None:
                self._ending.cancel()
            self._ending = threading.Timer(_IDLE_SECONDS, self.end)
            self._ending.daemon = True
            self._ending.start()
            if self._executor is None:
                self._executor = self._make_executor()
            try:
                return self._executor.submit(work)
            except BrokenExecutor:
                self._executor = self._make_executor()
                return self._executor.submit(work)

    def _described(self, key: tuple[str, str], done: Future[tuple[Described, ...]]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            _log.warning("the figures of %s cannot be shown: %s", key[0], error)
        with self._lock:
            # A process that died, say for want of memory, is tried again when the page is drawn next.
            if isinstance(error, BrokenExecutor):
                self._lists.pop(key, None)
            else:
                self._lists[key] = () if error is not None else done.result()
        self._listed(key[0])

    def _keep(self, key: tuple[str, str, str, bool], drawn: bytes) -> None:
        with self._lock:
            self._picture_bytes += len(drawn) - len(self._pictures.get(key, b""))
            self._pictures[key] = drawn
            while self._picture_bytes > _MOST_PICTURE_BYTES:
                self._picture_bytes -= len(self._pictures.popitem(last=False)[1])


def _busy() -> NotYetError:
    return NotYetError("figure", "the server is drawing many figures", "reload the page in a minute")
