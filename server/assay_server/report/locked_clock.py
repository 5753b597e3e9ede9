"""The table of locked clocks: the same launches under a locked clock and under free ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_server.report.naming import ABSENT, count, quantity, shown_condition
from assay_server.report.tables import (
    CONDITION,
    Table,
    columns_of,
    flags_text,
    match_text,
    state_text,
    without_empty,
)

_NOTE = (
    "Time: of the light runs, locked / free. Cycles: of the window, locked / free; a workload whose cycles "
    "stay the same does not wait for memory. SM clock: of the window. Times and cycles are two costs, and "
    "neither is computed from the other."
)


def locked_clock_table(report: Mapping[str, Any]) -> Table | None:
    """How times and cycles change where the clock is locked; None for a report without such runs."""
    body = tuple(_row(entry) for entry in report.get("locked_clock", ()))
    if not body:
        return None
    columns = columns_of(
        "workload", "GPU", CONDITION, "locked", "#launches", "#time, locked / free", "#window",
        "#cycles, locked / free", "#SM clock / MHz", "#free / MHz", "~status", "cost", "match / %", "~flags",
    )  # fmt: skip
    return Table("Locked clocks", *without_empty(columns, body, "flags"), _NOTE)


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    locked = {True: "yes", False: "no"}.get(entry["clock_locked"], ABSENT)
    return (
        entry["workload"], entry["device"], shown_condition(entry), locked,
        count(entry["launches"]), quantity(entry["duration_ratio"]),
        count(entry["window_launches"]), quantity(entry["cycles_ratio"]),
        quantity(entry["clock_mhz"]), quantity(entry["clock_mhz_free"]),
        "; ".join((state_text(entry), *entry["notes"])), entry["quantity"] or ABSENT,
        ABSENT if entry["match"] is None else match_text(entry["match"]), flags_text(entry["flags"]),
    )  # fmt: skip
