"""Draws what a request about runs changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.campaign import described, resting_lines, waiting_lines
from assay_client.cli.reporters.text import counted
from assay_sampling.visible import visible


def render_request(campaign: Mapping[str, Any], console: Console) -> None:
    """Draw what a request changed, and the campaign after it in one line."""
    console.print(visible(_sentence(campaign)), soft_wrap=True)
    console.print(visible(described(campaign)), soft_wrap=True)
    for line in (*waiting_lines(campaign["waiting"]), *resting_lines(campaign["resting"])):
        console.print(line, soft_wrap=True)


def _sentence(campaign: Mapping[str, Any]) -> str:
    request = campaign["request"]
    campaign_id, runs = campaign["campaign_id"], counted(request["runs_changed"], "run", "runs")
    ended, running = request["attempts_ended"], request["attempts_running"]
    if request["action"] == "pause":
        parts = [f"{runs} paused"]
        parts += [f"{counted(ended, 'attempt', 'attempts')} handed back"] if ended else []
        parts += [f"{counted(running, 'slice', 'slices')} running, which finish first"] if running else []
        return f"{campaign_id}: {', '.join(parts)}; resume with: assay lab resume {campaign_id}"
    if request["action"] == "cancel":
        stopped = f", {counted(ended, 'attempt', 'attempts')} stopped" if ended else ""
        return f"{campaign_id}: {runs} cancelled{stopped}"
    if request["action"] == "retry":
        return f"{campaign_id}: {runs} re-queued; follow with: assay lab status {campaign_id} --follow"
    return f"{campaign_id}: {runs} resumed"
