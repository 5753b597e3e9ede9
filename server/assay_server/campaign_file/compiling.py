"""Compiles a campaign's file for later steps, once, when the campaign is submitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from assay_core.records.upload import Bundle
from assay_server.campaign_file.compiled import (
    AnalysisSettings,
    CompiledCampaign,
    Ranks,
    RepeatRule,
    SchedulingRules,
)
from assay_server.campaign_file.spec import Campaign


def compile_campaign(campaign: Campaign, bundles: Iterable[Bundle] = ()) -> CompiledCampaign:
    """The compiled form of a campaign; ``bundles``: those that it names."""
    compiled = _compiled(
        campaign,
        AnalysisSettings(
            seed=campaign.seed,
            methods=tuple((method.name, dict(method.parameters)) for method in campaign.methods),
            reference=campaign.analysis.reference,
            memory_limit_bytes=campaign.analysis.memory_limit_bytes,
            ranks=_ranks(campaign),
            by_operation=tuple(one.name for one in campaign.workloads if one.unit == "operation"),
        ),
    )
    return replace(compiled, bundles=tuple(dict.fromkeys(bundles)))


def _ranks(campaign: Campaign) -> dict[str, Ranks]:
    """The workloads whose ranks are evaluated each alone, with the ranks that are."""
    ranks: dict[str, Ranks] = {}
    for workload in campaign.workloads:
        if workload.ranks == "each":
            ranks[workload.name] = "each"
        elif workload.ranks != "together":
            ranks[workload.name] = tuple(sorted(workload.ranks))
    return ranks


def _compiled(campaign: Campaign, analysis: AnalysisSettings) -> CompiledCampaign:
    detailed, repeat = campaign.detailed, campaign.repeat
    return CompiledCampaign(
        analysis,
        slicing=None if detailed is None else detailed.slicing,
        scheduling=SchedulingRules(
            campaign.priority,
            campaign.budget_gpu_hours or 0.0,
            {workload.name: tuple(workload.after) for workload in campaign.workloads if workload.after},
        ),
        repeat=None if repeat is None else RepeatRule(repeat.until_interval_percent, repeat.at_most),
    )
