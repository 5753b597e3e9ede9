"""Documents of a lab are those of the published models, also where something is hidden or missing."""

from __future__ import annotations

import json

from assay_client.remote.lab_documents import agents_document, gpus_document, queue_document
from assay_client.remote.lab_model import AgentsDocument, GpusDocument, QueueDocument
from assay_core.records.campaign import Estimate
from assay_core.records.lab import LabAgent, LabAgents, LabQueue, LabSlot, QueuedRuns, QueueKind, SlotHealth
from assay_core.records.machine import InstalledDevice, Inventory, Slot

GPU = InstalledDevice(0, "RTX 3070", "GPU-0", "8.6", 46, 8 << 30)
LEFT_OUT = InstalledDevice(1, "Old", "GPU-1", left_out="too old for CUDA; replace it")
BOX = Inventory("host", "1", 8, 1 << 34, (GPU, LEFT_OUT), "570.1", "12.8")
BUSY = LabSlot(Slot("GPU-0", ("ncu",), device=GPU), SlotHealth.READY, leased_at_ms=1_000)
LAB = LabAgents((LabAgent("a", "box", BOX, ("rack=3",), True, 2_000, 0, (BUSY,)),))
HIDDEN = QueuedRuns(
    campaign_id="", first_run_id="", device_kind="V100", profiler="ncu", runs=3, kind=QueueKind.QUEUED,
    reason="others measure", ahead=("", "c-1"), runs_ahead=4, estimate=Estimate(False, 0, "x"),
)  # fmt: skip


def test_a_run_that_the_caller_may_not_see_has_a_time_and_no_name() -> None:
    [slot] = agents_document(LAB)["agents"][0]["slots"]
    assert (slot["run_id"], slot["slice"], slot["leased_at"]) == (None, None, "1970-01-01T00:00:01.000+00:00")
    assert agents_document(LAB)["agents"][0]["since"] is None


def test_a_gpu_that_is_not_offered_says_why() -> None:
    offered, left_out = gpus_document(LAB)["gpus"]
    assert (offered["health"], offered["sm_count"], offered["why"]) == ("ready", 46, "")
    assert (left_out["health"], left_out["sm_count"]) == (None, None)
    assert left_out["why"] == "too old for CUDA; replace it"


def test_names_that_the_caller_may_not_know_are_null_in_the_queue() -> None:
    found = queue_document(LabQueue((HIDDEN,), 2))
    [queued] = found["queue"]
    assert (queued["campaign_id"], queued["first_run_id"], queued["ahead"]) == (None, None, [None, "c-1"])
    assert queued["eta"] == {
        "remaining_ms": None,
        "low_ms": None,
        "high_ms": None,
        "assumed": False,
        "at_least": False,
        "missing": "x",
    }
    assert found["campaigns_left_out"] == 2


def test_a_document_travels_as_json_and_is_the_published_model() -> None:
    for document, model in (
        (agents_document(LAB), AgentsDocument),
        (gpus_document(LAB), GpusDocument),
        (queue_document(LabQueue((HIDDEN,))), QueueDocument),
    ):
        assert model.model_validate_json(json.dumps(document)).to_dict() == document
