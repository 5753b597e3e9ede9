"""The kind of a share of the SMs keeps its meaning on the wire, and changes no document that has none."""

from __future__ import annotations

import pytest

from assay_core.records.wire import condition_from_proto, condition_to_proto
from assay_protos import common_pb2
from assay_sampling.launches.table import BASELINE, Condition, TableMetadata
from assay_server.store import tables
from assay_server.store.model import Run

PARTITION = Condition("none", "base", 50.0, "partition")


@pytest.mark.parametrize("condition", [BASELINE, PARTITION, Condition("none", "none", 50.0)])
def test_a_condition_reaches_the_agent_as_it_is(condition: Condition) -> None:
    wire = condition_to_proto(condition).SerializeToString()
    assert condition_from_proto(common_pb2.Condition.FromString(wire), "c-1") == condition


def test_documents_of_other_shares_are_those_of_earlier_releases() -> None:
    document = {"cache": "none", "clock": "none", "sm_percent": 100.0}
    assert BASELINE.to_dict() == document
    run = Run(
        run_id="c-1.0000",
        campaign_id="c-1",
        ordinal=0,
        workload="w",
        device_kind="V100",
        level="light",
        profiler="recorded",
    )
    assert tables.runs.c.condition.type.write(run.condition) == document
    assert b"sm_share" not in TableMetadata("light", condition=BASELINE).to_json()
    assert Condition(**PARTITION.to_dict()) == PARTITION
