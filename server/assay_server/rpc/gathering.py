"""Requests that wait at one moment are answered together: by one thread, in one transaction, with one sync.

A thread for each request costs more than most answers do: each must be woken, wait for its turn to write and
for its commit, and wake the event loop again.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from assay_sampling.errors import StorageError

Asked = TypeVar("Asked")
Told = TypeVar("Told")

# From requests to answers, in the same order; an error is the answer to its own request only.
AnswerAll = Callable[[Sequence[Asked]], Sequence[Told | Exception]]

MOST_TOGETHER = 32


class Gathering(Generic[Asked, Told]):
    """One thread that answers all requests that have come since it last looked.

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
        self._most_together = most_together
        self._under_way = 0
        self._asked: queue.SimpleQueue[tuple[Asked, asyncio.Future[Told]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def ask(self, asked: Asked) -> Told:
        """The answer; call it on the event loop. Raises StorageError if too many requests wait."""
        if self._under_way >= self._most_waiting:
            cause = f"{self._most_waiting:,} calls of this kind wait or are being answered"
            raise StorageError("server", cause, "try again later; agents do so by themselves")
        answer: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._under_way += 1
        answer.add_done_callback(self._done)
        self._asked.put((asked, answer))
        return await answer

    def _done(self, _answer: object) -> None:
        self._under_way -= 1

    def close(self) -> None:
        """Answer what was asked, then stop; nobody asks any more."""
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        ends = False
        while not ends and (first := self._asked.get()) is not None:
            group = [first]
            while len(group) < self._most_together:
                try:
                    following = self._asked.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    ends = True
                    break
                group.append(following)
            self._answer(group)

    def _answer(self, group: list[tuple[Asked, asyncio.Future[Told]]]) -> None:
        told: Sequence[Told | Exception]
        try:
            told = self._answer_all([asked for asked, _ in group])
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for each answer
            told = [error] * len(group)
        answers = [answer for _, answer in group]
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            answers[0].get_loop().call_soon_threadsafe(_tell, answers, told)


def _tell(answers: Sequence[asyncio.Future[Told]], told: Sequence[Told | Exception]) -> None:
    for answer, each in zip(answers, told, strict=True):
        if answer.done():  # its call was cancelled
            continue
        if isinstance(each, Exception):
            answer.set_exception(each)
        else:
            answer.set_result(each)
