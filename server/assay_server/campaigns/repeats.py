"""Repeat until the noise is small: how many more light runs a finished analysis calls for, and their plan.

    interval_percent = 100 t(0.975, n - 1) s / (sqrt(n) mean)      of the totals of n repeats

is what the report states of each workload and GPU. Its half-width falls with sqrt(n), so about
n (interval / limit)^2 repeats are enough; at most twice as many as there are come in one go, for s is an
estimate too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay_sampling.launch_table import BASELINE
from assay_server.campaigns.live_spec import RepeatSpec
from assay_server.store.model import Run, RunState

Key = tuple[str, str]  # workload, kind of GPU


def repeats_wanted(report: Mapping[str, Any], spec: RepeatSpec) -> dict[Key, int]:
    """For each workload and GPU whose interval is still too wide, how many repeats there should be."""
    wanted = {}
    for entry in report.get("noise", ()):
        if not _counts(entry):
            continue
        now, interval = entry["repeats"], entry["interval_percent"]
        if interval > spec.until_interval_percent and now < spec.at_most:
            enough = math.ceil(now * (interval / spec.until_interval_percent) ** 2)
            wanted[entry["workload"], entry["device"]] = min(max(now + 1, enough), 2 * now, spec.at_most)
    return wanted


def _counts(entry: Mapping[str, Any]) -> bool:
    """Whether an entry is of light runs under the baseline, with a number."""
    at_baseline = entry["condition"] == BASELINE.to_dict() and not entry["under_mps"]
    return entry["level"] == "light" and at_baseline and entry.get("interval_percent") is not None


def further_runs(runs: Sequence[Run], wanted: Mapping[Key, int]) -> list[Run]:
    """The light runs that are missing, numbered behind the campaign's; repeats that failed count as made."""
    made: list[Run] = []
    for (workload, device_kind), repeats in wanted.items():
        of_key = [run for run in runs if _is_light_baseline(run, workload, device_kind)]
        if not of_key:
            continue
        for repeat in range(max(run.repeat for run in of_key) + 1, repeats):
            ordinal = max(run.ordinal for run in runs) + 1 + len(made)
            run_id = f"{of_key[0].campaign_id}.{ordinal:04d}"
            made.append(
                replace(
                    of_key[0], run_id=run_id, ordinal=ordinal, repeat=repeat,
                    state=RunState.WAITING, failure=None, flags=(),
                )
            )  # fmt: skip
    return made


def _is_light_baseline(run: Run, workload: str, device_kind: str) -> bool:
    return (run.workload, run.device_kind, run.level, run.condition, run.under_mps) == (
        workload, device_kind, "light", BASELINE, False,
    )  # fmt: skip
