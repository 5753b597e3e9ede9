"""Records convert their fields by name: what an unreadable one is about, and what no field may be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import ChangedFile
from assay_core.records.identity import Issued, TokenAsked
from assay_core.records.lease import LeaseRequest
from assay_core.records.wire import Record, WireError
from assay_protos import campaign_pb2, common_pb2, identity_pb2


def test_an_unknown_number_is_about_what_the_record_names_first() -> None:
    with pytest.raises(WireError, match=r"^c-1\.0000: its FileChange has the number 77"):
        ChangedFile.from_proto(campaign_pb2.ChangedFile(run_id="c-1.0000", file="x", what=77))


def test_an_unknown_number_in_front_is_about_the_message() -> None:
    with pytest.raises(WireError, match=r"^MakeTokenRequest: its Role has the number 77"):
        TokenAsked.from_proto(identity_pb2.MakeTokenRequest(role=77))


def test_a_field_whose_name_differs_is_renamed_on_the_wire() -> None:
    message = AttemptKey("c-1.0000", 2, 3, 4).to_proto()
    assert message == common_pb2.AttemptKey(run_id="c-1.0000", slice=2, attempt=3, token=4)


def test_a_record_makes_its_own_message() -> None:
    assert type(LeaseRequest("a", "s", "g").to_proto()) is LeaseRequest.message_type


def test_a_field_that_no_conversion_knows_is_refused() -> None:
    @dataclass(frozen=True)
    class Odd(Record[campaign_pb2.BundleFolder]):
        folder: complex

    with pytest.raises(TypeError, match="no field of a record can be a"):
        Odd(1j).to_proto()


@pytest.mark.parametrize("module", ["campaign", "identity", "work"])
def test_a_module_of_records_converts_where_no_other_is_imported(module: str) -> None:
    """A conversion that another module must be imported for first would fail in some programs."""
    convert = (
        "import importlib, inspect, sys\n"
        "from assay_core.records import wire\n"
        "module = importlib.import_module(sys.argv[1])\n"
        "kinds = [each for _, each in inspect.getmembers(module, inspect.isclass)]\n"
        "kinds = [each for each in kinds if issubclass(each, wire.Record) and each is not wire.Record]\n"
        "assert [wire.fields_of(each) for each in kinds]\n"
    )
    subprocess.run([sys.executable, "-c", convert, f"assay_core.records.{module}"], check=True)


def test_a_record_like_others_has_the_fields_of_the_first_that_has_one() -> None:
    first, second = SimpleNamespace(serial="first", other=1), SimpleNamespace(serial="second", issued_at_ms=2)
    issued = Issued.like(first, second, expires_at_ms=3)
    assert issued == Issued("first", issued_at_ms=2, expires_at_ms=3)
