"""Draws projections: one launch as facts, a run as a table of its launches and their totals."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts
from assay_client.cli.reporters.text import clipped, count, percent, times
from assay_report.texts import with_sign
from assay_sampling.notes.registry import note_text

_LAUNCHES_SHOWN = 40
_WITHOUT_INTERVALS = (
    "none, so nothing can be projected: give --intervals FILE, which Accel-Sim writes with "
    "-visualizer_enabled 1 -gpgpu_runtime_stat 500:0"
)


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
        ("intervals", str(document["intervals"] or _WITHOUT_INTERVALS)),
        ("rule", _rule(document)),
        ("simulated GPU", f"{sms}, launch latency {'unknown' if latency is None else count(latency)} cycles"),
        ("stopped", f"{count(summary['stopped'])} of {count(summary['launches'])} launches"),
        ("true cycles", _cycles(summary["true_cycles"])),
        ("projected", _with_error(summary)),
        ("simulated", _simulated(summary)),
        *_errors(summary),
        *[("note", clipped(note_text(note), 300)) for note in document["notes"]],
    ]
    print_facts(pairs, console)
    _render_launches(document["launches"], console)
    if document["intervals"]:
        _render_unstopped(document["launches"], console)  # without them the first lines say it once for all


def _render_launches(launches: list[Mapping[str, Any]], console: Console) -> None:
    numbers = ["id", "blocks", "waves", "true cycles", "stop", "projected", "error %", "active %"]
    drawn = Table("Launches", [*numbers, "kernel"], right=numbers, clip=["kernel"])
    for launch in launches[:_LAUNCHES_SHOWN]:
        total, wave = launch["total_ctas"], launch["wave_ctas"]
        drawn.add_row(
            _id(launch),
            count(total),
            f"{total / wave:,.2f}" if total and wave else "n/a",
            _cycles(launch["true_cycles"]),
            _cycles(launch["stop_cycles"], "-"),
            _cycles(launch["projected_cycles"]),
            _signed(launch, "signed_error_percent"),
            _signed(launch, "active_error_percent"),
            clipped(launch["kernel"], 40),
        )
    drawn.print(console)
    if len(launches) > _LAUNCHES_SHOWN:
        console.print(f"{len(launches) - _LAUNCHES_SHOWN} more launches are not shown; --json has them all")


def _signed(launch: Mapping[str, Any], name: str) -> str:
    error = launch[name]
    return "-" if launch["stop_cycles"] is None or error is None else with_sign(error)


def _render_unstopped(launches: list[Mapping[str, Any]], console: Console) -> None:
    unstopped = [launch for launch in launches if launch["stop_cycles"] is None]
    if not unstopped:
        return
    title = f"Launches that do not stop (the first {_LAUNCHES_SHOWN})"
    drawn = Table(title, ["id", "why the rule does not, and which rules would"], right=["id"])
    for launch in unstopped[:_LAUNCHES_SHOWN]:
        reason = note_text(launch["reason"]) if launch["reason"] else ""
        drawn.add_row(_id(launch), reason or "no reason was recorded")
        drawn.add_row("", f"would stop: {_would_stop(launch)}")
    drawn.print(console)


def _id(launch: Mapping[str, Any]) -> str:
    return str(launch["uid"] if launch["traced_id"] is None else launch["traced_id"])


def _would_stop(launch: Mapping[str, Any]) -> str:
    """The rules that would stop, at which threshold, and their error where the true cycles are known."""
    rules = []
    for each in launch["would_stop"]:
        name = "s" if each["parameter"] == "s" else "tolerance"
        error = each["signed_error_percent"]
        rules.append(
            f"{each['rule']} {name} {each['value']:g}"
            + ("" if error is None else f" ({with_sign(error, 1)} %)")
        )
    return ", ".join(rules) or "none"


def render_tbpoint(document: Mapping[str, Any], console: Console) -> None:
    """Draw the document of ``assay project --rule tbpoint``."""
    parameters = document["parameters"]
    pairs = [
        ("file", str(document["file"])),
        (
            "rule",
            f"tbpoint, stall threshold {parameters['stall_threshold']:g}, variance limit "
            f"{parameters['variance_limit']:g}, warm-up {parameters['warm_up_difference']:g}",
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
            "-" if error is None else with_sign(error),
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
    parameters = document["parameters"]
    names = {launch["rule"] for launch in document.get("launches", [document])} - {None}
    name = parameters["rule"] or " or ".join(sorted(names)) or "waves"
    settings = [f"tolerance {parameters['tolerance_percent']:g} %"] if "waves" in name else []
    if name != "waves":
        settings.append(f"window {parameters['window_cycles']:,g} cycles, s {parameters['s']:g}")
    return f"{name}, {', '.join(settings)}"


def _stop(document: Mapping[str, Any]) -> str:
    if document["stop_cycles"] is None:
        return f"none: {note_text(document['reason'])}; would stop: {_would_stop(document)}"
    return f"at cycle {_cycles(document['stop_cycles'])}, {document['finished_ctas']:g} blocks finished"


def _with_error(summary: Mapping[str, Any]) -> str:
    error = summary["signed_error_percent"]
    shown = "" if error is None else f" ({with_sign(error)} %)"
    return f"{_cycles(summary['projected_cycles'])}{shown}"


def _simulated(summary: Mapping[str, Any]) -> str:
    saved, active = percent(summary["saved_percent"]), percent(summary["active_saved_percent"])
    return (
        f"{_cycles(summary['simulated_cycles'])} (speedup {times(summary['speedup'])}; saved {saved} of all "
        f"cycles, {active} of those without launch latency)"
    )


def _errors(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Errors of all cycles, and of those without the launch latency."""
    facts = []
    for name, prefix, total in (
        ("errors", "", "signed_error_percent"),
        ("active errors", "active_", "active_error_percent"),
    ):
        facts.append(
            (
                name,
                f"mean {percent(summary[f'mean_{prefix}error_percent'])} of the launches that stop, "
                f"{percent(summary[f'mean_{prefix}error_over_all_percent'])} of all launches; largest "
                f"{percent(summary[f'largest_{prefix}error_percent'])}; total {percent(summary[total])}",
            )
        )
    return facts


def _cycles(value: float | None, missing: str = "n/a") -> str:
    return missing if value is None else f"{value:,.0f}"


def _metric(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4g}"
