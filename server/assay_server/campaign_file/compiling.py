"""Compiles a campaign's file for later steps, once, when the campaign is submitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from assay_core.records.upload import Bundle
from assay_sampling.errors import AssayError, MissingExtraError
from assay_server.campaign_file.compiled import (
    AnalysisSettings,
    CompiledCampaign,
    CompileFault,
    Ranks,
    RepeatRule,
    SchedulingRules,
)
from assay_server.campaign_file.reading import load_campaign
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
    found: dict[str, Ranks] = {}
    for workload in campaign.workloads:
        if workload.ranks == "each":
            found[workload.name] = "each"
        elif workload.ranks != "together":
            found[workload.name] = tuple(sorted(workload.ranks))
    return found


def compile_stored(text: str, file_name: str, analysis: AnalysisSettings) -> CompiledCampaign:
    """Compile a campaign that an earlier release accepted, with its stored analysis settings.

    Text that this release refuses gives a compiled campaign with a fault, which names file, line and field.
    Raises MissingExtraError if this installation cannot read campaign files.
    """
    try:
        campaign = load_campaign(text, file_name)
    except MissingExtraError:
        raise
    except AssayError as error:
        cause = f"this release cannot read its file, which an earlier release accepted: {error.cause}"
        remedy = "correct the file ('assay docs campaign-file' shows every key) and submit it again"
        return CompiledCampaign(analysis, fault=CompileFault(error.subject, cause, remedy))
    compiled = _compiled(campaign, analysis)
    if compiled.slicing is None:
        return compiled
    # Its slices were planned from the first launch on, before any light run.
    return replace(compiled, slicing=replace(compiled.slicing, unseen_percent=None))


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
