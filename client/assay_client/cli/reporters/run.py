"""Draws a run with its attempts: command, environment, log, flags."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.campaign import describe_failure
from assay_client.cli.reporters.provenance import render_facts
from assay_client.cli.reporters.tables import print_facts
from assay_client.cli.reporters.text import condition, count
from assay_sampling.visible import visible


def render_run(run: Mapping[str, Any], console: Console) -> None:
    """Draw the run, then each attempt."""
    pairs = [
        ("run", run["run_id"]),
        ("workload", run["workload"]),
        ("device", run["device_kind"]),
        ("level", run["level"]),
        ("condition", condition(run["condition"])),
        ("state", run["state"]),
        ("launches", count(run["launches"])),
        ("agent", run["agent"] or "none yet"),
    ]
    pairs += [("file", name) for name in run["files"]]
    print_facts(pairs, console)
    for attempt in run["attempts"]:
        _render_attempt(attempt, console)


_QUANTITIES = (
    ("SM clock", "sm_clock_mhz", "MHz"),
    ("memory clock", "memory_clock_mhz", "MHz"),
    ("temperature", "temperature_celsius", "°C"),
    ("power", "power_watts", "W"),
)


def _seen_of_the_gpu(telemetry: Mapping[str, Any]) -> str:
    """Its sensors in one line; ``--json`` has the samples."""
    if telemetry.get("problem") and not telemetry.get("samples"):
        return str(telemetry["problem"])
    parts = [f"{telemetry.get('samples', 0):,} samples of {telemetry.get('source', '?')}"]
    if telemetry.get("synthetic"):
        parts[0] += " (synthetic)"
    for name, key, unit in _QUANTITIES:
        extremes = telemetry.get(key)
        if extremes:
            parts.append(f"{name} {extremes['least']:,.0f} to {extremes['greatest']:,.0f} {unit}")
    reasons = telemetry.get("event_reasons")
    return "; ".join([*parts, *([f"clock events {', '.join(reasons)}"] if reasons else [])])


def _render_attempt(attempt: Mapping[str, Any], console: Console) -> None:
    counts = " (it counts)" if attempt["counts"] else ""
    pairs = [
        (f"attempt {attempt['attempt']}", f"of slice {attempt['slice']}: {attempt['state']}{counts}"),
        ("agent", f"{attempt['agent']}, slot {attempt['slot']}"),
        ("time", f"{attempt['leased_at'] or '?'} to {attempt['ended_at'] or 'now'}"),
        ("launches", count(attempt["launches"])),
    ]
    if attempt["failure"]:
        pairs.append(("failure", describe_failure(attempt["failure"])))
    if attempt["command"]:
        pairs.append(("command", shlex.join(attempt["command"])))
    if attempt.get("wall_seconds"):
        pairs.append(("measured for", f"{attempt['wall_seconds']:,.1f} s"))
    if attempt.get("telemetry"):
        pairs.append(("GPU", _seen_of_the_gpu(attempt["telemetry"])))
    pairs += [("environment", f"{name}={value}") for name, value in attempt["environment"].items()]
    console.print()
    print_facts(pairs, console)
    render_facts(attempt.get("facts"), console)
    if attempt["log"]:
        console.print("log")
        for line in attempt["log"].splitlines():
            console.print(f"  {visible(line)}", soft_wrap=True)
