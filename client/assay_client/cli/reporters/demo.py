"""Draws the end of the demo: one table, why some rows have no numbers, and where the other tables are."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from assay_client.cli.reporters.outcome import render_outcome
from assay_client.cli.reporters.report import render_summary
from assay_client.cli.reporters.text import printable
from assay_client.demonstration.demo import without_numbers
from assay_client.remote.outcome import Outcome


def render_demo(outcome: Outcome, out: Path, console: Console) -> None:
    """Draw the table workload x device and the paths of the pages; the runs if there is no report."""
    if outcome.report is None:
        render_outcome(outcome, console)
        return
    render_summary(outcome.report, console)
    for line in without_numbers(outcome.report):
        console.print(printable(line), soft_wrap=True)
    console.print("all tables, all of them synthetic:")
    for path in outcome.files.values():
        console.print(f"  {path.resolve()}", soft_wrap=True)
    console.print(f"its live page, with runs and logs: assay demo --page --out {out}", soft_wrap=True)
