"""The short form of the fuzzer of RPCs: a few messages for each, to a real server."""

from __future__ import annotations

from random import Random

import grpc
import pytest

from assay_server.rpc.handlers.agents import AgentHandler
from tests.fuzz.rpc_messages import failures, methods, random_bytes, random_message


def test_no_message_to_any_rpc_ends_in_an_untyped_error():
    found, outcomes = failures(inputs=3, seed=3)

    assert found == []
    assert sum(outcomes.values()) == 3 * len(list(methods()))
    assert outcomes["INVALID_ARGUMENT"] > 0


def test_the_fuzzer_finds_a_handler_that_fails_without_a_typed_error(monkeypatch: pytest.MonkeyPatch):
    def broken(*_arguments: object) -> None:
        raise KeyError("not typed")

    monkeypatch.setattr(AgentHandler, "lease", broken)
    found, outcomes = failures(inputs=4, seed=0, only="Lease")

    assert outcomes[grpc.StatusCode.INTERNAL.name] == len(found) > 0
    assert found[0].startswith("assay.v1.AgentService.Lease, seed 0, input ")


def test_a_message_is_known_by_its_seed():
    for method in methods():
        assert random_bytes(method, Random("7")) == random_bytes(method, Random("7"))
        assert random_message(method.input_type, Random("7")).DESCRIPTOR is method.input_type
