"""Draws what launches touch again, corrections of cold launches, and the list that warms them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts
from assay_client.cli.reporters.text import count
from assay_sampling.notes.registry import note_text


def render_reuse(document: Mapping[str, Any], console: Console) -> None:
    """Draw one line for each launch: how much it touches, and the share that the next one touches again."""
    warm_up = document.get("warm_up")
    if warm_up:
        pairs = [("list", warm_up["list"] or "not written; --output names a file for it")]
        pairs += [("written", path) for path in warm_up["written_traces"]]
        pairs += [("linked", path) for path in warm_up["linked_traces"]]
        pairs += [("simulates", line) for line in warm_up["lines"]]
        print_facts(pairs, console)
    names = ("bytes' addresses", "sectors", "lines", "reuse of addresses", "of sectors", "of lines")
    table = Table("forward reuse", ("launch", "kernel", *names), right=("launch", *names), clip=("kernel",))
    for row in document["launches"]:
        table.add_row(
            str(row["launch"]),
            row["kernel"],
            *(count(row["footprint"][name]) for name in ("byte", "sector", "line")),
            *(_share(row["forward_reuse"][name]) for name in ("byte", "sector", "line")),
        )
    table.print(console)
    if "corrections" in document:
        _render_corrections(document["corrections"], console)


def _render_corrections(corrections: Mapping[str, Any], console: Console) -> None:
    if corrections["refused"]:
        console.print(
            f"\nno corrections of {corrections['log']}: {note_text(corrections['refused'])}", soft_wrap=True
        )
        return
    right = ("launch", "cycles", "delta", "IPC", "corrected IPC")
    table = Table(f"corrections of {corrections['log']}", (*right, "reason"), right=right)
    for row in corrections["launches"]:
        table.add_row(
            str(row["launch"]),
            count(row["cycles"]),
            _number(row["delta_cycles"]),
            _number(row["ipc"]),
            _number(row["corrected_ipc"]),
            note_text(row["reason"]) if row["reason"] else "",
        )
    table.print(console)


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.2f}"
