"""What agents ask, without sockets: work for their slots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_core.records.lease import LeaseAnswer, LeaseRequest
from assay_sampling.errors import ParameterError, StorageError
from assay_server.campaigns.heartbeats import Heartbeats
from assay_server.rpc.handlers.agents import AgentHandler
from assay_server.store.sql import SqlTransaction
from tests.support.server.ingest_box import Box


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "state")
    yield box
    box.close()


@pytest.fixture
def handler(box: Box) -> Iterator[AgentHandler]:
    heartbeats = Heartbeats(box.coordinator)
    yield AgentHandler(box.coordinator, box.publisher, heartbeats, 5_000)
    heartbeats.close()


def test_each_slot_gets_a_run_of_its_own_and_strangers_get_none(box: Box, handler: AgentHandler) -> None:
    first, second = (handler.lease(LeaseRequest("a", "s", slot)) for slot in ("0", "1"))
    assert first.work is not None and second.work is not None
    assert [first.work.key.run_id, second.work.key.run_id] == ["made-1.0000", "made-1.0001"]
    with pytest.raises(ParameterError, match="slot '9'"):
        handler.lease(LeaseRequest("a", "s", "9"))
    assert handler.lease(LeaseRequest("b", "s", "0")) == LeaseAnswer(register_again=True)


def test_a_store_that_refuses_is_told_to_the_slot_that_asked(
    box: Box, handler: AgentHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_arguments: object) -> None:
        raise StorageError("metadata", "the disk refused", "free some")

    monkeypatch.setattr(SqlTransaction, "add_attempt", refused)
    assert handler.lease(LeaseRequest("a", "s", "0")).work is not None  # its lease is there already
    with pytest.raises(StorageError, match="the disk refused"):
        handler.lease(LeaseRequest("a", "s", "1"))
