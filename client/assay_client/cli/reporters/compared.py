"""Runs compared on a terminal: SM shares, flushed caches, noise, profilers' overhead, launch sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.locked_clock import render_locked_clock
from assay_client.cli.reporters.tables import Table
from assay_client.cli.reporters.text import clipped, condition, count, share_kind

Entry = Mapping[str, Any]

_NONE = "-"
_PARTS = {"sm_share": "SM share", "cold_start": "flushed caches", "locked_clock": "locked clock",
          "noise": "noise", "overhead": "overhead", "sequences": "launch sequences"}  # fmt: skip


def render_compared(report: Mapping[str, Any], console: Console) -> None:
    """The tables that the report has something to say in; none for one without such runs."""
    _render_shares(report.get("sm_share", ()), console)
    _render_flushed(report.get("cold_start", ()), console)
    render_locked_clock(report.get("locked_clock", ()), console)
    _render_noise(report.get("noise", ()), console)
    _render_overhead(report.get("overhead", ()), console)
    _render_sequences(report.get("sequences", ()), console)


def compared_remarks(report: Mapping[str, Any]) -> Iterator[str]:
    """Why numbers are missing, and what is flagged about those that are there."""
    for part, name in _PARTS.items():
        for entry in report.get(part, ()):
            where = f"{entry['workload']} on {entry['device']}, {name}"
            inner = entry.get("predictions", entry.get("selections", ()))
            for each in (entry, *inner):
                if each["reason"]:
                    method = f", {each['method']}" if "method" in each else ""
                    yield f"{where}{method}: {each['reason']}"
            for note in entry["notes"] if part == "locked_clock" else ():
                yield f"{where}: {note}"
            for flag in entry["flags"]:
                detail = f": {flag['detail']}" if flag["detail"] else ""
                yield f"run {flag['run_id']} is flagged {flag['name']}{detail}"


def _render_shares(entries: Any, console: Console) -> None:
    if not entries:
        return
    right = ["SM %", "SMs", "true", "predicted", "off by %", "error %", "match %"]
    drawn = Table(
        "SM share: time at the share / time on all SMs",
        ["workload", "device", "SM %", "SMs", "true", "method", *right[3:]],
        right=right,
        clip=["device", "workload"],
    )
    for entry in entries:
        known = entry["effective_sms"] is not None
        for each in entry["predictions"] or [{"method": _state(entry)}]:
            drawn.add_row(
                *_where_locked(entry),
                f"{entry['sm_percent']:g}{share_kind(entry)}",
                f"{entry['effective_sms']}/{entry['all_sms']}" if known else _NONE,
                _number(entry["speedup_true"]),
                each["method"],
                *(_number(each.get(f"speedup_{what}")) for what in ("predicted", "error_percent")),
                _number(each.get("error_percent")),
                _number(entry["match"] and entry["match"]["percent"]),
            )
    drawn.print(console)


def _render_flushed(entries: Any, console: Console) -> None:
    if not entries:
        return
    right = ["launches", "difference %", "median %", "worst %", "by selection %"]
    drawn = Table(
        "Flushed caches: |flushed - warm| / warm, in cycles",
        ["workload", "device", *right[:4], "worst launch", "method", right[4]],
        right=right,
        clip=["device", "workload"],
    )
    for entry in entries:
        worst = entry["worst"] or {}
        kernel = f"{worst['launch']} {clipped(worst['kernel'], 40)}" if worst else _NONE
        for each in entry["selections"] or [{"method": _state(entry)}]:
            drawn.add_row(
                *_where_locked(entry),
                _NONE if entry["launches"] is None else count(entry["launches"]),
                _number(entry["weighted_difference_percent"]),
                _number(entry["median_difference_percent"]),
                _number(worst.get("difference_percent")),
                kernel,
                each["method"],
                _number(each.get("weighted_difference_percent")),
            )
    drawn.print(console)


def _render_noise(entries: Any, console: Console) -> None:
    if not entries:
        return
    right = ["repeats", "deviation %"]
    drawn = Table(
        "Noise: standard deviation of the totals over repeats",
        ["workload", "device", "level", "condition", *right, "cost"],
        right=right,
        clip=["device", "workload"],
    )
    for entry in entries:
        drawn.add_row(
            *_runs_of(entry),
            count(entry["repeats"]),
            _number(entry["relative_standard_deviation_percent"]),
            entry["quantity"] or _NONE,
        )
    drawn.print(console)


def _render_overhead(entries: Any, console: Console) -> None:
    if not entries:
        return
    right = ["bare s", "profiled s", "overhead %"]
    drawn = Table(
        "Overhead: wall time of one execution without and with the profiler",
        ["workload", "device", "level", "condition", *right],
        right=right,
        clip=["device", "workload"],
    )
    for entry in entries:
        drawn.add_row(
            *_runs_of(entry),
            _number(entry["bare_wall_seconds"]),
            _number(entry["wall_seconds"]),
            _number(entry["overhead_percent"]),
        )
    drawn.print(console)


def _render_sequences(entries: Any, console: Console) -> None:
    if not entries:
        return
    right = ["launches", "there", "differing"]
    drawn = Table(
        "Launch sequences that differ: kernel, grid or block at the same place",
        ["workload", "device", "level", "condition", "run", "compared with", *right, "first difference"],
        right=right,
        clip=["device", "workload"],
    )
    for entry in entries:
        drawn.add_row(
            *_runs_of(entry),
            entry["run"],
            entry["reference"],
            count(entry["launches"]),
            count(entry["reference_launches"]),
            count(entry["differing"]) if entry["differing"] is not None else _NONE,
            _first_difference(entry),
        )
    drawn.print(console)


def _first_difference(entry: Entry) -> str:
    """Where two runs part, and what each launches there; kernels cut in their middle."""
    first = entry["first_difference"]
    if first is None:
        return _state(entry)
    there, here = (clipped(first[which], 72) for which in ("reference", "run"))
    return f"launch {first['launch']:,} of process {first['process']}: {here} instead of {there}"


def _where_locked(entry: Entry) -> tuple[str, str]:
    """The same with the clock, where it was locked: the rest of the condition is the table's subject."""
    clock = entry["condition"]["clock"]
    return entry["workload"], entry["device"] + (f", clock {clock}" if clock in ("base", "boost") else "")


def _runs_of(entry: Entry) -> tuple[str, str, str, str]:
    """Workload, GPU, level and condition."""
    under = f"{condition(entry['condition'])}{' MPS' if entry['under_mps'] else ''}"
    return *_where(entry), entry["level"], under


def _where(entry: Entry) -> tuple[str, str]:
    return clipped(entry["workload"], 40), clipped(entry["device"], 40)


def _state(entry: Entry) -> str:
    return _NONE if entry["status"] == "ok" else str(entry["status"])


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.2f}"
