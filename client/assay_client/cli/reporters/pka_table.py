"""Draws PKA's Table 4, with ``*`` for missing values, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts, synthetic_mark
from assay_client.cli.reporters.text import clipped

MISSING = "*"
_LEGEND = "not known: a note says why, or a recording or a simulation of all launches was not given"
_NUMBERS = ["sim error %", "PKS error %", "PKS h", "PKS speedup", "PKA error %", "PKA h", "PKA speedup",
            "DRAM full %", "DRAM PKA %"]  # fmt: skip


def render_pka_table(document: Mapping[str, Any], console: Console) -> None:
    """Draw the document of ``assay pka-table``."""
    drawn = Table("PKA, Table 4", ["suite", "application", *_NUMBERS], right=_NUMBERS, clip=["application"])
    for row in document["rows"]:
        is_mean = row["known"] is not None
        over = " over PKS" if row["pka_speedup_over"] == "pks" else ""
        drawn.add_row(
            clipped(row["suite"], 40),
            f"mean of {row['applications']}" if is_mean else clipped(row["application"], 40),
            _shown(row["simulator_error_percent"], 1),
            _shown(row["pks_error_percent"], 1),
            _shown(row["pks_hours"], 3),
            _shown(row["pks_speedup"], 1),
            _shown(row["pka_error_percent"], 1),
            _shown(row["pka_hours"], 3),
            f"{_shown(row['pka_speedup'], 1)}{over}",
            _shown(row["dram_full_percent"], 1),
            _shown(row["dram_pka_percent"], 1),
        )
    drawn.print(console)
    missing = any(MISSING in row for row in drawn.rows)
    below = [(MISSING, _LEGEND)] if missing else []
    below += [*synthetic_mark(document["synthetic"]), *(("note", str(note)) for note in document["notes"])]
    if below:
        print_facts(below, console)


def _shown(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:,.{digits}f}"
