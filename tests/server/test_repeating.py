"""A thread does a step again and again: it outlives every fault of it, and ends with its block."""

from __future__ import annotations

import logging
import threading

import pytest

from assay_sampling.errors import StorageError
from assay_server.threads.repeating import repeated_in_thread
from tests.support.server.server_support import eventually

HOUR_SECONDS = 3600.0


class Step:
    """Counts how often it was done; raises these errors first, one each time."""

    def __init__(self, *errors: Exception) -> None:
        self.done = 0
        self.threads: set[str] = set()
        self._errors = list(errors)

    def __call__(self) -> None:
        self.done += 1
        self.threads.add(threading.current_thread().name)
        if self._errors:
            raise self._errors.pop(0)


def is_there(name: str) -> bool:
    return name in {thread.name for thread in threading.enumerate()}


def test_the_first_step_comes_at_once_and_is_repeated_in_a_thread_of_that_name() -> None:
    step = Step()
    with repeated_in_thread("made-step", step, 0.001):
        eventually(lambda: step.done >= 3, "a third step")
    assert step.threads == {"made-step"}


@pytest.mark.timeout(60)
def test_a_pause_of_an_hour_ends_with_the_block() -> None:
    step = Step()
    with repeated_in_thread("made-step", step, HOUR_SECONDS):
        eventually(lambda: step.done == 1, "the first step")
    assert step.done == 1 and not is_there("made-step")


@pytest.mark.timeout(60)
def test_the_first_step_may_come_after_the_first_pause() -> None:
    step = Step()
    with repeated_in_thread("made-step", step, HOUR_SECONDS, at_once=False):
        pass
    assert step.done == 0 and not is_there("made-step")
    with repeated_in_thread("made-step", step, 0.001, at_once=False):
        eventually(lambda: step.done >= 2, "a second step")


def test_a_step_that_raises_is_logged_and_done_again(caplog: pytest.LogCaptureFixture) -> None:
    step = Step(StorageError("disk", "it is full", "free space"), RuntimeError("a fault of ours"))
    with repeated_in_thread("made-step", step, 0.001):
        eventually(lambda: step.done >= 3, "a third step")
    told = [
        (each.levelno, each.getMessage(), each.exc_info is not None)
        for each in caplog.records
        if "made-step" in each.getMessage()
    ]
    assert told == [
        (logging.WARNING, "made-step: disk: it is full; free space", False),
        (logging.ERROR, "made-step failed", True),
    ]


def test_the_end_waits_for_the_step_under_way() -> None:
    begun, may_end = threading.Event(), threading.Event()
    ended: list[bool] = []

    def step() -> None:
        begun.set()
        ended.append(may_end.wait(30))

    with repeated_in_thread("made-step", step, HOUR_SECONDS):
        assert begun.wait(30)
        assert ended == []
        threading.Timer(0.1, may_end.set).start()
    assert ended == [True]


def test_a_block_that_raises_ends_the_thread() -> None:
    with pytest.raises(KeyError), repeated_in_thread("made-step", Step(), HOUR_SECONDS):
        raise KeyError("made")
    assert not is_there("made-step")
