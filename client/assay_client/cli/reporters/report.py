"""A campaign's report on a terminal: workload x device, then every method, and what stands in the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.compared import compared_remarks, render_compared
from assay_client.cli.reporters.provenance import provenance_remarks, render_provenance
from assay_client.cli.reporters.tables import SYNTHETIC_NOTICE, Table
from assay_client.cli.reporters.text import (
    ASSUMED,
    clipped,
    condition,
    condition_of,
    count,
    printable,
    share_kind,
)

Row = Mapping[str, Any]

_NONE = "-"
_LIGHT_ALONE = (
    "Light runs alone, without counters: each error is against the times of all launches in a light run "
    "('assay docs light-only' says what can be had so)."
)


def render_report(report: Mapping[str, Any], console: Console) -> None:
    """Draw a report document; every page of synthetic data says that it is."""
    render_summary(report, console)
    _render_levels(report, console)
    render_compared(report, console)
    _render_rows(report["rows"], console)
    render_provenance(report, console)
    for line in _remarks(report):
        console.print(printable(line), soft_wrap=True)


def _render_levels(report: Mapping[str, Any], console: Console) -> None:
    levels = {run.get("level") for name in ("runs", "failed_runs") for run in report.get(name, ())}
    if "light" in levels and "detailed" not in levels:
        console.print(_LIGHT_ALONE, soft_wrap=True)


def render_summary(report: Mapping[str, Any], console: Console) -> None:
    """Draw the first table alone, workload x device."""
    campaign = report["campaign"]
    console.print(f"campaign {printable(str(campaign['id']))}, seed {campaign['seed']}")
    if campaign["synthetic"]:
        console.print(SYNTHETIC_NOTICE)
    _render_cells(report["summary"], console)


Column = tuple[str, Callable[[Row], str]]


def _render_cells(summary: Sequence[Row], console: Console) -> None:
    columns: list[Column] = [
        ("workload", lambda row: clipped(row["workload"], 40)),
        ("device", lambda row: clipped(row["device"], 40)),
        ("method", _method),
        ("launches", lambda row: count(row["launches"])),
        ("error %", lambda row: _number(row["error_percent"])),
        ("group error %", lambda row: _number(row["group_error_percent"])),
        ("speedup", lambda row: _number(row["speedup"])),
        ("match %", lambda row: _match(row["match_percent"])),
        ("accuracy %", lambda row: _number(row["chronological_accuracy_percent"])),
        ("balanced %", lambda row: _number(row["chronological_balanced_accuracy_percent"])),
        ("grouped %", lambda row: _number(row["grouped_accuracy_percent"])),
        ("grouped, balanced %", lambda row: _number(row["grouped_balanced_accuracy_percent"])),
        ("unknown", lambda row: _NONE if row["unknown_launches"] is None else count(row["unknown_launches"])),
        ("SM share true", lambda row: _shares(row, "speedup_true")),
        ("SM share predicted", lambda row: _shares(row, "speedup_predicted")),
        ("flushed %", lambda row: _number(row.get("flushed_difference_percent"))),
    ]
    shared: list[Column] = [
        ("condition", condition_of),
        ("cost", lambda row: row["cost_quantity"] or _NONE),
    ]
    _render("Workload x device", summary, columns, shared, console)
    if any(entry["chronological_accuracy_percent"] is not None for entry in summary):
        console.print(
            "Accuracy is that of the model that labels the launches behind the window, held out: the first "
            "80 % of the window predict the last 20 %; grouped: no signature on both sides; balanced: the "
            "mean over groups.",
            soft_wrap=True,
        )


def _shares(row: Row, what: str) -> str:
    """Speedups of all SMs over each share; the share stands beside it where there are several."""
    shares = row.get("sm_share") or []
    if len(shares) == 1:
        return _number(shares[0][what])
    return (
        ", ".join(f"{share['sm_percent']:g}%{share_kind(share)}: {_number(share[what])}" for share in shares)
        or _NONE
    )


def _render_rows(rows: Sequence[Row], console: Console) -> None:
    columns: list[Column] = [
        ("workload", lambda row: clipped(row["workload"], 40)),
        ("device", lambda row: clipped(row["device"], 40)),
        ("method", _method),
        ("groups", lambda row: _NONE if row["groups"] is None else count(row["groups"])),
        ("error %", lambda row: _number(row["error_percent"])),
        ("signed %", lambda row: _number(row["signed_error_percent"], signed=True)),
        ("group error %", lambda row: _number(row["group_error_percent"])),
        ("speedup", lambda row: _number(row["speedup"])),
        ("match %", lambda row: _match((row["match"] or {}).get("percent"))),
    ]
    shared: list[Column] = [
        ("condition", condition_of),
        ("selected on", lambda row: clipped((row["selected_on"] or {}).get("device") or _NONE, 24)),
        ("cost", lambda row: (row["cost"] or {}).get("quantity") or _NONE),
    ]
    _render("Every method", rows, columns, shared, console)


_TEXTS = frozenset({"workload", "device", "method", "condition", "selected on", "cost"})


def _render(
    title: str, rows: Sequence[Row], columns: list[Column], shared: Sequence[Column], console: Console
) -> None:
    """Draw the rows: what of ``shared`` is the same in all that have it stands in the title.

    What none has is left out.
    """
    if not rows:
        return
    parts, differing = [title], []
    for name, text in shared:
        values = {text(row) for row in rows} - {_NONE}
        if not values:
            continue
        if len(values) == 1:
            parts.append(f"{name} {values.pop()}")
        else:
            differing.append((name, text))
    columns = [*columns[:3], *differing, *columns[3:]]
    columns = [(name, text) for name, text in columns if any(text(row) != _NONE for row in rows)]
    names = [name for name, _ in columns]
    drawn = Table(
        ", ".join(parts),
        names,
        right=[name for name in names if name not in _TEXTS],
        clip=[name for name in ("device", "workload") if name in names],
    )
    for row in rows:
        drawn.add_row(*[text(row) for _, text in columns])
    drawn.print(console)


def _method(row: Row) -> str:
    return f"{row['method']}{'' if row['status'] == 'ok' else ': ' + row['status']}"


def _remarks(report: Mapping[str, Any]) -> list[str]:
    """Why numbers are missing, and what must be known about those that are there; each said once."""
    remarks = [
        f"{row['workload']} on {row['device']}, {row['method']}: {row['reason']}"
        for row in report["rows"]
        if row["reason"]
    ]
    remarks += compared_remarks(report)
    remarks += provenance_remarks(report)
    remarks += [
        f"run {run['run_id']}{_about(run)} has no data: {run['reason']}" for run in report["failed_runs"]
    ]
    flags = [flag for row in report["rows"] for flag in row["flags"]]
    if any(flag["name"] == ASSUMED for flag in flags):
        remarks.append(
            "assumed: the campaign file does not say the condition of a recording, so the baseline's is taken"
        )
    for flag in flags:
        if flag["name"] != ASSUMED:
            detail = f": {flag['detail']}" if flag["detail"] else ""
            remarks.append(f"run {flag['run_id']} is flagged {flag['name']}{detail}")
    return list(dict.fromkeys(remarks))


def _about(run: Row) -> str:
    if not run.get("workload"):
        return ""
    return f" ({run['workload']} on {run['device']}, {run['level']}, {condition(run['condition'])})"


def _number(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+,.2f}" if signed else f"{value:,.2f}"


def _match(value: float | None) -> str:
    # Rounded down: 98.999 must not look like the 99 that is asked for.
    return _NONE if value is None else f"{math.floor(value * 100) / 100:g}"
