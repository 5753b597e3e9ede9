"""A campaign's report on a terminal: workload x device, then every method, and what stands in the way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import SYNTHETIC_NOTICE, table
from assay_client.cli.reporters.text import clipped, condition_triple, count, printable

Row = Mapping[str, Any]

_CONDITION = "cache/clock/SM %"


def render_report(report: Mapping[str, Any], console: Console) -> None:
    """Draw a report document; every page of synthetic data says that it is."""
    campaign = report["campaign"]
    console.print(f"campaign {printable(str(campaign['id']))}, seed {campaign['seed']}")
    if campaign["synthetic"]:
        console.print(SYNTHETIC_NOTICE)
    _render_summary(report["summary"], console)
    _render_rows(report["rows"], console)
    for line in _remarks(report):
        console.print(printable(line), soft_wrap=True)


def _render_summary(summary: Sequence[Row], console: Console) -> None:
    numbers = [
        "launches", "error %", "group error %", "speedup", "match %", "accuracy %", "grouped %", "unknown",
    ]  # fmt: skip
    drawn = table("Workload x device", ["workload", "device", "method", *numbers], right=numbers)
    for entry in summary:
        drawn.add_row(
            clipped(entry["workload"], 24),
            clipped(entry["device"], 24),
            f"{entry['method']}{'' if entry['status'] == 'ok' else ': ' + entry['status']}",
            count(entry["launches"]),
            _percent(entry["error_percent"]),
            _percent(entry["group_error_percent"]),
            _speedup(entry["speedup"]),
            _match(entry["match_percent"]),
            _percent(entry["chronological_accuracy_percent"]),
            _percent(entry["grouped_accuracy_percent"]),
            "-" if entry["unknown_launches"] is None else count(entry["unknown_launches"]),
        )
    console.print(drawn)
    if any(entry["chronological_accuracy_percent"] is not None for entry in summary):
        console.print(
            "Accuracies are of the model that labels the launches behind the window, held out and balanced: "
            "the first 80 % of the window predict the last 20 %, and, grouped, no signature on both sides."
        )


def _render_rows(rows: Sequence[Row], console: Console) -> None:
    numbers = ["groups", "error %", "signed %", "group error %", "speedup", "match %"]
    drawn = table(
        "Every method",
        ["workload", "device", _CONDITION, "method", "selected on", "cost", *numbers],
        right=numbers,
    )
    for row in rows:
        match = row["match"] or {}
        drawn.add_row(
            clipped(row["workload"], 24),
            clipped(row["device"], 24),
            condition_triple(row["condition"]),
            f"{row['method']}{'' if row['status'] == 'ok' else ': ' + row['status']}",
            clipped((row["selected_on"] or {}).get("device") or "-", 24),
            (row["cost"] or {}).get("quantity") or "-",
            "-" if row["groups"] is None else count(row["groups"]),
            _percent(row["error_percent"]),
            _percent(row["signed_error_percent"], signed=True),
            _percent(row["group_error_percent"]),
            _speedup(row["speedup"]),
            _match(match.get("percent")),
        )
    console.print(drawn)


def _remarks(report: Mapping[str, Any]) -> list[str]:
    """Why numbers are missing, and what must be known about those that are there; each said once."""
    remarks = [
        f"{row['workload']} on {row['device']}, {row['method']}: {row['reason']}"
        for row in report["rows"]
        if row["reason"]
    ]
    remarks += [f"run {run['run_id']} has no data: {run['reason']}" for run in report["failed_runs"]]
    for row in report["rows"]:
        for flag in row["flags"]:
            detail = f": {flag['detail']}" if flag["detail"] else ""
            remarks.append(f"run {flag['run_id']} is flagged {flag['name']}{detail}")
    return list(dict.fromkeys(remarks))


def _percent(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+,.2f}" if signed else f"{value:,.2f}"


def _speedup(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _match(value: float | None) -> str:
    # Rounded down: 98.999 must not look like the 99 that is asked for.
    return "-" if value is None else f"{math.floor(value * 100) / 100:g}"
