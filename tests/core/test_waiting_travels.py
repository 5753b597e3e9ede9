"""Why runs wait travels with its kind."""

from __future__ import annotations

import pytest

from assay_core.records.campaign import QueueKind, WaitingRuns


@pytest.mark.parametrize("kind", list(QueueKind))
def test_waiting_runs_come_back_as_they_went(kind: QueueKind) -> None:
    sent = WaitingRuns("a V100", "c-1.0000", 2, kind)
    assert WaitingRuns.from_proto(sent.to_proto()) == sent
