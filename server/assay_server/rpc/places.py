"""Bounded room: places that calls take, shared fairly among callers, and threads with a bounded queue."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from assay_sampling.errors import StorageError
from assay_server.access.caller import current_caller

Told = TypeVar("Told")


class Places:
    """Bounds how many do something at a time; used on the event loop.

    ``most``: how many; ``share_percent``: how many of them one caller with a certificate may take, at least
    one. Both are asked at each use, because a reload may change them.
    """

    def __init__(self, most: Callable[[], int], share_percent: Callable[[], int] = lambda: 100) -> None:
        self._most = most
        self._share_percent = share_percent
        self._taken = 0
        self._by_caller: defaultdict[str, int] = defaultdict(int)

    @contextlib.contextmanager
    def taken(self) -> Iterator[bool]:
        """Whether a place is free for the current caller; it is taken while the block runs."""
        caller = current_caller()
        bounded = "" if caller is None or caller.is_owner else caller.identity_id
        mine = self._by_caller[bounded] if bounded else 0
        most = self._most()
        if self._taken >= most or mine >= max(1, most * self._share_percent() // 100):
            yield False
            return
        self._taken += 1
        self._by_caller[bounded] += 1
        try:
            yield True
        finally:
            self._taken -= 1
            self._by_caller[bounded] -= 1
            if not self._by_caller[bounded]:
                del self._by_caller[bounded]

    def refusal(self, what: str) -> StorageError:
        """The error for a caller without a place; programs try again later."""
        cause = f"it has {self._most():,} {what} already, or this caller has its share of them"
        return StorageError("server", cause, "try again later")


class BoundedThreads(ThreadPoolExecutor):
    """Threads for which at most ``most_waiting`` calls wait: what cannot be done soon is refused at once."""

    def __init__(self, threads: int, name: str, most_waiting: int) -> None:
        super().__init__(threads, name)
        self._most = threads + most_waiting
        self._counting = threading.Lock()
        self._under_way = 0

    def submit(self, function: Callable[..., Told], /, *arguments: Any, **keywords: Any) -> Future[Told]:
        """Raises StorageError if too many wait."""
        with self._counting:
            if self._under_way >= self._most:
                cause = f"{self._most:,} calls of this kind wait or are being answered"
                raise StorageError("server", cause, "try again later; agents do so by themselves")
            self._under_way += 1
        try:
            future = super().submit(function, *arguments, **keywords)
        except BaseException:
            self._done()
            raise
        future.add_done_callback(lambda _: self._done())
        return future

    def _done(self) -> None:
        with self._counting:
            self._under_way -= 1
