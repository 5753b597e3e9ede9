"""Limits with other numbers: those that a running server takes over, and those that wait."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

import grpc
import pytest
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
    CampaignFileLimits,
    Limits,
    limits_asked,
    limits_with,
    take_over,
)
from assay_server.rpc.admission.quotas import Quotas
from assay_server.rpc.places import Places
from tests.support.server.playing_agent import PlayingAgent

CAMPAIGN_FILES = {each.name for each in dataclasses.fields(CampaignFileLimits)}


def numbers(limits: Limits) -> dict[str, int]:
    groups = [getattr(limits, group.name) for group in dataclasses.fields(limits)]
    return {name: number for group in groups for name, number in dataclasses.asdict(group).items()}


SETTABLE = sorted(set(numbers(DEFAULT_LIMITS)) - CAMPAIGN_FILES)
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
        ("place_share_percent=101", "from 1 to 100"),
        ("campaign_file_bytes=5", "campaign_file_bytes is built in"),
    ],
)
def test_what_is_not_a_limit_is_refused(text: str, cause: str) -> None:
    with pytest.raises(ParameterError, match=cause):
        limits_asked([text])


def test_quotas_and_places_follow_new_numbers() -> None:
    limits = limits_with(Limits(callers=CallerLimits(caller_registrations_per_minute=12)), {})
    quotas = Quotas(limits.callers, lambda: 0.0)
    share = Places(lambda: limits.queries.watch_streams, lambda: limits.callers.place_share_percent)
    asked = limits_with(limits, {"caller_calls_per_second": 1, "watch_streams": 4, "place_share_percent": 50})
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
    with called_by(Caller("vera", "vera", Role.VIEWER, how=How.CERTIFICATE)):
        held = [share.taken() for _ in range(3)]
        assert [each.__enter__() for each in held] == [True, True, False]


def test_a_running_server_takes_new_limits_over_and_names_those_that_wait(
    make_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()

    def reload(*limits: str) -> list[str]:
        caplog.clear()
        server.reload(ServerSettings(**{**dict(server.settings), "limits": limits}))
        return re.findall(r"limit \w+ (?:is now|becomes) \d+.*", caplog.text)

    with PlayingAgent(server.addresses[0]) as agent:
        agent.register(["recorded-0", "recorded-1"])
        assert reload("registration_slots=1", "request_bytes=4096") == [
            "limit registration_slots is now 1 (was 1024)",
            "limit request_bytes becomes 4096 only with a restart",
        ]
        with pytest.raises(grpc.RpcError, match="at most 1 are taken"):
            agent.register(["recorded-0", "recorded-1"])
        with pytest.raises(ParameterError, match="there is no limit"):
            reload("registration_slots=5", "nonsense=1")
        with pytest.raises(grpc.RpcError, match="at most 1 are taken"):
            agent.register(["recorded-0", "recorded-1"])
        assert reload() == ["limit registration_slots is now 1024 (was 1)"]
        agent.register(["recorded-0", "recorded-1"])
