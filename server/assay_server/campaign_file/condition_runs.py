"""The runs that conditions add to those under the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from assay_sampling.launches.table import Condition
from assay_server.campaign_file.live_spec import LiveConditionSpec


@dataclass(frozen=True)
class ConditionRun:
    """A run that conditions add to those under the baseline; detailed ones are made in one pass."""

    level: Literal["detailed", "light"]
    condition: Condition
    under_mps: bool = False


def condition_runs(
    conditions: Sequence[LiveConditionSpec], *, light_only: bool = False
) -> tuple[ConditionRun, ...]:
    """The runs of a repeat under these conditions, each once.

    A locked clock adds a detailed and a light run, flushed caches a detailed run, a share of the SMs a light
    run. Each also adds the run that it is compared with under the same clock: the detailed run with warm
    caches, or the light run at 100 % under the same kind of MPS daemon. Shares come last.
    With ``light_only`` detailed runs are left out.
    """
    runs: list[ConditionRun] = []
    shares = [spec.condition() for spec in conditions if spec.sm_percent < 100]
    for spec in conditions:
        condition = spec.condition()
        if spec.sm_percent < 100:
            continue
        runs.append(ConditionRun("detailed", condition))
        if spec.flushed and spec.clock != "none":
            runs.append(ConditionRun("detailed", replace(condition, cache="none")))
        elif not spec.flushed:
            runs.append(ConditionRun("light", condition))
    runs += [ConditionRun("light", condition, under_mps=True) for condition in shares]
    whole = dict.fromkeys(replace(condition, sm_percent=100.0, sm_share="limit") for condition in shares)
    runs += [ConditionRun("light", condition, under_mps=True) for condition in whole]
    return tuple(dict.fromkeys(run for run in runs if run.level == "light" or not light_only))
