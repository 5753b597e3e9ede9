"""What a run that waits is said to wait for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay_core.records.campaign import RunState
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_sampling.launches.table import Condition
from assay_server.campaigns.scheduling.fitting_slots import AWAY_AFTER_MS
from assay_server.store.model import Agent, Run
from tests.support.server.waiting import waiting_for

LIVE = Run(
    run_id="c-1.0000",
    campaign_id="c-1",
    ordinal=0,
    workload="w",
    device_kind="V100",
    level="detailed",
    profiler="nsight_compute",
    device_key="v100",
    synthetic=True,
)
RECORDED = replace(LIVE, profiler="recorded", device_key="")
PARTITION = replace(
    LIVE, level="light", profiler="nsight_systems", synthetic=False, device_kind="H100", device_key="h100",
    condition=Condition("none", "none", 50.0, "partition"),
)  # fmt: skip
GPU = Slot("g", ("nsight_systems",), False, InstalledDevice(name="H100"))
VIRTUAL = Slot("a", ("nsight_compute",), True, InstalledDevice(name="virtual V100"))


def agent(*slots: Slot, seen_at_ms: int = 0, name: str = "box") -> Agent:
    return Agent(name, "s", name, Inventory(), slots, seen_at_ms)


@pytest.mark.parametrize(
    ("run", "slots", "expected"),
    [
        (LIVE, [VIRTUAL], None),
        (
            LIVE,
            [replace(VIRTUAL, synthetic=False)],
            "no agent offers a synthetic V100 with nsight_compute: virtual V100 is measured and the campaign "
            "synthetic",
        ),
        (
            LIVE,
            [replace(VIRTUAL, profilers=("recorded", "nsight_systems"))],
            "no agent offers a synthetic V100 with nsight_compute: its virtual V100 has recorded, "
            "nsight_systems",
        ),
        (
            replace(LIVE, synthetic=False),
            [replace(VIRTUAL, device=InstalledDevice(name="virtual A100")), Slot("r", ("recorded",))],
            "no agent offers a measured V100 with nsight_compute; their GPUs are virtual A100",
        ),
        (
            replace(LIVE, level="light", profiler="auto"),
            [replace(VIRTUAL, profilers=("nsight_compute", "bare"))],
            "no agent offers a synthetic V100 with nsight_systems or cupti: its virtual V100 has "
            "nsight_compute, bare",
        ),
        (replace(LIVE, profiler="auto"), [replace(VIRTUAL, profilers=("cupti", "auto", "bare"))], None),
        (
            LIVE,
            [replace(VIRTUAL, profilers=("cupti", "auto", "bare"))],
            "no agent offers a synthetic V100 with nsight_compute: its virtual V100 has cupti, bare",
        ),
        (LIVE, [], "no agent offers a synthetic V100 with nsight_compute; they have no GPU"),
        (PARTITION, [replace(GPU, sm_partitions=True)], None),
        (
            PARTITION,
            [GPU],
            "no agent offers a measured H100 with nsight_systems and static partitions of its SMs: its H100 "
            "has none (they need Ampere or newer, NVIDIA's MPS of CUDA 13.1, and an agent of this release)",
        ),
        (replace(PARTITION, profiler="recorded", device_key=""), [Slot("r", ("recorded",))], None),
        (RECORDED, [VIRTUAL], "no agent offers the playing of recordings"),
        (RECORDED, [Slot("r", ("recorded",))], None),
        (replace(LIVE, state=RunState.RUNNING), [], None),
    ],
)
def test_what_no_agent_offers_is_said(run: Run, slots: list[Slot], expected: str | None) -> None:
    assert waiting_for([run], [agent(*slots)], 0) == ({} if expected is None else {"c-1.0000": expected})


def test_without_any_agent() -> None:
    assert waiting_for([LIVE], [], 0) == {"c-1.0000": "no agent has registered"}


def test_an_agent_that_went_away_is_named_until_another_offers_the_same() -> None:
    now_ms = 10 * AWAY_AFTER_MS
    gone = agent(VIRTUAL, seen_at_ms=now_ms - AWAY_AFTER_MS - 1, name="old")
    older = agent(VIRTUAL, seen_at_ms=0, name="older")
    assert waiting_for([LIVE], [older, gone], now_ms) == {
        "c-1.0000": "agent old, which offers a synthetic V100 with nsight_compute, was last seen 2 min ago"
    }
    assert waiting_for([LIVE], [gone, agent(VIRTUAL, seen_at_ms=now_ms - AWAY_AFTER_MS)], now_ms) == {}
