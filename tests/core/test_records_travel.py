"""What one program sends is what the other reads: every record, through its bytes on the wire."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from assay_core.records import (
    campaign,
    work,
)
from assay_core.records.error_metadata import MOST_BYTES, MOST_DIFFERENCES, ErrorMetadata
from assay_core.records.failure import Failure, failure
from assay_core.records.wire import WireError, condition_from_proto, condition_to_proto
from assay_protos import agent_pb2, campaign_pb2, common_pb2
from assay_sampling import errors
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.identity import Condition
from tests.support.wire_records import (
    ASKED,
    COMMAND,
    DEVICE,
    ENTRY,
    KEY,
    LAB_AGENT,
    LAB_SLOT,
    LOG,
    QUEUED,
    RECORD_FILE,
    RECORDS,
    RUN,
    SLOT,
    STATUS,
    WHY,
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was_sent(record: Any) -> None:
    message = record.to_proto()
    read = type(message).FromString(message.SerializeToString())
    assert type(record).from_proto(read) == record


def test_the_examples_leave_no_field_of_a_message_unsaid() -> None:
    """An example with a default would not notice a field that its conversion forgets."""
    for message in (
        STATUS.to_proto(),
        RUN.to_proto(),
        DEVICE.to_proto(),
        SLOT.to_proto(),
        LOG.to_proto(),
        COMMAND.to_proto(),
        RECORD_FILE.to_proto(),
        ENTRY.to_proto(),
        LAB_SLOT.to_proto(),
        LAB_AGENT.to_proto(),
        QUEUED.to_proto(),
        ASKED.to_proto(),
    ):
        assert {each.name for each, _ in message.ListFields()} == set(message.DESCRIPTOR.fields_by_name)


def test_what_a_tool_said_stays_in_its_process() -> None:
    told = failure(FailureClass.HANG, "run", tool_said="secret words")
    assert "secret" not in str(told.to_proto()) + json.dumps(told.to_dict())
    assert set(told.to_dict()) == {each.name for each in fields(Failure)} - {"tool_said"}


def test_a_class_that_only_another_release_knows_is_kept_and_treated_as_internal() -> None:
    read = Failure.from_proto(WHY.to_proto())
    assert (read.failure_class, read.known_class) == ("of_a_newer_release", FailureClass.INTERNAL)
    assert Failure.from_proto(common_pb2.Failure()).failure_class == "internal"


@pytest.mark.parametrize(
    "message",
    [
        agent_pb2.Work(key=KEY.to_proto()),
        agent_pb2.Work(key=KEY.to_proto(), run=agent_pb2.RunSpec(level=77)),
        agent_pb2.Work(key=common_pb2.AttemptKey(run_id="../x"), run=agent_pb2.RunSpec(level="LEVEL_LIGHT")),
    ],
    ids=["no level", "a level of another release", "a key that leads elsewhere"],
)
def test_work_that_cannot_be_read_names_the_thing_and_the_remedy(message: agent_pb2.Work) -> None:
    with pytest.raises(WireError, match=r"run .*: its .*; run the same release of Assay"):
        work.Work.from_proto(message)


def test_a_status_of_another_release_is_refused() -> None:
    with pytest.raises(
        WireError, match="c-1: its CampaignState has the number 0, which is not one of running"
    ):
        campaign.CampaignStatus.from_proto(campaign_pb2.CampaignStatus(campaign_id="c-1"))


def test_a_condition_that_is_not_recorded_stays_so() -> None:
    assert condition_from_proto(common_pb2.Condition(), "x") == Condition()
    assert condition_to_proto(Condition()).ListFields()[0][0].name == "sm_share"


def test_an_error_is_cut_to_what_metadata_hold_and_comes_back_as_its_kind() -> None:
    error = errors.MisalignedError("s" * 9_000, "é" * 9_000, "mend it", ("launch 3",))
    data = ErrorMetadata.of(error).encode()
    assert len(data) <= MOST_BYTES
    told = ErrorMetadata.decode(data)
    assert told is not None and type(told.error()) is errors.MisalignedError
    assert told.error().remedy == "mend it"


def test_the_differences_of_recordings_travel_as_a_list_of_bounded_length() -> None:
    error = errors.MisalignedError("a and b", "they differ", "record again", ("launch 3", "launch 5"))
    told = ErrorMetadata.decode(ErrorMetadata.of(error).encode())
    assert told is not None
    again = told.error()
    assert isinstance(again, errors.MisalignedError)
    assert (again.cause, again.differences) == ("they differ", ("launch 3", "launch 5"))
    assert (str(again), again.to_dict()) == (str(error), error.to_dict())
    many = errors.MisalignedError("a", "b", "c", tuple(f"{n}: " + "é" * 900 for n in range(1000)))
    data = ErrorMetadata.of(many).encode()
    cut = ErrorMetadata.decode(data)
    assert len(data) <= MOST_BYTES and cut is not None and len(cut.differences) == MOST_DIFFERENCES
    assert cut.differences[0].startswith("0: é")


def test_an_error_of_one_program_travels_as_the_nearest_kind_that_all_know() -> None:
    class Ours(errors.StorageError):
        """Known to nobody else."""

    assert ErrorMetadata.of(Ours("a", "b")).kind == "StorageError"
