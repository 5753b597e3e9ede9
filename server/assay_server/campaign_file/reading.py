"""Reading a campaign file: from text to a checked campaign with its lines, or an error with lines.

A campaign that is submitted is also compiled for later steps, once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from assay_core.records.upload import Bundle
from assay_sampling.errors import CampaignError
from assay_server.campaign_file.compiled import (
    AnalysisSettings,
    CompiledCampaign,
    RepeatRule,
    SchedulingRules,
)
from assay_server.campaign_file.faults import campaign_faults
from assay_server.campaign_file.messages import error_of, fault_of
from assay_server.campaign_file.spec import Campaign
from assay_server.campaign_file.yaml_source import REMEDY, Document, Place, parse_yaml


@dataclass(frozen=True)
class CampaignFile:
    """A valid campaign file: its name, the campaign, and the line of each entry."""

    name: str
    campaign: Campaign
    document: Document

    def line(self, place: Place) -> int:
        """The line of a place (from 1), or of the nearest entry around it."""
        return self.document.line(place)


def read_campaign_file(text: str | bytes, file_name: str) -> CampaignFile:
    """A campaign from the text of its file.

    Raises CampaignError, which names ``file_name``, line and field of the first ten faults.
    """
    document = parse_yaml(_decoded(text, file_name), file_name)
    if document.values is None:
        raise CampaignError(file_name, "it is empty", REMEDY)
    if not isinstance(document.values, dict):
        raise CampaignError(
            f"{file_name}:{document.line(())}", "it is not a mapping of keys to values", REMEDY
        )
    try:
        campaign = Campaign.model_validate(document.values)
    except ValidationError as error:
        raise error_of(map(fault_of, error.errors()), document, file_name) from None
    faults = list(campaign_faults(campaign))
    if faults:
        raise error_of(faults, document, file_name)
    return CampaignFile(file_name, campaign, document)


def _decoded(text: str | bytes, file_name: str) -> str:
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise CampaignError(f"{file_name}:{line}", "it is not UTF-8 text", "save the file as UTF-8") from None


def compile_campaign(campaign: Campaign, bundles: Iterable[Bundle] = ()) -> CompiledCampaign:
    """The compiled form of a campaign; ``bundles``: those that it names."""
    detailed, repeat = campaign.detailed, campaign.repeat
    return CompiledCampaign(
        AnalysisSettings(
            seed=campaign.seed,
            methods=tuple((method.name, dict(method.parameters)) for method in campaign.methods),
            reference=campaign.analysis.reference,
            memory_limit_bytes=campaign.analysis.memory_limit_bytes,
            ranks={
                workload.name: "each" if workload.ranks == "each" else tuple(sorted(workload.ranks))
                for workload in campaign.workloads
                if workload.ranks != "together"
            },
            by_operation=tuple(one.name for one in campaign.workloads if one.unit == "operation"),
        ),
        slicing=None if detailed is None else detailed.slicing,
        repeat=None if repeat is None else RepeatRule(repeat.until_interval_percent, repeat.at_most),
        scheduling=SchedulingRules(
            campaign.priority,
            campaign.budget_gpu_hours or 0.0,
            {workload.name: tuple(workload.after) for workload in campaign.workloads if workload.after},
        ),
        bundles=tuple(dict.fromkeys(bundles)),
    )
