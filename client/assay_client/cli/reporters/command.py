"""Draws what was measured of a command: where its time goes, its selection, its files, and what is next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from assay_client.cli.reporters.campaign import render_campaign
from assay_client.cli.reporters.report import render_summary
from assay_client.cli.reporters.top import render_top
from assay_client.one_box.measured import Measured
from assay_client.remote.outcome import Outcome
from assay_report.tables.remarks import remarks
from assay_sampling.visible import visible

_OTHER = "OTHER_GPU.parquet"


def render_command(outcome: Outcome, measured: Measured, console: Console) -> None:
    """Draw where the time goes, verdict and first table of the report, the files, and the next command."""
    if measured.top is not None:
        render_top(asdict(measured.top), console)
        console.print()
    if outcome.report is None:
        render_campaign(outcome.status, console)
    else:
        render_summary(outcome.report, console)
        for line in remarks(outcome.report):
            console.print(visible(line), soft_wrap=True)
    for line in (*_files(outcome, measured), *_next(measured)):
        console.print(visible(line), soft_wrap=True)


def _files(outcome: Outcome, measured: Measured) -> Iterator[str]:
    if "html" in outcome.files:
        yield f"report: {outcome.files['html'].resolve()}"
    if measured.selection is not None:
        yield f"selection: {measured.selection.resolve()}"
    yield from _listed("light run", measured.light)
    yield from _listed("counters", measured.detailed)


def _listed(what: str, paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        yield f"{what}: {path.resolve()}"


def _next(measured: Measured) -> Iterator[str]:
    if measured.selection is None:
        return
    selection = shlex.quote(str(measured.selection))
    yield f"next: run the same on another box, and with its light run: assay evaluate {selection} {_OTHER}"
    yield f"or: assay export {selection} --to nvbit -o tracing"
