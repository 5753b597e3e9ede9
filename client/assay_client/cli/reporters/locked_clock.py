"""Runs under locked clocks on a terminal, beside those under free ones."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table
from assay_client.cli.reporters.text import condition, count

_NONE = "-"


def render_locked_clock(entries: Any, console: Console) -> None:
    """One table, or nothing where no run was made under a locked clock."""
    if not entries:
        return
    right = ["launches", "time", "window", "cycles", "MHz", "free MHz"]
    drawn = Table(
        "Locked clocks: locked / free, times of light runs and cycles of the window",
        ["workload", "device", "condition", "locked", *right],
        right=right,
        clip=["device", "workload"],
    )
    for entry in entries:
        drawn.add_row(
            entry["workload"],
            entry["device"],
            condition(entry["condition"]),
            {True: "yes", False: "no"}.get(entry["clock_locked"], _NONE),
            _counted(entry["launches"]),
            _number(entry["duration_ratio"], 3),
            _counted(entry["window_launches"]),
            _number(entry["cycles_ratio"], 3),
            _number(entry["clock_mhz"], 0),
            _number(entry["clock_mhz_free"], 0),
        )
    drawn.print(console)


def _counted(number: int | None) -> str:
    return _NONE if number is None else count(number)


def _number(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:,.{digits}f}"
