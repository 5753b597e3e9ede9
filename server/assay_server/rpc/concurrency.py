"""How many calls of a kind are under way at a time, shared fairly among callers."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator

from assay_sampling.errors import StorageError
from assay_server.access.caller import current_caller


class ConcurrencyLimit:
    """Bounds how many do something at a time; used on the event loop.

    ``most``: how many; ``share_percent``: how many of them one caller with a certificate may take, at least
    one. Both are asked at each use, because a reload may change them.
    """

    def __init__(self, most: Callable[[], int], share_percent: Callable[[], int] = lambda: 100) -> None:
        self._most = most
        self._share_percent = share_percent
        self._under_way = 0
        self._by_caller: defaultdict[str, int] = defaultdict(int)

    @contextlib.contextmanager
    def entered(self) -> Iterator[bool]:
        """Whether the current caller may begin; if so, it counts while the block runs."""
        caller = current_caller()
        bounded = "" if caller is None or caller.is_owner else caller.identity_id
        mine = self._by_caller[bounded] if bounded else 0
        most = self._most()
        if self._under_way >= most or mine >= max(1, most * self._share_percent() // 100):
            yield False
            return
        self._under_way += 1
        self._by_caller[bounded] += 1
        try:
            yield True
        finally:
            self._under_way -= 1
            self._by_caller[bounded] -= 1
            if not self._by_caller[bounded]:
                del self._by_caller[bounded]

    def refusal(self, what: str) -> StorageError:
        """The error for a caller who may not begin; programs try again later."""
        cause = f"it has {self._most():,} {what} already, or this caller has its share of them"
        return StorageError("server", cause, "try again later")
