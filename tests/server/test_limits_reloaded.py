"""Limits with other numbers: those that a running server takes over, and those that wait."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from assay_core.identity.roles import Role
from assay_sampling.errors import ParameterError, StorageError
from assay_server.access.caller import Caller, How, called_by
from assay_server.app import Server
from assay_server.config import ServerSettings
from assay_server.limits import (
    AT_RUNTIME,
    DEFAULT_LIMITS,
    CallerLimits,
    Limits,
    limits_asked,
    limits_with,
    take_over,
)
from assay_server.rpc.quotas import ConcurrencyLimit, Quotas


def numbers(limits: Limits) -> dict[str, int]:
    groups = [getattr(limits, group.name) for group in dataclasses.fields(limits)]
    return {name: number for group in groups for name, number in dataclasses.asdict(group).items()}


SETTABLE = sorted(numbers(DEFAULT_LIMITS))
ASKED = st.dictionaries(st.sampled_from(SETTABLE), st.integers(1, 100))


@given(ASKED)
def test_every_number_that_is_asked_for_is_there_and_no_other_changes(asked: Mapping[str, int]) -> None:
    found = limits_with(DEFAULT_LIMITS, limits_asked(f"{name}={number}" for name, number in asked.items()))
    assert numbers(found) == numbers(DEFAULT_LIMITS) | dict(asked)
    assert numbers(DEFAULT_LIMITS) == numbers(Limits()), "servers of one process share no numbers"


@given(ASKED, ASKED)
def test_a_reload_changes_what_may_change_and_nothing_else(
    before: Mapping[str, int], after: Mapping[str, int]
) -> None:
    force, asked = limits_with(DEFAULT_LIMITS, before), limits_with(DEFAULT_LIMITS, after)
    was, wanted = numbers(force), numbers(asked)
    take_over(force, asked)
    assert numbers(force) == was | {name: wanted[name] for name in AT_RUNTIME}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("caller_call=5", "there is no limit 'caller_call'"),
        ("caller_calls", "'' is not a whole number"),
        ("caller_calls=0", "'0' is not a whole number from 1"),
        ("caller_calls=many", "'many' is not a whole number"),
        ("caller_calls=" + "9" * 5000, "is not a whole number from 1"),
        ("campaign_file_bytes=5", "campaign_file_bytes is built in"),
        ("place_share_percent=50", "place_share_percent is built in"),
    ],
)
def test_what_is_not_a_limit_is_refused(text: str, cause: str) -> None:
    with pytest.raises(ParameterError, match=cause):
        limits_asked([text])


def test_quotas_and_places_follow_new_numbers() -> None:
    limits = limits_with(Limits(callers=CallerLimits(caller_registrations_per_minute=12)), {})
    quotas = Quotas(limits.callers, lambda: 0.0)
    share = ConcurrencyLimit(
        "pages", lambda: limits.queries.watch_streams, lambda: limits.callers.place_share_percent
    )
    asked = limits_with(limits, {"caller_calls_per_second": 1, "watch_streams": 8})
    take_over(limits, asked)

    def passed(call: str) -> int:
        done = 0
        for _ in range(20):
            try:
                with quotas.used("vera", call):
                    done += 1
            except StorageError:
                pass
        return done

    assert (passed("Submit"), passed("Register")) == (5, 1)
    vera = Caller("vera", "vera", Role.VIEWER, how=How.CERTIFICATE)
    with called_by(vera), share.entered(), share.entered(), pytest.raises(StorageError), share.entered():
        pass


def test_a_running_server_takes_new_limits_over_and_names_those_that_wait(
    make_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()

    def reload(*limits: str) -> list[str]:
        caplog.clear()
        server.reload(ServerSettings(**{**dict(server.settings), "limits": limits}))
        return re.findall(r"limit \w+ (?:is now|becomes) \d+.*", caplog.text)

    def is_watched() -> bool:
        """Whether one more may watch the server's health."""
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=60)
        try:
            next(watch)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            return False
        watches.append(watch)
        return True

    watches: list[Any] = []
    with grpc.insecure_channel(server.addresses[0]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        assert is_watched()
        assert reload("watch_streams=1", "connections=4096") == [
            "limit connections becomes 4096 only with a restart",
            "limit watch_streams is now 1 (was 256)",
        ]
        assert not is_watched()
        with pytest.raises(ParameterError, match="there is no limit"):
            reload("watch_streams=5", "nonsense=1")
        assert not is_watched()
        assert reload() == ["limit watch_streams is now 256 (was 1)"]
        assert is_watched()
        for watch in watches:
            watch.cancel()
