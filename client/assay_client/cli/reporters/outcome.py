"""How a campaign ended: its report's tables, else its runs, and where the report lies."""

from __future__ import annotations

from rich.console import Console

from assay_client.cli.reporters.campaign import render_campaign
from assay_client.cli.reporters.report import render_report
from assay_client.outcome import Outcome


def render_outcome(outcome: Outcome, console: Console) -> None:
    """The report where there is one, then the path of the page that a browser shows."""
    if outcome.report is None:
        render_campaign(outcome.status, console)
        return
    render_report(outcome.report, console)
    if "html" in outcome.files:
        console.print(f"report: {outcome.files['html'].resolve()}", soft_wrap=True)
