"""A thread that handles many things together that came one by one: with one commit, say.

A thread for each costs more than most answers do: it must be woken, wait for its turn to write and for its
commit, and wake the event loop again.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from assay_sampling.errors import StorageError

Item = TypeVar("Item")
Request = TypeVar("Request")
Answer = TypeVar("Answer")

# From requests to answers, in the same order; an error is the answer to its own request only.
AnswerAll = Callable[[Sequence[Request]], Sequence[Answer | Exception]]

MOST_TOGETHER = 32

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


class GroupedAnswers(Generic[Request, Answer]):
    """Requests of an event loop that a grouping thread answers.

    Args:
        name: of the thread.
        answer_all: answers requests together; may block.
        most_waiting: more than so many are refused at once.
        most_together: so many are answered together.
    """

    def __init__(
        self,
        name: str,
        answer_all: AnswerAll[Request, Answer],
        most_waiting: int,
        most_together: int = MOST_TOGETHER,
    ) -> None:
        self._answer_all = answer_all
        self._most_waiting = most_waiting
        self._under_way = 0
        self._thread: GroupingThread[tuple[Request, asyncio.Future[Answer]]] = GroupingThread(
            name, self._answer, most_together
        )

    async def ask(self, request: Request) -> Answer:
        """The answer; call it on the event loop. Raises StorageError if too many requests wait."""
        if self._under_way >= self._most_waiting:
            cause = f"{self._most_waiting:,} calls of this kind wait or are being answered"
            raise StorageError("server", cause, "try again later; agents do so by themselves")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._under_way += 1
        answer.add_done_callback(self._done)
        self._thread.put((request, answer))
        return await answer

    def _done(self, _answer: object) -> None:
        self._under_way -= 1

    def close(self) -> None:
        """Answer what was asked, then stop; nobody asks any more."""
        self._thread.close()

    def _answer(self, group: list[tuple[Request, asyncio.Future[Answer]]]) -> None:
        results: Sequence[Answer | Exception]
        try:
            results = self._answer_all([request for request, _ in group])
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for each answer
            results = [error] * len(group)
        answers = [answer for _, answer in group]
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            answers[0].get_loop().call_soon_threadsafe(_set_results, answers, results)


def _set_results(answers: Sequence[asyncio.Future[Answer]], results: Sequence[Answer | Exception]) -> None:
    for answer, each in zip(answers, results, strict=True):
        if answer.done():  # its call was cancelled
            continue
        if isinstance(each, Exception):
            answer.set_exception(each)
        else:
            answer.set_result(each)
