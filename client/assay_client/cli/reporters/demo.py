"""Draws the end of the demo: one table, why some rows have no numbers, where page and report are."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console

from assay_client.cli.reporters.outcome import render_outcome
from assay_client.cli.reporters.report import render_summary
from assay_client.demonstration.demo import without_numbers
from assay_client.demonstration.page_port import page_address
from assay_client.remote.outcome import Outcome
from assay_sampling.visible import visible


def render_demo(outcome: Outcome, out: Path, console: Console, *, stays: bool = False) -> None:
    """Draw the table workload x device, the address of the live page and the paths of the report.

    The runs, if there is no report. ``stays``: the page is served on when this has been drawn.
    """
    if outcome.report is None:
        render_outcome(outcome, console)
        return
    render_summary(outcome.report, console)
    for line in without_numbers(outcome.report):
        console.print(visible(line), soft_wrap=True)
    console.print(f"page: {page_address(out)}", soft_wrap=True)
    if not stays:
        console.print(
            f"  serve it again with: assay demo --page --out {shlex.quote(str(out))}", soft_wrap=True
        )
    console.print("report, all of it synthetic:")
    for path in outcome.files.values():
        console.print(f"  {path.resolve()}", soft_wrap=True)
