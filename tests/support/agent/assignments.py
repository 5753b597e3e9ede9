"""Assignments of runs, as the agent's tests give them to profilers and spools."""

from __future__ import annotations

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import BASELINE

WORK = Work(
    key=AttemptKey("c-1.0000", 0, 1, 1),
    campaign_id="c-1",
    workload="w",
    device_kind="V100",
    level="detailed",
    condition=BASELINE,
    profiler="nsight_compute",
    command=CommandSource(("./train", "--epochs", "1"), {}),
)
LOG = AttemptLog(("ncu", "--csv"), {"LC_ALL": "C"}, "said\nthings")


def assignment(run_id: str = "campaign-1.0000", attempt: int = 1) -> Work:
    return Work(
        key=AttemptKey(run_id, 0, attempt, attempt),
        campaign_id="campaign-1",
        workload="w",
        device_kind="V100",
        level="light",
        condition=BASELINE,
        profiler="p",
    )
