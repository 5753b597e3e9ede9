"""Repeats until the noise is small: how many more light runs a finished analysis needs, and their plan.

    interval_percent = 100 t(0.975, n - 1) s / (sqrt(n) mean)      of the totals of n repeats

is in the report for each workload and GPU. It falls with sqrt(n), so about n (interval / limit)^2 repeats
are enough; at most the present number is added at once, because s is an estimate too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from assay_core.records.campaign import RunState
from assay_sampling.launches.table import BASELINE
from assay_server.campaign_file.compiled import RepeatRule
from assay_server.store.model import Run

if TYPE_CHECKING:
    from assay_report.model.compared import NoiseEntry

Key = tuple[str, str]  # workload, kind of GPU


def repeats_wanted(noise: Iterable[NoiseEntry], rule: RepeatRule) -> dict[Key, int]:
    """For each workload and GPU whose interval is still too wide, the number of repeats to have.

    ``noise`` is that part of the report.
    """
    from assay_sampling.documents.common import ConditionEntry  # noqa: PLC0415 - loaded with the report

    baseline, repeats_by_key = ConditionEntry.of(BASELINE), {}
    for entry in noise:
        now, interval = entry.repeats, entry.interval_percent
        of_light_runs = (entry.level, entry.condition, entry.under_mps) == ("light", baseline, False)
        if interval is None or not of_light_runs:
            continue
        if interval > rule.until_interval_percent and now < rule.at_most:
            enough = math.ceil(now * (interval / rule.until_interval_percent) ** 2)
            repeats_by_key[entry.workload, entry.device] = min(max(now + 1, enough), 2 * now, rule.at_most)
    return repeats_by_key


def further_runs(runs: Sequence[Run], repeats_by_key: Mapping[Key, int]) -> list[Run]:
    """The missing light runs, numbered after the campaign's runs; failed repeats count as made."""
    made: list[Run] = []
    first_ordinal = max((run.ordinal for run in runs), default=-1) + 1
    light: dict[Key, list[Run]] = {}
    for run in runs:
        if (run.level, run.condition, run.under_mps) == ("light", BASELINE, False):
            light.setdefault((run.workload, run.device_kind), []).append(run)
    for (workload, device_kind), repeats in repeats_by_key.items():
        of_key = light.get((workload, device_kind))
        if not of_key:
            continue
        for repeat in range(max(run.repeat for run in of_key) + 1, repeats):
            ordinal = first_ordinal + len(made)
            run_id = f"{of_key[0].campaign_id}.{ordinal:04d}"
            made.append(
                replace(
                    of_key[0], run_id=run_id, ordinal=ordinal, repeat=repeat,
                    state=RunState.WAITING, failure=None, flags=(),
                )
            )  # fmt: skip
    return made
