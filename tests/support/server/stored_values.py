"""Values that the metadata store keeps, made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState, CampaignState
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import RecordedSource
from assay_sampling.launches.table import Condition
from assay_server.campaign_file.compiled import AnalysisSettings, CompiledCampaign, RepeatRule, Slicing
from assay_server.store.model import Attempt, Campaign, Run

FLAGS = (ValidityFlag("throttled", "at 81 C", True), ValidityFlag("foreign_process"))


def campaign(campaign_id: str = "made-1", number: int = 1, **fields: object) -> Campaign:
    compiled = CompiledCampaign(
        AnalysisSettings(3, (("pks", {"k": 4}), ("random", {})), "V100", 1 << 30),
        Slicing(0, 500, 60.5),
        RepeatRule(2.5, 12),
    )
    made = Campaign(
        campaign_id,
        "made",
        number,
        True,
        CampaignState.RUNNING,
        "text: é\n",
        "c.yaml",
        "/base",
        compiled,
        5,
        owner="aa" * 16,
        owner_name="vera",
        project="vision",
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def run(ordinal: int = 0, campaign_id: str = "made-1", **fields: object) -> Run:
    made = Run(
        run_id=f"{campaign_id}.{ordinal:04d}",
        campaign_id=campaign_id,
        ordinal=ordinal,
        workload="training",
        device_kind="V100",
        level="light",
        profiler="recorded",
        condition=Condition("all", None, 50.0),
        recorded=RecordedSource(Path("/data/x"), recorded_time=True),
        flags=FLAGS,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def attempt(token: int = 1, number: int = 1, ordinal: int = 0, **fields: object) -> Attempt:
    made = Attempt(
        AttemptKey(f"made-1.{ordinal:04d}", 0, number, token),
        AttemptState.LEASED,
        "agent-1",
        "box",
        "session-1",
        "recorded-0",
        10,
        20,
    )
    return replace(made, **fields)  # type: ignore[arg-type]
