"""Answers of a server, as the verbs show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay_protos import campaign_pb2, common_pb2
from tests.support.client.scripted_server import status

Assay = Callable[..., Any]
FAILURE = common_pb2.Failure(
    failure_class="input_unreadable",
    subject="/data/cut.json.gz",
    cause="the file ends in the middle",
    remedy="copy it again",
)


def run_detail() -> campaign_pb2.RunDetail:
    """A run whose first attempt failed."""
    detail = campaign_pb2.RunDetail(run=status("done", 1).runs[0], files=["c-1.0000/slice-00000.parquet"])
    detail.attempts.add(
        key=common_pb2.AttemptKey(run_id="c-1.0000", slice=0, attempt=0, token=4),
        state="ATTEMPT_STATE_FAILED",
        agent="box-1",
        slot="recorded-0",
        leased_at_ms=1_700_000_000_000,
        command=["play", "a file.sqlite"],
        environment={"PATH": "/usr/bin", "HOME": "/root"},
        log="first line\nsecond \x1b[31mline",
        failure=FAILURE,
    )
    return detail


REPORT = {
    "format_version": 2,
    "campaign": {"id": "c-1", "name": "c", "synthetic": True, "seed": 3},
    "versions": {},
    "runs": [],
    "failed_runs": [
        {
            "run_id": "c-1.0001",
            "workload": "training",
            "device": "V100",
            "level": "detailed",
            "condition": {"cache": "none", "clock": "none", "sm_percent": 100.0},
            "repeat": 0,
            "reason": "the file ends in the middle",
        }
    ],
    "summary": [],
    "rows": [],
    "selections": {},
}
