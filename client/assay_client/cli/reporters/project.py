"""Draws projections: one launch as facts, a run as a table of its launches and their totals."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts
from assay_client.cli.reporters.text import clipped, count, percent, times
from assay_sampling.notes.registry import note_text

_LAUNCHES_SHOWN = 40


def render_projection(document: Mapping[str, Any], console: Console) -> None:
    """Draw the document of ``assay project``."""
    if "launches" in document:
        _render_run(document, console)
    else:
        _render_launch(document, console)


def _render_launch(document: Mapping[str, Any], console: Console) -> None:
    pairs = [
        ("file", str(document["file"])),
        ("rule", _rule(document)),
        (
            "samples",
            f"{count(document['samples'])}, the last at cycle {_cycles(document['last_sample_cycles'])}",
        ),
        ("blocks", f"{count(document['total_ctas'])}, {count(document['wave_ctas'])} in a wave"),
        ("stop", _stop(document)),
        ("projected", f"{_cycles(document['projected_cycles'])} cycles"),
    ]
    pairs += [
        (name, f"{_metric(metric['projected'])} (all samples: {_metric(metric['over_all_samples'])})")
        for name, metric in document["metrics"].items()
    ]
    print_facts(pairs, console)


def _render_run(document: Mapping[str, Any], console: Console) -> None:
    summary, simulator = document["summary"], document["simulator"]
    sms = f"{count(simulator['sms'])} SMs" if simulator["sms"] else "SMs as given"
    latency = simulator["launch_latency_cycles"]
    pairs = [
        ("file", str(document["file"])),
        ("intervals", str(document["intervals"] or "none: nothing can be projected")),
        ("rule", _rule(document)),
        ("simulated GPU", f"{sms}, launch latency {'unknown' if latency is None else count(latency)} cycles"),
        ("stopped", f"{count(summary['stopped'])} of {count(summary['launches'])} launches"),
        ("true cycles", _cycles(summary["true_cycles"])),
        ("projected", _with_error(summary)),
        ("simulated", f"{_cycles(summary['simulated_cycles'])} (speedup {times(summary['speedup'])})"),
        ("mean error", _mean_error(summary)),
        *[("note", clipped(note_text(note), 300)) for note in document["notes"]],
    ]
    print_facts(pairs, console)
    _render_launches(document["launches"], console)


def _render_launches(launches: list[Mapping[str, Any]], console: Console) -> None:
    numbers = ["id", "blocks", "waves", "true cycles", "stop", "projected", "error %"]
    drawn = Table("Launches", [*numbers, "kernel", "remark"], right=numbers, clip=["kernel", "remark"])
    for launch in launches[:_LAUNCHES_SHOWN]:
        total, wave = launch["total_ctas"], launch["wave_ctas"]
        error = launch["signed_error_percent"]
        drawn.add_row(
            str(launch["uid"] if launch["traced_id"] is None else launch["traced_id"]),
            count(total),
            f"{total / wave:,.2f}" if total and wave else "n/a",
            _cycles(launch["true_cycles"]),
            _cycles(launch["stop_cycles"], "-"),
            _cycles(launch["projected_cycles"]),
            "-" if launch["stop_cycles"] is None or error is None else f"{error:+,.2f}",
            clipped(launch["kernel"], 40),
            note_text(launch["reason"]) if launch["reason"] else "",
        )
    drawn.print(console)
    if len(launches) > _LAUNCHES_SHOWN:
        console.print(f"{len(launches) - _LAUNCHES_SHOWN} more launches are not shown; --json has them all")


def render_tbpoint(document: Mapping[str, Any], console: Console) -> None:
    """Draw the document of ``assay project --rule tbpoint``."""
    given = document["parameters"]
    pairs = [
        ("file", str(document["file"])),
        (
            "rule",
            f"tbpoint, stall threshold {given['stall_threshold']:g}, variance limit "
            f"{given['variance_limit']:g}, warm-up {given['warm_up_difference']:g}",
        ),
    ]
    if "summary" in document:
        summary = document["summary"]
        pairs += [
            ("instructions", f"by {document['intervals'] or 'a constant rate of each block'}"),
            ("skipping", f"{count(summary['skipping'])} of {count(summary['launches'])} launches"),
            ("cycles of blocks", _cycles(summary["block_cycles"])),
            ("projected", _with_error(summary)),
            ("simulated", f"{_cycles(summary['simulated_cycles'])} (speedup {times(summary['speedup'])})"),
            ("mean error", f"{percent(summary['mean_error_percent'])} of the launches that skip blocks"),
            *[("note", clipped(str(note), 300)) for note in document["notes"]],
        ]
    print_facts(pairs, console)
    _sampled_table(document["launches"]).print(console)
    _regions_table(document["launches"]).print(console)


def _sampled_table(launches: list[Mapping[str, Any]]) -> Table:
    numbers = ["id", "blocks", "at once", "regions", "skipped %", "projected", "error %", "speedup"]
    drawn = Table("Launches", [*numbers, "kernel", "remark"], right=numbers, clip=["kernel", "remark"])
    for launch in launches[:_LAUNCHES_SHOWN]:
        error = launch.get("signed_error_percent")
        drawn.add_row(
            str(launch.get("uid") if launch["traced_id"] is None else launch["traced_id"]),
            count(launch["total_ctas"]),
            count(launch["wave_ctas"]),
            count(len(launch["regions"])),
            percent(launch.get("skipped_instructions_percent")),
            _cycles(launch.get("projected_cycles"), "-"),
            "-" if error is None else f"{error:+,.2f}",
            times(launch.get("speedup")),
            clipped(launch["kernel"], 40),
            launch.get("reason") or "",
        )
    return drawn


def _regions_table(launches: list[Mapping[str, Any]]) -> Table:
    columns = ["id", "region", "first block", "last block", "kind", "stall probability"]
    drawn = Table(f"Regions (the first {_LAUNCHES_SHOWN}; --json has all)", columns, right=columns)
    rows = ((launch, region) for launch in launches for region in launch["regions"])
    for launch, region in islice(rows, _LAUNCHES_SHOWN):
        drawn.add_row(
            str(launch.get("uid") if launch["traced_id"] is None else launch["traced_id"]),
            *(count(region[name]) for name in ("region", "first_block", "last_block", "cluster")),
            f"{region['stall_probability']:.3f}",
        )
    return drawn


def _rule(document: Mapping[str, Any]) -> str:
    given = document["parameters"]
    name = document.get("rule") or given["rule"] or "instructions (paper where the total is unknown)"
    return f"{name}, window {given['window_cycles']:,g} cycles, s {given['s']:g}"


def _stop(document: Mapping[str, Any]) -> str:
    if document["stop_cycles"] is None:
        return f"none: {note_text(document['reason'])}"
    return f"at cycle {_cycles(document['stop_cycles'])}, {document['finished_ctas']:g} blocks finished"


def _with_error(summary: Mapping[str, Any]) -> str:
    error = summary["signed_error_percent"]
    shown = "" if error is None else f" ({error:+,.2f} %)"
    return f"{_cycles(summary['projected_cycles'])}{shown}"


def _mean_error(summary: Mapping[str, Any]) -> str:
    total, active = summary["mean_error_percent"], summary["mean_active_error_percent"]
    return f"{percent(total)} of the launches that stop ({percent(active)} of cycles without launch latency)"


def _cycles(value: float | None, missing: str = "n/a") -> str:
    return missing if value is None else f"{value:,.0f}"


def _metric(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4g}"
