"""Plans a campaign's runs and slices: pure, the same plan for the same file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    WorkloadSpec,
)
from assay_server.campaigns.slicing.published import SliceCosts
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
    planner = _Planner(campaign, campaign_id, base_directory, file_name, costs or SliceCosts(), bundles or {})
    runs: list[Run] = []
    slices: list[Slice] = []
    for workload in campaign.workloads:
        make = planner.recorded_runs if workload.command is None else planner.live_runs
        for run, windows in make(workload):
            run_id = f"{campaign_id}.{len(runs):04d}"
            holds = (Hold.AFTER,) if workload.after else ()
            runs.append(replace(run, ordinal=len(runs), run_id=run_id, holds=holds))
            slices += [Slice(run_id, index, *window) for index, window in enumerate(windows)]
    return Plan(tuple(runs), tuple(slices))


@dataclass(frozen=True)
class _Planner:
    """Makes the runs of a campaign, without their numbers, and the windows of each."""

    campaign: Campaign
    campaign_id: str
    directory: str
    file_name: str
    costs: SliceCosts
    bundles: Mapping[str, Bundle]

    def recorded_runs(self, workload: WorkloadSpec) -> Iterator[tuple[Run, Sequence[Window]]]:
        for recording in workload.recordings:
            for level, path in recording.levels():
                run = self._run(
                    workload=workload.name,
                    device_kind=recording.device,
                    level=level,
                    profiler=RECORDED_PROFILER,
                    condition=recording.condition.condition(),
                    recorded=RecordedSource(
                        Path(resolved_path(path, self.directory, self.file_name)),
                        recorded_time=self.campaign.playback == "recorded_time",
                    ),
                    flags=_assumed(recording.condition),
                )
                yield run, _WHOLE

    def live_runs(self, workload: WorkloadSpec) -> Iterator[tuple[Run, Sequence[Window]]]:
        campaign, command = self.campaign, self._command(workload)
        for gpu in campaign.gpus:
            light = self._run(
                workload=workload.name,
                device_kind=gpu,
                device_key=device_key(gpu),
                command=command,
                placement=campaign.placement_of(workload),
                level="light",
                profiler=KINETO_PROFILER if workload.kineto else LIGHT_PROFILERS[campaign.light],
            )
            bare = replace(light, level="bare", profiler=BARE_PROFILER)
            detailed = [
                replace(light, level="detailed", profiler=DETAILED_PROFILER, counters=counters)
                for counters in (campaign.detailed.counters_of_sets() if campaign.detailed else ())
            ]
            for repeat in range(campaign.repeats):
                if campaign.bare:
                    yield replace(bare, repeat=repeat), _WHOLE
                for run in detailed:
                    yield replace(run, repeat=repeat), self._windows(run)
                yield replace(light, repeat=repeat), _WHOLE
                for beside in campaign.condition_runs():
                    changes: dict[str, Any] = {"condition": beside.condition, "repeat": repeat}
                    if beside.level == "light":
                        yield replace(light, under_mps=beside.under_mps, **changes), _WHOLE
                    else:
                        costs = replace(detailed[0], counters=COST_COUNTERS, **changes)
                        yield costs, self._windows(costs)
            for repeat in range(campaign.repeats, campaign.light_repeats):
                yield replace(light, repeat=repeat), _WHOLE

    def _windows(self, run: Run) -> Sequence[Window]:
        detailed = self.campaign.detailed
        assert detailed is not None  # without it no detailed run is planned
        if detailed.slicing.by_light:
            return ()  # chosen once the light run is there
        return planned_windows(detailed.slicing, self.costs.of(run))

    def _run(self, **fields: Any) -> Run:
        """A run under the baseline, without its number."""
        synthetic = self.campaign.synthetic
        return Run(run_id="", campaign_id=self.campaign_id, ordinal=0, synthetic=synthetic, **fields)

    def _command(self, workload: WorkloadSpec) -> CommandSource:
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
            return replace(own, bundle=self.bundles.get(workload.bundle))
        if not PurePosixPath(self.directory).is_absolute():
            raise CampaignError(
                self.file_name,
                f"the workload {workload.name!r} runs its command in the file's folder, which was not given",
                "submit the file by its path",
            )
        program, *arguments = own.argv
        if "/" in program or program.endswith(".toml"):
            program = resolved_path(program, self.directory, self.file_name)
        return replace(
            own,
            argv=(program, *arguments),
            working_directory=self.directory,
            processes=workload.processes or 0,
        )


def _assumed(condition: ConditionSpec) -> tuple[ValidityFlag, ...]:
    """Recordings do not tell their condition, so keys that the file leaves out are assumed."""
    names = condition.assumed()
    if not names:
        return ()
    return (ValidityFlag("condition_assumed", f"the campaign file does not say: {', '.join(names)}"),)


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
