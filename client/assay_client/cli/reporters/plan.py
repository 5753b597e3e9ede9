"""Draws a dry run: what would run on each kind of GPU, and on which assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts, synthetic_mark
from assay_client.cli.reporters.text import clipped, condition, count
from assay_client.cli.reporters.warnings import render_warnings

_MOST_RUNS = 40
_LIGHT_ONLY = "light alone ('detailed: none'): no counters are collected; 'assay docs light-only' says more"


def render_plan(document: Mapping[str, Any], console: Console) -> None:
    """Draw the runs, a line for each kind of GPU, and the assumptions behind the numbers."""
    total = document["total"]
    print_facts(
        [
            ("campaign", str(document["campaign"])),
            ("plan", f"{count(total['runs'])} runs in {count(total['slices'])} slices; nothing was run"),
            *([("level", _LIGHT_ONLY)] if document["light_only"] else []),
            ("methods", ", ".join(document["methods"])),
            *synthetic_mark(bool(document["synthetic"])),
        ],
        console,
    )
    _runs(document, console)
    _gpus(document, console)
    _assumptions(document["assumptions"], console)
    render_warnings(document["warnings"], console)


def _runs(document: Mapping[str, Any], console: Console) -> None:
    table = Table(
        "Runs",
        ("run", "workload", "GPU", "level", "condition", "slices", "counters", "passes"),
        right=("run", "slices", "counters", "passes"),
        clip=("workload", "GPU"),
    )
    for run in document["runs"][:_MOST_RUNS]:
        mps = " MPS" if run["under_mps"] else ""
        bound = "" if run["passes_exact"] else "at most "
        table.add_row(
            count(run["run"]),
            run["workload"],
            run["device"],
            run["level"],
            condition(run["condition"]) + mps,
            ("at most " if run["at_most"] else "") + count(run["slices"]),
            count(run["counters"]) if run["counters"] else "-",
            f"{bound}{run['passes']}" if run["passes"] else "-",
        )
    table.print(console)
    if len(document["runs"]) > _MOST_RUNS:
        console.print(f"and {len(document['runs']) - _MOST_RUNS:,} more; --json has them all")


def _gpus(document: Mapping[str, Any], console: Console) -> None:
    table = Table(
        "Predicted from the assumptions below, with one GPU of each kind",
        ("GPU", "runs", "slices", "launches x passes", "hours", "stored"),
        right=("runs", "slices", "launches x passes", "hours", "stored"),
        clip=("GPU",),
    )
    for row in (*document["gpus"], {**document["total"], "device": "all"}):
        table.add_row(
            clipped(row["device"], 60),
            count(row["runs"]),
            count(row["slices"]),
            count(row["launch_passes"]),
            f"{row['hours']:,.3f}",
            _size(row["bytes"]),
        )
    table.print(console)


def _assumptions(assumed: Mapping[str, Any], console: Console) -> None:
    table = Table(
        "Assumptions, not measurements; change one with --assume NAME=VALUE",
        ("name", "value", "meaning"),
        right=("value",),
    )
    for name, entry in assumed.items():
        table.add_row(name, f"{entry['value']:,g}" if entry["value"] < 1e5 else f"{entry['value']:,.0f}",
                      entry["meaning"])  # fmt: skip
    table.print(console)


def _size(value: int) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value} B"
