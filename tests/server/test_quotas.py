"""No caller takes what all need: calls by identity, places by share, and threads with a bounded queue."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_core.identity.roles import Role
from assay_sampling.errors import StorageError
from assay_server.access.caller import OWNER_ID, Caller, How, called_by
from assay_server.limits import CallerLimits
from assay_server.rpc.quotas import ConcurrencyLimit, Quotas
from assay_server.rpc.threads import BoundedThreads

LIMITS = CallerLimits(
    caller_calls=3,
    caller_calls_per_second=10,
    caller_heartbeats_per_second=2,
    caller_registrations_per_minute=60,
)


class HandSeconds:
    """Seconds that go when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> HandSeconds:
    return HandSeconds()


@pytest.fixture
def quotas(clock: HandSeconds) -> Quotas:
    return Quotas(LIMITS, clock)


def served(quotas: Quotas, caller: str, call: str, times: int) -> int:
    """How many of so many calls at one moment, one after another, are let through."""
    done = 0
    for _ in range(times):
        try:
            with quotas.used(caller, call):
                done += 1
        except StorageError:
            pass
    return done


def test_a_burst_passes_and_then_as_many_as_time_brings(quotas, clock):
    assert served(quotas, "agent", "Lease", 1000) == 50
    assert served(quotas, "agent", "Lease", 10) == 0
    clock.now += 0.5
    assert served(quotas, "agent", "Lease", 1000) == 5
    clock.now += 3600
    assert served(quotas, "agent", "Lease", 1000) == 50


def test_a_flood_of_one_caller_costs_neither_others_nor_its_own_heartbeats(quotas):
    assert served(quotas, "flood", "Register", 1000) == 5
    assert served(quotas, "flood", "Lease", 1000) == 50

    assert served(quotas, "flood", "Heartbeat", 3) == 3
    assert served(quotas, "other", "Lease", 5) == 5
    assert served(quotas, "flood", "Heartbeat", 100) == 7


def test_long_calls_are_bounded_and_take_no_heartbeats_place(quotas):
    calls = [quotas.used("agent", "Upload") for _ in range(3)]
    for each in calls:
        each.__enter__()
    with pytest.raises(StorageError, match="3 calls under way"), quotas.used("agent", "Watch"):
        pass
    with quotas.used("agent", "Heartbeat"), quotas.used("other", "Watch"):
        pass
    calls[0].__exit__(None, None, None)
    with quotas.used("agent", "Watch"):
        pass


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 2)), max_size=200))
def test_no_caller_ever_gets_more_than_its_burst_and_its_rate(calls):
    clock = HandSeconds()
    quotas, began = Quotas(LIMITS, clock), clock.now
    passed = {"a": 0, "b": 0}
    for caller, pause in calls:
        clock.now += pause / 20
        passed[caller] += served(quotas, caller, "Lease", 7)
    most = 50 + 10 * (clock.now - began)
    assert all(number <= most + 1e-6 for number in passed.values())


def caller(identity_id: str, how: How = How.CERTIFICATE) -> Caller:
    return Caller(identity_id, identity_id, Role.AGENT, how=how)


def entered(place: AbstractContextManager[None]) -> bool:
    try:
        place.__enter__()
    except StorageError:
        return False
    return True


def test_one_caller_takes_its_share_of_the_places_and_no_more():
    streams = ConcurrencyLimit("calls", lambda: 8, lambda: 25)

    def take(who: Caller) -> tuple[object, bool]:
        with called_by(who):
            held = streams.entered()
            return held, entered(held)

    greedy = [take(caller("greedy")) for _ in range(3)]
    assert [got for _, got in greedy] == [True, True, False]
    other = take(caller("other"))
    assert other[1]
    owner = [take(caller(OWNER_ID, How.SOCKET)) for _ in range(6)]
    assert [got for _, got in owner] == [True] * 5 + [False]
    greedy[0][0].__exit__(None, None, None)
    assert take(caller("greedy"))[1]


def test_more_calls_than_may_wait_are_refused_at_once_and_the_others_are_answered():
    threads, go = BoundedThreads(1, "few", most_waiting=2), threading.Event()
    futures = [threads.submit(go.wait, 20) for _ in range(3)]
    with pytest.raises(StorageError, match="3 calls of this kind"):
        threads.submit(go.wait, 20)
    go.set()
    assert [future.result(20) for future in futures] == [True] * 3
    assert threads.submit(int, "7").result(20) == 7
    threads.shutdown()
