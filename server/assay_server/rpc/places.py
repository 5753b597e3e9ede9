"""Bounded room: places that calls take, shared fairly among callers, and threads with bounded queues; and the
way back from threads to the event loop, which is woken once for all answers that are there."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from assay_sampling.errors import StorageError
from assay_server.access.caller import current_caller
from assay_server.threads.grouping import GroupingThread

Asked = TypeVar("Asked")
Told = TypeVar("Told")

# From requests to answers, in the same order; an error is the answer to its own request only.
AnswerAll = Callable[[Sequence[Asked]], Sequence[Told | Exception]]

MOST_TOGETHER = 32


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


class Gathering(Generic[Asked, Told]):
    """One thread that answers all requests that have come since it last looked: with one commit, say.

    A thread for each costs more than most answers do: it must be woken, wait for its turn to write and for
    its commit, and wake the event loop again.

    Args:
        name: of the thread.
        answer_all: answers requests together; may block.
        most_waiting: more than so many are refused at once.
        most_together: so many are answered together.
    """

    def __init__(
        self,
        name: str,
        answer_all: AnswerAll[Asked, Told],
        most_waiting: int,
        most_together: int = MOST_TOGETHER,
    ) -> None:
        self._answer_all = answer_all
        self._most_waiting = most_waiting
        self._under_way = 0
        self._thread: GroupingThread[tuple[Asked, asyncio.Future[Told]]] = GroupingThread(
            name, self._answer, most_together
        )

    async def ask(self, asked: Asked) -> Told:
        """The answer; call it on the event loop. Raises StorageError if too many requests wait."""
        if self._under_way >= self._most_waiting:
            cause = f"{self._most_waiting:,} calls of this kind wait or are being answered"
            raise StorageError("server", cause, "try again later; agents do so by themselves")
        answer: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._under_way += 1
        answer.add_done_callback(self._done)
        self._thread.put((asked, answer))
        return await answer

    def _done(self, _answer: object) -> None:
        self._under_way -= 1

    def close(self) -> None:
        """Answer what was asked, then stop; nobody asks any more."""
        self._thread.close()

    def _answer(self, group: list[tuple[Asked, asyncio.Future[Told]]]) -> None:
        told: Sequence[Told | Exception]
        try:
            told = self._answer_all([asked for asked, _ in group])
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for each answer
            told = [error] * len(group)
        answers = [answer for _, answer in group]
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            answers[0].get_loop().call_soon_threadsafe(_tell, answers, told)


class Telling(Generic[Told]):
    """Brings results of other threads to the event loop: one wake for all that are there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: list[tuple[asyncio.Future[Told], Future[Told]]] = []

    def told(self, result: Future[Told]) -> asyncio.Future[Told]:
        """The result on the running event loop. Whoever cancels that leaves the result itself alone."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Told] = loop.create_future()
        result.add_done_callback(lambda done: self._is_there(loop, answer, done))
        return answer

    def _is_there(
        self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Told], result: Future[Told]
    ) -> None:
        with self._lock:
            self._there.append((answer, result))
            if len(self._there) > 1:  # the loop is on its way
                return
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        with self._lock:
            there, self._there = self._there, []
        for answer, result in there:
            if answer.done():  # its call was cancelled
                continue
            error = result.exception()
            if error is None:
                answer.set_result(result.result())
            else:
                answer.set_exception(error)


def _tell(answers: Sequence[asyncio.Future[Told]], told: Sequence[Told | Exception]) -> None:
    for answer, each in zip(answers, told, strict=True):
        if answer.done():  # its call was cancelled
            continue
        if isinstance(each, Exception):
            answer.set_exception(each)
        else:
            answer.set_result(each)
