"""Counters held by a program outside: after two runs the detailed level is given up on that box."""

from __future__ import annotations

from dataclasses import replace

from assay_agent.health.held_counters import HeldCounters
from assay_core.records.failure import failure
from assay_core.records.work import CommandSource
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import WORK

DETAILED = replace(WORK, level="detailed", command=CommandSource(("./program",), {}, "", 30.0))
LIGHT = replace(DETAILED, level="light")
BUSY = failure(FailureClass.COUNTER_BUSY, "run", "a driver resource was unavailable")
OTHER = failure(FailureClass.HANG, "run")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_after_two_in_a_row_detailed_runs_are_not_begun() -> None:
    counters = HeldCounters()
    assert counters.judged(DETAILED, BUSY) is BUSY
    assert BUSY.retryable
    assert counters.refusal(DETAILED) is None
    second = counters.judged(DETAILED, BUSY)
    assert second is not None
    assert (second.failure_class, second.retryable) == (FailureClass.COUNTER_BUSY, False)
    assert second.cause.startswith("a driver resource was unavailable; 2 runs in a row found it so")
    third = counters.refusal(DETAILED)
    assert third is not None
    assert (third.failure_class, third.retryable) == (FailureClass.COUNTER_BUSY, False)


def test_light_runs_and_recordings_go_on_and_change_nothing() -> None:
    counters = HeldCounters()
    counters.judged(DETAILED, BUSY)
    assert counters.judged(LIGHT, None) is None
    counters.judged(DETAILED, BUSY)
    assert counters.refusal(DETAILED) is not None
    assert counters.refusal(LIGHT) is None
    assert counters.refusal(replace(DETAILED, command=None)) is None


def test_a_detailed_run_that_succeeds_ends_the_row_and_another_failure_does_not() -> None:
    counters = HeldCounters()
    counters.judged(DETAILED, BUSY)
    assert counters.judged(DETAILED, None) is None
    assert counters.judged(DETAILED, BUSY) is BUSY
    assert counters.judged(DETAILED, OTHER) is OTHER
    assert counters.judged(DETAILED, BUSY) is not BUSY


def test_after_an_hour_one_run_may_try_again() -> None:
    clock = Clock()
    counters = HeldCounters(clock)
    for _ in range(2):
        counters.judged(DETAILED, BUSY)
    clock.now += 3599
    assert counters.refusal(DETAILED) is not None
    clock.now += 2
    assert counters.refusal(DETAILED) is None
    counters.judged(DETAILED, BUSY)  # still held
    assert counters.refusal(DETAILED) is not None
    clock.now += 3601
    counters.judged(DETAILED, None)
    assert counters.refusal(DETAILED) is None
