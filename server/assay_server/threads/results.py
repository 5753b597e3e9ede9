"""The way back from threads to the event loop, which is woken once for all results that have arrived."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from typing import Generic, TypeVar

Result = TypeVar("Result")


class LoopResults(Generic[Result]):
    """Brings results of other threads to the event loop: one wake for all that have arrived."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived: list[tuple[asyncio.Future[Result], Future[Result]]] = []

    def on_loop(self, result: Future[Result]) -> asyncio.Future[Result]:
        """The result on the running event loop. Whoever cancels that leaves the result itself alone."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        result.add_done_callback(lambda done: self._arrive(loop, answer, done))
        return answer

    def _arrive(
        self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Result], result: Future[Result]
    ) -> None:
        with self._lock:
            self._arrived.append((answer, result))
            if len(self._arrived) > 1:  # the loop is on its way
                return
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(self._set_results)

    def _set_results(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        for answer, result in arrived:
            if answer.done():  # its call was cancelled
                continue
            error = result.exception()
            if error is None:
                answer.set_result(result.result())
            else:
                answer.set_exception(error)
