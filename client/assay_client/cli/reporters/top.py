"""Draws the kernels, operators and ranges with the most time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table
from assay_client.cli.reporters.text import count, quantity
from assay_sampling.launches.in_memory import WINDOW_RANGE

_KINDS = ("kernels", "operators", "ranges")


def render_top(top: Mapping[str, Any], console: Console) -> None:
    """Draw a table of each kind that was recorded."""
    for what in _KINDS:
        if top[what]:
            _table(top, what).print(console)
    if top["in_named_range_of"] is not None:
        console.print(
            f"window: the NVTX range {WINDOW_RANGE!r}, with {count(top['launches'])} of "
            f"{count(top['in_named_range_of'])} launches",
            soft_wrap=True,
        )
    if top["launches_without_cost"] and top["quantity"]:
        missing = f"{count(top['launches_without_cost'])} launches without a value of {top['quantity']}"
        console.print(f"{missing} count as nothing", soft_wrap=True)


def _table(top: Mapping[str, Any], what: str) -> Table:
    ranked = {"ns": "time", "cycle": "cycles"}.get(top["unit"], "")
    columns = [f"{ranked} %", ranked] if ranked else []
    columns += ["launches", *(["calls"] if what == "operators" else [])]
    table = Table(
        f"The {what} with the most {ranked or 'launches'}, of {count(top['launches'])} launches",
        [*columns, "name"],
        right=columns,
        clip=["name"],
    )
    for each in top[what]:
        share = "n/a" if each["percent"] is None else f"{each['percent']:.1f}"
        cells = [share, quantity(each["cost"], top["unit"])] if ranked else []
        calls = [count(each["calls"])] if what == "operators" else []
        table.add_row(*cells, count(each["launches"]), *calls, each["name"])
    return table
