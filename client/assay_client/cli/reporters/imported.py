"""Draws an import: the ids that other verbs take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import SYNTHETIC_NOTICE
from assay_client.cli.reporters.text import count
from assay_sampling.visible import visible


def render_imported(campaign: Mapping[str, Any], console: Console) -> None:
    """Draw the campaign's id, and a line for each run."""
    console.print(f"campaign {visible(campaign['campaign_id'])}: {campaign['state']}")
    if campaign["synthetic"]:
        console.print(SYNTHETIC_NOTICE)
    for run in campaign["runs"]:
        launches = f", {count(run['launches'])} launches" if run["launches"] else ""
        console.print(f"run {visible(run['run_id'])}: {run['level']}, {run['state']}{launches}")
