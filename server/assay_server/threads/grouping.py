"""A thread that handles many things together that came one by one: with one commit, say."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")

# What is on its way may still join a group, but nobody waits for others longer than this.
_LONGEST_SECONDS = 0.03
_LOOK_SECONDS = 0.003


class GroupingThread(Generic[Item]):
    """One thread that handles all that was put in since it last looked, in its order.

    Args:
        name: of the thread.
        handle: gets each group; it must raise nothing.
        most_together: a group is no larger.
        more_come: whether more is on its way, which is worth waiting for a little.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[list[Item]], None],
        most_together: int,
        more_come: Callable[[], bool] = lambda: False,
    ) -> None:
        self._handle = handle
        self._most_together = most_together
        self._more_come = more_come
        self._waiting: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        self._waiting.put(item)

    def close(self) -> None:
        """Handle what was put in, then stop; nobody puts in any more."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        ends = False
        while not ends and (first := self._waiting.get()) is not None:
            group, until = [first], time.monotonic() + _LONGEST_SECONDS
            while len(group) < self._most_together:
                try:
                    following = self._next(until)
                except queue.Empty:
                    break
                if following is None:
                    ends = True
                    break
                group.append(following)
            self._handle(group)

    def _next(self, until: float) -> Item | None:
        """What was put in next; raises queue.Empty if nothing comes soon."""
        while self._waiting.empty() and self._more_come() and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                return self._waiting.get(timeout=_LOOK_SECONDS)
        return self._waiting.get_nowait()
