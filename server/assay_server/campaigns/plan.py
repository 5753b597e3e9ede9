"""From a campaign to its runs and slices: pure, the same plan for the same file."""

from __future__ import annotations

from dataclasses import dataclass

from assay_server.campaigns.spec import Campaign, RecordingSpec, resolved_path
from assay_server.store.model import AnalysisSettings, Run, Slice

RECORDED_PROFILER = "recorded"


@dataclass(frozen=True)
class Plan:
    """The runs of a campaign in the order of its file, and their slices."""

    runs: tuple[Run, ...]
    slices: tuple[Slice, ...]


def plan_campaign(campaign: Campaign, campaign_id: str, base_directory: str, file_name: str) -> Plan:
    """One run for each recording and level, one slice a run; CampaignError for a path without a base."""
    found: list[tuple[str, RecordingSpec, str, str]] = []
    for workload in campaign.workloads:
        for recording in workload.recordings:
            for level, path in recording.levels():
                found.append((workload.name, recording, level, path))
    runs = tuple(
        Run(
            run_id=f"{campaign_id}.{ordinal:04d}",
            campaign_id=campaign_id,
            ordinal=ordinal,
            workload=workload,
            device_kind=recording.device,
            level="detailed" if level == "detailed" else "light",
            profiler=RECORDED_PROFILER,
            condition=recording.condition.condition(),
            synthetic=campaign.synthetic,
            recorded_path=resolved_path(path, base_directory, file_name),
            recorded_time=campaign.playback == "recorded_time",
        )
        for ordinal, (workload, recording, level, path) in enumerate(found)
    )
    return Plan(runs, tuple(Slice(run.run_id, 0) for run in runs))


def analysis_settings(campaign: Campaign) -> AnalysisSettings:
    """What the analysis is told, from the file."""
    return AnalysisSettings(
        seed=campaign.seed,
        methods=tuple((method.name, dict(method.parameters)) for method in campaign.analysis.methods),
        reference=campaign.analysis.reference,
        memory_limit_bytes=campaign.analysis.memory_limit_bytes,
    )


def next_number(taken: list[int]) -> int:
    """The smallest number from 1 that is not taken: campaign ids are ``<name>-<number>``."""
    used = set(taken)
    return next(number for number in range(1, len(used) + 2) if number not in used)
