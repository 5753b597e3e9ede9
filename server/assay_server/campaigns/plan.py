"""From a campaign to its runs and slices: pure, the same plan for the same file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from assay_sampling.counters import COST_COUNTERS
from assay_sampling.errors import CampaignError
from assay_sampling.identity import device_key
from assay_server.campaigns.live_spec import (
    DetailedSpec,
    LightLevel,
    condition_runs,
    cost_before,
)
from assay_server.campaigns.slice_cost import SliceCost
from assay_server.campaigns.spec import Campaign, ConditionSpec, WorkloadSpec, resolved_path
from assay_server.campaigns.windows import Window
from assay_server.store.model import AnalysisSettings, Command, Flag, Run, Slice

RECORDED_PROFILER = "recorded"
BARE_PROFILER = "bare"
# A workload that traces itself: CUPTI serves one profiler a process, so no other is put under it.
KINETO_PROFILER = "kineto"
DETAILED_PROFILER = "nsight_compute"
# "auto" is the agent's choice: Nsight Systems where the box has it, until our tracer has been shown to agree
# with it, launch for launch, on a GPU; else the tracer, with a flag.
LIGHT_PROFILERS: dict[LightLevel, str] = {
    "nsys": "nsight_systems",
    "cupti": "cupti",
    "auto": "auto",
}


@dataclass(frozen=True)
class Plan:
    """The runs of a campaign in the order of its file, and their slices."""

    runs: tuple[Run, ...]
    slices: tuple[Slice, ...]


# What slices of a run are expected to cost; None where none like them has been made.
CostOf = Callable[[Run], SliceCost | None]
_WHOLE: tuple[Window, ...] = ((0, 0),)


@dataclass(frozen=True)
class _Base:
    """What the names of a plan's runs and files start from."""

    campaign_id: str
    directory: str
    file_name: str
    cost_of: CostOf


def _not_measured(run: Run) -> SliceCost | None:
    return None


def plan_campaign(
    campaign: Campaign,
    campaign_id: str,
    base_directory: str,
    file_name: str,
    cost_of: CostOf = _not_measured,
) -> Plan:
    """The runs of every workload in the order of the file; CampaignError for a path without a base.

    A recording is one run a level. A live workload on a kind of GPU is, for each repeat: a bare run where
    asked for, a detailed run of the window in slices for each of its sets of counters (none with
    ``detailed: none``), a light run, and the runs of its conditions
    (:func:`assay_server.campaigns.live_spec.condition_runs`). ``cost_of`` sizes slices
    for which the file does not say how many launches they have.
    """
    base = _Base(campaign_id, base_directory, file_name, cost_of)
    runs: list[Run] = []
    slices: list[Slice] = []
    for workload in campaign.workloads:
        make = _recorded_runs if workload.command is None else _live_runs
        for run, windows in make(campaign, workload, base):
            run_id = f"{campaign_id}.{len(runs):04d}"
            runs.append(replace(run, ordinal=len(runs), run_id=run_id))
            slices += [Slice(run_id, index, *window) for index, window in enumerate(windows)]
    return Plan(tuple(runs), tuple(slices))


def _recorded_runs(
    campaign: Campaign, workload: WorkloadSpec, base: _Base
) -> Iterator[tuple[Run, tuple[Window, ...]]]:
    for recording in workload.recordings:
        for level, path in recording.levels():
            run = _run(
                campaign,
                base,
                workload=workload.name,
                device_kind=recording.device,
                level=level,
                profiler=RECORDED_PROFILER,
                condition=recording.condition.condition(),
                recorded_path=resolved_path(path, base.directory, base.file_name),
                recorded_time=campaign.playback == "recorded_time",
                flags=_assumed(recording.condition),
            )
            yield run, _WHOLE


def _assumed(condition: ConditionSpec) -> tuple[Flag, ...]:
    """No recording tells its condition, so what the file does not say of it is assumed, not known."""
    names = condition.assumed()
    if not names:
        return ()
    return (Flag("condition_assumed", f"the campaign file does not say: {', '.join(names)}"),)


def _live_runs(
    campaign: Campaign, workload: WorkloadSpec, base: _Base
) -> Iterator[tuple[Run, tuple[Window, ...]]]:
    command = _command(workload, base)
    for gpu in campaign.gpus:
        on_gpu = {
            "workload": workload.name,
            "device_kind": gpu,
            "device_key": device_key(gpu),
            "command": command,
        }
        profiler = KINETO_PROFILER if workload.kineto else LIGHT_PROFILERS[campaign.light]
        light = _run(campaign, base, level="light", profiler=profiler, **on_gpu)
        detailed = [
            _run(campaign, base, level="detailed", profiler=DETAILED_PROFILER, counters=counters, **on_gpu)
            for counters in (campaign.detailed.counters_of_sets() if campaign.detailed else ())
        ]
        bare = replace(light, level="bare", profiler=BARE_PROFILER)
        for repeat in range(campaign.repeats):
            if campaign.bare:
                yield replace(bare, repeat=repeat), _WHOLE
            for run in detailed:
                yield replace(run, repeat=repeat), _windows(campaign.detailed, run, base)
            yield replace(light, repeat=repeat), _WHOLE
            for beside in condition_runs(campaign.conditions, light_only=campaign.light_only):
                changes: dict[str, Any] = {"condition": beside.condition, "repeat": repeat}
                if beside.level == "light":
                    yield replace(light, under_mps=beside.under_mps, **changes), _WHOLE
                else:
                    costs = replace(detailed[0], counters=COST_COUNTERS, **changes)
                    yield costs, _windows(campaign.detailed, costs, base)
        for repeat in range(campaign.repeats, campaign.light_repeats):
            yield replace(light, repeat=repeat), _WHOLE


def _windows(detailed: DetailedSpec | None, run: Run, base: _Base) -> tuple[Window, ...]:
    assert detailed is not None  # without it no detailed run is planned
    return tuple(detailed.windows(base.cost_of(run) or cost_before(run.counters)))


def _run(campaign: Campaign, base: _Base, **fields: Any) -> Run:
    """A run under the baseline, without its number."""
    return Run(run_id="", campaign_id=base.campaign_id, ordinal=0, synthetic=campaign.synthetic, **fields)


def _command(workload: WorkloadSpec, base: _Base) -> Command:
    """The command, its program found from the folder of the file where it is named by a path."""
    if not PurePosixPath(base.directory).is_absolute():
        raise CampaignError(
            base.file_name,
            f"the workload {workload.name!r} has a command, and the folder of the file, where it would run, "
            "was not given",
            "submit the file by its path",
        )
    program, *arguments = workload.command or [""]
    if "/" in program or program.endswith(".toml"):
        program = resolved_path(program, base.directory, base.file_name)
    return Command(
        argv=(program, *arguments),
        environment=dict(workload.environment),
        working_directory=base.directory,
        timeout_s=float(workload.timeout_s or 0.0),
        memory_limit_bytes=workload.memory_limit_bytes or 0,
        kineto_file=workload.kineto or "",
    )


def analysis_settings(campaign: Campaign) -> AnalysisSettings:
    """What the analysis is told, from the file."""
    return AnalysisSettings(
        seed=campaign.seed,
        methods=tuple((method.name, dict(method.parameters)) for method in campaign.methods),
        reference=campaign.analysis.reference,
        memory_limit_bytes=campaign.analysis.memory_limit_bytes,
    )


def next_number(taken: list[int]) -> int:
    """The smallest number from 1 that is not taken: campaign ids are ``<name>-<number>``."""
    used = set(taken)
    return next(number for number in range(1, len(used) + 2) if number not in used)
