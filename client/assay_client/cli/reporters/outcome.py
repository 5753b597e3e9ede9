"""Draws the end of a campaign: its report's tables, else its runs, and the report's path."""

from __future__ import annotations

from rich.console import Console

from assay_client.cli.reporters.campaign import render_campaign
from assay_client.cli.reporters.report import render_report
from assay_client.remote.outcome import Outcome


def render_outcome(outcome: Outcome, console: Console) -> None:
    """Draw the report if there is one, then the path of its HTML page."""
    if outcome.report is None:
        render_campaign(outcome.status, console)
        return
    render_report(outcome.report, console)
    if "html" in outcome.files:
        console.print(f"report: {outcome.files['html'].resolve()}", soft_wrap=True)
