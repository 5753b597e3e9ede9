"""Plans a campaign's runs and slices: pure, the same plan for the same file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from assay_core.records.upload import Bundle
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import CommandSource, RecordedSource
from assay_sampling.counters.definitions import COST_COUNTERS
from assay_sampling.errors import CampaignError
from assay_sampling.running.identity import device_key
from assay_server.campaign_file.slices import Window, planned_windows
from assay_server.campaign_file.spec import (
    LIGHT_PROFILERS,
    Campaign,
    ConditionSpec,
    DetailedSpec,
    WorkloadSpec,
)
from assay_server.campaigns.slicing.learned import SliceCosts
from assay_server.store.model import Hold, Run, Slice

RECORDED_PROFILER = "recorded"
BARE_PROFILER = "bare"
# A workload that traces itself: CUPTI serves one profiler per process, so Assay starts no other.
KINETO_PROFILER = "kineto"
DETAILED_PROFILER = "nsight_compute"


@dataclass(frozen=True)
class Plan:
    """The runs of a campaign in the order of its file, and their slices."""

    runs: tuple[Run, ...]
    slices: tuple[Slice, ...]


_WHOLE: tuple[Window, ...] = ((0, 0),)


@dataclass(frozen=True)
class _Base:
    """The base of the names of a plan's runs and files."""

    campaign_id: str
    directory: str
    file_name: str
    costs: SliceCosts
    bundles: Mapping[str, Bundle]


def plan_campaign(
    campaign: Campaign,
    campaign_id: str,
    base_directory: str,
    file_name: str,
    costs: SliceCosts | None = None,
    *,
    bundles: Mapping[str, Bundle] | None = None,
) -> Plan:
    """The runs of every workload in the order of the file; CampaignError for a path without a base.

    A recording is one run per level. A live workload on a kind of GPU has, for each repeat: a bare run if
    asked for, a detailed run of the window in slices for each of its sets of counters (not with
    ``detailed: none``), a light run, and the runs of its conditions
    (:meth:`assay_server.campaign_file.spec.Campaign.condition_runs`). ``costs`` size slices whose
    number of launches the file does not give; None: the assumed costs. With ``detailed.first: auto`` detailed
    runs have no slices yet: these are chosen when the light run has ended. ``bundles``: by folder.
    """
    base = _Base(campaign_id, base_directory, file_name, costs or SliceCosts(), bundles or {})
    runs: list[Run] = []
    slices: list[Slice] = []
    for workload in campaign.workloads:
        make = _recorded_runs if workload.command is None else _live_runs
        for run, windows in make(campaign, workload, base):
            run_id = f"{campaign_id}.{len(runs):04d}"
            holds = (Hold.AFTER,) if workload.after else ()
            runs.append(replace(run, ordinal=len(runs), run_id=run_id, holds=holds))
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
                recorded=RecordedSource(
                    Path(resolved_path(path, base.directory, base.file_name)),
                    recorded_time=campaign.playback == "recorded_time",
                ),
                flags=_assumed(recording.condition),
            )
            yield run, _WHOLE


def _assumed(condition: ConditionSpec) -> tuple[ValidityFlag, ...]:
    """Recordings do not tell their condition, so keys that the file leaves out are assumed."""
    names = condition.assumed()
    if not names:
        return ()
    return (ValidityFlag("condition_assumed", f"the campaign file does not say: {', '.join(names)}"),)


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
            "placement": campaign.placement_of(workload),
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
            for beside in campaign.condition_runs():
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
    if detailed.slicing.by_light:
        return ()  # chosen once the light run is there
    return tuple(planned_windows(detailed.slicing, base.costs.of(run)))


def _run(campaign: Campaign, base: _Base, **fields: Any) -> Run:
    """A run under the baseline, without its number."""
    return Run(run_id="", campaign_id=base.campaign_id, ordinal=0, synthetic=campaign.synthetic, **fields)


def _command(workload: WorkloadSpec, base: _Base) -> CommandSource:
    """The command; a program given by a path is relative to the file's folder."""
    own = CommandSource(
        argv=tuple(workload.command or ()),
        environment=dict(workload.environment),
        timeout_s=float(workload.timeout_s or 0.0),
        memory_limit_bytes=workload.memory_limit_bytes or 0,
        kineto_file=workload.kineto or "",
        operations=workload.unit == "operation",
        light_limit_s=workload.light_limit_s or 0,
    )
    if workload.bundle is not None:  # it runs in its files, wherever an agent unpacks them
        return replace(own, bundle=base.bundles.get(workload.bundle))
    if not PurePosixPath(base.directory).is_absolute():
        raise CampaignError(
            base.file_name,
            f"the workload {workload.name!r} runs its command in the file's folder, which was not given",
            "submit the file by its path",
        )
    program, *arguments = workload.command or [""]
    if "/" in program or program.endswith(".toml"):
        program = resolved_path(program, base.directory, base.file_name)
    return replace(
        own,
        argv=(program, *arguments),
        working_directory=base.directory,
        processes=workload.processes or 0,
    )


def resolved_path(path: str, base_directory: str, file_name: str) -> str:
    """A path of the file as an absolute one; raises CampaignError for a relative path without a base."""
    pure = PurePosixPath(path)
    if pure.is_absolute():
        return str(pure)
    if not PurePosixPath(base_directory).is_absolute():
        raise CampaignError(
            file_name,
            f"the path {path!r} is relative, but the folder of the file was not given",
            "give an absolute path",
        )
    return str(PurePosixPath(base_directory) / pure)


def next_number(taken: list[int]) -> int:
    """The smallest number from 1 that is not taken: campaign ids are ``<name>-<number>``."""
    used = set(taken)
    return next(number for number in range(1, len(used) + 2) if number not in used)
