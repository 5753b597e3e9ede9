"""Draws the cost of cold caches: shares of the workload, and the launches that lose most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts, synthetic_mark
from assay_client.cli.reporters.text import condition, count, percent
from assay_report.texts import with_sign
from assay_sampling.notes.registry import note_text

_SHOWN = 20


def render_cold_start(document: Mapping[str, Any], console: Console) -> None:
    """Draw the weighted view first, then the launches whose IPC differs most."""
    shares = document["weighted_shares_percent"]
    pairs = [
        ("launches", _launches(document)),
        ("cost", str(document["quantity"])),
        ("IPC difference of the total", _signed(document["weighted_total_ipc_difference_percent"])),
        ("mean, by instructions", _signed(document["weighted_mean_ipc_difference_percent"])),
        *((f"differ by {threshold} % and more", f"{percent(share)} of the instructions")
          for threshold, share in shares.items()),
        *(("note", note_text(note)) for note in document["notes"]),
        *((f"{side} condition", condition(each))
          for side, each in zip(("warm", "cold"), document["conditions"] or (), strict=False)),
        *synthetic_mark(bool(document["synthetic"])),
    ]  # fmt: skip
    print_facts(pairs, console)
    launches = document["per_launch"]
    differences = launches["ipc_difference_percent"]
    order = sorted(range(len(differences)), key=lambda row: -_size(differences[row]))
    title = "launches" if len(order) <= _SHOWN else f"the {_SHOWN} launches that differ most"
    right = ("launch", "warm", "cold", "IPC difference")
    table = Table(title, ("launch", "kernel", *right[1:]), right=right, clip=("kernel",))
    for row in order[:_SHOWN]:
        table.add_row(
            count(launches["launch"][row]),
            launches["kernel"][row],
            f"{launches['warm'][row]:,.0f}",
            f"{launches['flushed'][row]:,.0f}",
            _signed(differences[row]),
        )
    table.print(console)


def _launches(document: Mapping[str, Any]) -> str:
    text = f"{count(document['launches'])} in both"
    for key, name in (("only_in_warm", "warm"), ("only_in_flushed", "flushed")):
        if document[key]:
            text += f", {count(document[key])} only in the {name} run"
    return text


def _size(value: float) -> float:
    return -1.0 if math.isnan(value) else abs(value)


def _signed(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{with_sign(value)} %"
