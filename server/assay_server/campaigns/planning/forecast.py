"""Forecast of a campaign's cost: runs, slices, passes, hours and bytes for each kind of GPU.

The numbers come from :class:`Assumptions`, which are guesses to replace, not measurements. Pass counts come
from :mod:`assay_sampling.counters.replay_passes`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay_sampling.counters.replay_passes import replay_passes
from assay_server.campaign_file.compiled import Slicing
from assay_server.campaign_file.reading import CampaignFile
from assay_server.campaign_file.slices import (
    MOST_SLICES_OF_A_RUN,
    Assumptions,
    assumed_cost,
    assumptions,
    cut,
)
from assay_server.campaigns.planning.plan import Plan, plan_campaign
from assay_server.campaigns.slicing.published import SliceCosts
from assay_server.store.model import Run, Slice

_SECONDS_AN_HOUR = 3600.0


def forecast_campaign(file: CampaignFile, base_directory: str, given: Mapping[str, str]) -> dict[str, Any]:
    """A dry run of a campaign file: runs and writes nothing, only checks that recordings exist.

    Raises CampaignError for a path without a base, ParameterError for an unknown assumption.
    """
    assumed = assumptions(given)
    campaign = file.campaign
    costs = SliceCosts(assumed=assumed)
    plan = plan_campaign(campaign, campaign.campaign, base_directory, file.name, costs)
    # Without a detailed level there are no slices to cut.
    slicing = campaign.detailed.slicing if campaign.detailed is not None else Slicing(first=1)
    slices: dict[str, list[Slice]] = {run.run_id: [] for run in plan.runs}
    for piece in plan.slices:
        slices[piece.run_id].append(piece)
    runs = [_run_document(run, slices[run.run_id], slicing, assumed) for run in plan.runs]
    kinds = dict.fromkeys(run["device"] for run in runs)
    gpus = [_summed(kind, [run for run in runs if run["device"] == kind]) for kind in kinds]
    return {
        "campaign": campaign.campaign,
        "synthetic": campaign.synthetic,
        "light_only": campaign.light_only,
        "runs": runs,
        "gpus": gpus,
        "total": _summed("", runs),
        "methods": [method.name for method in campaign.methods],
        "missing_files": missing_files(plan),
        "assumptions": {
            name: {"value": value, "meaning": Assumptions.model_fields[name].description}
            for name, value in assumed.model_dump().items()
        },
    }


def missing_files(plan: Plan) -> list[str]:
    """Recordings, and programs named by a path, that this machine lacks; an agent's machine may have them."""
    named = [
        path
        for run in plan.runs
        for path in (
            str(run.recorded.path) if run.recorded else "",
            run.command.argv[0] if run.command else "",
        )
        if os.sep in path
    ]
    return [path for path in dict.fromkeys(named) if not Path(path).exists()]


def _run_document(run: Run, slices: list[Slice], slicing: Slicing, assumed: Assumptions) -> dict[str, Any]:
    passes = replay_passes(run.counters)
    cost = assumed_cost(passes.passes, assumed)
    planned = [(piece.launch_skip, piece.launch_count or assumed.launches) for piece in slices]
    if run.in_windows and slicing.is_open:
        # The window ends with the program at the latest.
        whole = replace(slicing, first=max(assumed.launches, 1))
        planned = list(cut(whole, cost, most=MOST_SLICES_OF_A_RUN))
    # A window beyond the end of the program is empty.
    launches = sum(max(0, min(count, assumed.launches - skip)) for skip, count in planned)
    # The largest share of a slice's time that goes into launches before it.
    skipped_percent = max((cost.skipped_percent(skip, count) for skip, count in planned), default=0.0)
    return {
        "run": run.ordinal,
        "workload": run.workload,
        "device": run.device_kind,
        "level": run.level,
        "profiler": run.profiler,
        "condition": run.condition.to_dict(),
        "under_mps": run.under_mps,
        "repeat": run.repeat,
        "slices": len(planned),
        # Launches, slices, hours and bytes are upper bounds.
        "at_most": run.in_windows and bool(slicing.is_open or slicing.time_budget_s),
        "skipped_percent": skipped_percent if run.in_windows else 0.0,
        "counters": len(run.counters),
        "passes": passes.passes,
        "passes_exact": passes.exact,
        "launches": launches,
        "hours": assumed_seconds(run, len(planned), launches, assumed) / _SECONDS_AN_HOUR,
        "bytes": round(launches * (assumed.launch_bytes + assumed.counter_bytes * len(run.counters))),
    }


def assumed_seconds(run: Run, slices: int, launches: int, assumed: Assumptions) -> float:
    """How long slices of a run take by assumptions.

    Every slice of a live run starts its program again; the program also runs its unprofiled part.
    """
    if run.command is None:
        played = launches / assumed.playback_launches_per_second
        return max(played, assumed.program_seconds) if run.recorded and run.recorded.recorded_time else played
    if run.level == "light":
        return assumed.start_seconds + assumed.program_seconds * assumed.trace_slowdown
    passes = replay_passes(run.counters)
    # One pass needs no copy of the memory.
    restore = assumed.restore_milliseconds if passes.passes > 1 else 0.0
    profiling = launches * (passes.passes * assumed.pass_milliseconds + restore) / 1000.0
    return slices * (assumed.start_seconds + assumed.program_seconds) + profiling


def _summed(device: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "device": device,
        "runs": len(runs),
        "slices": sum(run["slices"] for run in runs),
        "launch_passes": sum(run["launches"] * run["passes"] for run in runs),
        "hours": sum(run["hours"] for run in runs),
        "bytes": sum(run["bytes"] for run in runs),
    }
