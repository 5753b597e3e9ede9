"""What the guided fuzzer feeds (it runs by hand: atheris is no dependency)."""

from __future__ import annotations

from tests.fuzz.guided import records
from tests.fuzz.rpc_messages import methods


def test_it_reads_a_record_of_every_request():
    # Questions without any field are read from any message.
    read = {message.DESCRIPTOR.full_name for message, _ in records()}
    asked = {method.input_type.full_name for method in methods() if method.input_type.fields}

    assert asked - read == {"assay.v1.UploadRequest"}  # it is read piece by piece
    assert len(read) > 40
