"""What a campaign would cost before it runs: runs, slices, passes, hours and bytes for each kind of GPU.

The numbers rest on :class:`Assumptions`, which are guesses to be replaced, not measurements. Pass counts are
those of :mod:`assay_sampling.replay_passes`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay_sampling.replay_passes import PassCount, replay_passes
from assay_server.campaigns.assumptions import Assumptions, assumptions
from assay_server.campaigns.live_spec import cost_before
from assay_server.campaigns.plan import Plan, plan_campaign
from assay_server.campaigns.spec import load_campaign
from assay_server.campaigns.windows import Slicing, Window, cut
from assay_server.store.model import Run, Slice

_SECONDS_AN_HOUR = 3600.0


def forecast_campaign(
    text: str | bytes, file_name: str, base_directory: str, given: Mapping[str, str]
) -> dict[str, Any]:
    """A dry run of a campaign file; nothing is run or written, recordings are only looked for.

    Raises CampaignError naming line and field, ParameterError for an assumption that is not one.
    """
    assumed = assumptions(given)
    campaign = load_campaign(text, file_name)
    plan = plan_campaign(
        campaign, campaign.campaign, base_directory, file_name, lambda run: cost_before(run.counters, assumed)
    )
    # Without a detailed level nothing is cut into slices.
    slicing = campaign.detailed.slicing if campaign.detailed is not None else Slicing(first=1)
    runs = [_run_document(run, slices, slicing, assumed) for run, slices in _with_slices(plan)]
    gpus = [_summed(kind, [r for r in runs if r["device"] == kind]) for kind in _kinds(runs)]
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
    """Recordings, and programs named by a path, that this machine does not have; an agent's might."""
    named = [
        path
        for run in plan.runs
        for path in (run.recorded_path, run.command.argv[0] if run.command is not None else "")
        if os.sep in path
    ]
    return [path for path in dict.fromkeys(named) if not Path(path).exists()]


def _with_slices(plan: Plan) -> list[tuple[Run, list[Slice]]]:
    slices: dict[str, list[Slice]] = {run.run_id: [] for run in plan.runs}
    for piece in plan.slices:
        slices[piece.run_id].append(piece)
    return [(run, slices[run.run_id]) for run in plan.runs]


def _run_document(run: Run, slices: list[Slice], slicing: Slicing, assumed: Assumptions) -> dict[str, Any]:
    planned = [(piece.launch_skip, piece.launch_count or assumed.launches) for piece in slices]
    in_windows = run.command is not None and run.level == "detailed"
    if in_windows and slicing.is_open:
        # It ends with the program at the latest.
        whole = replace(slicing, first=max(assumed.launches, 1))
        planned = list(cut(whole, cost_before(run.counters, assumed)))
    # A window beyond the end of the program holds nothing.
    launches = sum(max(0, min(count, assumed.launches - skip)) for skip, count in planned)
    passes = replay_passes(run.counters)
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
        # Launches, slices, hours and bytes may turn out to be fewer.
        "at_most": in_windows and bool(slicing.is_open or slicing.time_budget_s),
        "skipped_percent": _skipped_percent(run, planned, assumed) if in_windows else 0.0,
        "counters": len(run.counters),
        "passes": passes.passes,
        "passes_exact": passes.exact,
        "launches": launches,
        "hours": _seconds(run, len(planned), launches, passes, assumed) / _SECONDS_AN_HOUR,
        "bytes": round(launches * (assumed.launch_bytes + assumed.counter_bytes * len(run.counters))),
    }


def _skipped_percent(run: Run, windows: list[Window], assumed: Assumptions) -> float:
    """The largest share of a slice's time that goes into launches before it."""
    cost = cost_before(run.counters, assumed)
    return max((cost.skipped_percent(skip, count) for skip, count in windows), default=0.0)


def _seconds(run: Run, slices: int, launches: int, passes: PassCount, assumed: Assumptions) -> float:
    """Every slice of a live run starts its program anew, which runs to its end beside what is profiled."""
    if run.command is None:
        played = launches / assumed.playback_launches_per_second
        return max(played, assumed.program_seconds) if run.recorded_time else played
    if run.level == "light":
        return assumed.start_seconds + assumed.program_seconds * assumed.trace_slowdown
    # One pass needs no copy of the memory.
    restore = assumed.restore_milliseconds if passes.passes > 1 else 0.0
    profiling = launches * (passes.passes * assumed.pass_milliseconds + restore) / 1000.0
    return slices * (assumed.start_seconds + assumed.program_seconds) + profiling


def _kinds(runs: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(run["device"] for run in runs))


def _summed(device: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "device": device,
        "runs": len(runs),
        "slices": sum(run["slices"] for run in runs),
        "launch_passes": sum(run["launches"] * run["passes"] for run in runs),
        "hours": sum(run["hours"] for run in runs),
        "bytes": sum(run["bytes"] for run in runs),
    }
