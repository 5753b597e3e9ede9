"""Draws an import: the ids that other verbs take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import SYNTHETIC_NOTICE, origin_mark, print_facts
from assay_client.cli.reporters.text import clipped, count
from assay_sampling.notes.registry import note_text
from assay_sampling.visible import visible


def render_imported(campaign: Mapping[str, Any], console: Console) -> None:
    """Draw the campaign's id, and a line for each run."""
    console.print(f"campaign {visible(campaign['campaign_id'])}: {campaign['state']}")
    if campaign["synthetic"]:
        console.print(SYNTHETIC_NOTICE)
    for run in campaign["runs"]:
        launches = f", {count(run['launches'])} launches" if run["launches"] else ""
        console.print(f"run {visible(run['run_id'])}: {run['level']}, {run['state']}{launches}")


def render_table(document: Mapping[str, Any], console: Console) -> None:
    """Draw what was made of another tool's table."""
    left_out = ", ".join(document["columns_left_out"])
    pairs = [
        ("table", f"{document['source']}, {count(document['rows'])} rows"),
        ("launches", count(document["launches"])),
        ("kernels", count(document["kernels"])),
        ("devices", ", ".join(document["devices"])),
        ("level", document["level"]),
        ("counters", ", ".join(document["counters"]) or "none"),
        *([("left out", clipped(left_out, 300))] if left_out else []),
        *origin_mark(document),
        *[("note", clipped(note_text(note), 300)) for note in document["notes"]],
    ]
    print_facts(pairs, console)
    console.print(f"written to {document['path']}", soft_wrap=True)
