"""Requests that are answered together: each gets its own answer or error, and nobody is forgotten."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from assay_sampling.errors import ParameterError, StorageError
from assay_server.threads.grouping import GroupedAnswers
from assay_server.threads.results import LoopResults


class Desk:
    """Answers after :meth:`open`, and keeps what it was asked together."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.begun = threading.Event()
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def answer(self, asked: Sequence[int]) -> list[int | Exception]:
        self.groups.append(list(asked))
        self.begun.set()
        self._open.wait(60)
        return [ParameterError("number", "it is odd", "give another") if n % 2 else 10 * n for n in asked]


async def asked_behind(desk: Desk, grouped: GroupedAnswers[int, int], numbers: Sequence[int]) -> list[object]:
    """The answers to 0 and to these numbers, which are asked while 0 is being answered."""
    first = asyncio.create_task(grouped.ask(0))
    await asyncio.to_thread(desk.begun.wait, 60)
    others = [asyncio.create_task(grouped.ask(number)) for number in numbers]
    await asyncio.sleep(0)  # each of them has asked then
    desk.open()
    return await asyncio.gather(first, *others, return_exceptions=True)


def play(
    most_waiting: int, most_together: int, course: Callable[[Desk, GroupedAnswers[int, int]], object]
) -> tuple[Desk, object]:
    desk = Desk()
    grouped = GroupedAnswers("test-grouped", desk.answer, most_waiting, most_together)
    try:
        return desk, asyncio.run(course(desk, grouped))  # type: ignore[arg-type]
    finally:
        desk.open()
        grouped.close()


def test_what_waits_is_answered_together_and_an_error_is_its_own() -> None:
    desk, told = play(100, 3, lambda desk, grouped: asked_behind(desk, grouped, [2, 3, 4, 6]))
    assert desk.groups == [[0], [2, 3, 4], [6]]
    assert isinstance(told, list)
    assert [each for each in told if not isinstance(each, Exception)] == [0, 20, 40, 60]
    assert isinstance(told[2], ParameterError)


def test_more_than_may_wait_are_refused_at_once_and_later_ones_are_not() -> None:
    async def course(desk: Desk, grouped: GroupedAnswers[int, int]) -> list[object]:
        told = await asked_behind(desk, grouped, [2, 4, 6])
        return [*told, await grouped.ask(8)]

    _, told = play(3, 10, course)
    assert isinstance(told, list)
    assert told[:3] + told[4:] == [0, 20, 40, 80]
    assert isinstance(told[3], StorageError)


def test_a_call_that_is_cancelled_takes_no_answer_from_the_others() -> None:
    async def course(desk: Desk, grouped: GroupedAnswers[int, int]) -> object:
        first = asyncio.create_task(grouped.ask(0))
        await asyncio.to_thread(desk.begun.wait, 60)
        gone, kept = (asyncio.create_task(grouped.ask(number)) for number in (2, 4))
        await asyncio.sleep(0)
        gone.cancel()
        desk.open()
        return await asyncio.gather(first, gone, kept, return_exceptions=True)

    _, told = play(100, 10, course)
    assert isinstance(told, list)
    assert (told[0], type(told[1]), told[2]) == (0, asyncio.CancelledError, 40)


def test_a_bug_is_told_to_all_who_wait_and_the_thread_goes_on() -> None:
    calls = []

    def answer(asked: Sequence[int]) -> list[int | Exception]:
        calls.append(asked)
        if len(calls) == 1:
            raise RuntimeError("a bug")
        return list(asked)

    async def course() -> object:
        with pytest.raises(RuntimeError, match="a bug"):
            await grouped.ask(1)
        return await grouped.ask(2)

    grouped: GroupedAnswers[int, int] = GroupedAnswers("test-grouped", answer, 10)
    try:
        assert asyncio.run(course()) == 2
    finally:
        grouped.close()


class CountedLoop(asyncio.SelectorEventLoop):
    """Counts how often other threads wake it."""

    wakes = 0

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
        self.wakes += 1
        return super().call_soon_threadsafe(*args, **kwargs)


def test_results_that_are_there_together_wake_the_loop_once_and_each_comes_to_its_own_caller() -> None:
    async def course() -> list[object]:
        telling: LoopResults[int] = LoopResults()
        results: list[Future[int]] = [Future() for _ in range(4)]
        told = [telling.on_loop(result) for result in results]
        told[2].cancel()
        results[0].set_result(10)
        results[1].set_exception(ParameterError("number", "it is odd", "give another"))
        results[2].set_result(20)
        results[3].set_result(30)
        found = await asyncio.gather(*told, return_exceptions=True)
        later: Future[int] = Future()
        later.set_result(40)
        return [*found, await telling.on_loop(later)]

    loop = CountedLoop()
    try:
        first, second, third, *rest = loop.run_until_complete(course())
    finally:
        loop.close()
    assert (first, type(second), type(third), rest) == (10, ParameterError, asyncio.CancelledError, [30, 40])
    assert loop.wakes == 2
