"""Runs under several conditions, and their analysis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from assay_sampling.launches.table import BASELINE, Condition, Device
from assay_server.analysis.pipeline import analyse
from assay_server.analysis.runs.request import AnalysisRequest, RunData

StoreRun = Callable[..., RunData]
Counters = Callable[[Sequence[float]], dict[str, np.ndarray]]
KERNELS = ["a", "a", "b", "a", "a", "b", "a", "a"]
FREE = [10, 20, 30, 40, 50, 60, 70, 80]
AT_ALL = [11, 21, 31, 41, 51, 61, 71, 81]
AT_HALF = [20, 30, 60, 70, 100, 90, 140, 150]
HALF, FLUSHED = Condition("none", "none", 50.0), Condition("all", "none", 100.0)
SYSTEMATIC = (("systematic", {"launches": 4, "start": 0}),)


class Lab:
    """Live runs on one kind of GPU of 81 SMs."""

    def __init__(self, store: StoreRun, counters: Counters) -> None:
        self._store, self._counters = store, counters

    def light(
        self,
        durations: Sequence[int],
        condition: Condition = BASELINE,
        *,
        gpu: str = "V100",
        under_mps: bool = False,
        kernels: Sequence[str] = KERNELS,
        **run: Any,
    ) -> RunData:
        device = Device(0, gpu, f"GPU-{gpu}", "7.0", 81)
        return self._store(
            gpu, "light", kernels, duration_ns=list(durations), device=np.zeros(len(durations), np.int32),
            metadata={"condition": condition, "devices": (device,)},
            run={"live": True, "condition": condition, "under_mps": under_mps, **run},
        )  # fmt: skip

    def detailed(
        self,
        cycles: Sequence[float],
        condition: Condition = BASELINE,
        *,
        gpu: str = "V100",
        counted: bool = True,
        kernels: Sequence[str] = KERNELS,
        **run: Any,
    ) -> RunData:
        more = self._counters([5.0] * len(cycles)) if counted else {"instructions": [5.0] * len(cycles)}
        return self._store(
            gpu, "detailed", kernels[: len(cycles)], cycles_gpc_avg=list(cycles), **more,
            metadata={"condition": condition}, run={"live": True, "condition": condition, **run},
        )  # fmt: skip


def analysed(*runs: RunData, methods: Any = SYSTEMATIC, **changes: Any) -> dict[str, Any]:
    return analyse(replace(AnalysisRequest("c-1", "c", methods=methods, runs=runs), **changes)).to_document()
