"""Draws what ``assay simulate`` does and finds: progress, the table of designs, speedups, failures."""

from __future__ import annotations

from rich.console import Console

from assay_client.cli.reporters.tables import Table, print_facts
from assay_client.cli.reporters.text import clipped, count, counted, percent, times
from assay_client.simulating.driver import Outcome, Progress
from assay_report.texts import ratio
from assay_sampling.documents.designs import DesignEntry, DesignLaunch, DesignsDocument, SpeedupEntry

_SHOWN_RUNNING = 3
_SHOWN_FAILURES = 10
_SHOWN_PROJECTED = 20
_WARMED = {"none": "none", "tail": "last 160 blocks of the launch before", "whole": "the launch before"}


def progress_line(progress: Progress) -> str:
    """What runs, how far, and until when."""
    parts = [f"{progress.completed} of {counted(progress.launches, 'launch', 'launches')} simulated"]
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    for each in progress.running[:_SHOWN_RUNNING]:
        ipc = "" if each.progress.ipc is None else f" at IPC {each.progress.ipc:,.0f}"
        parts.append(f"{each.folder.name}{_on(each.where)}: {100 * each.share:.0f} %{ipc}")
    if (more := len(progress.running) - _SHOWN_RUNNING) > 0:
        parts.append(f"{more} more run")
    if progress.seconds_left is not None:
        parts.append(f"about {_span(progress.seconds_left)} left")
    return "; ".join([*parts, *progress.notices])


def ended_line(outcome: Outcome) -> str:
    """One launch that has ended."""
    if outcome.numbers is not None:
        numbers = outcome.numbers
        ipc = numbers.instructions / max(numbers.cycles, 1)
        early = "" if numbers.stop_cycles is None else f", projected at cycle {numbers.stop_cycles:,}"
        return (
            f"{outcome.folder.name}{_on(outcome.where)}: {numbers.cycles:,} cycles{early}, IPC {ipc:,.1f}, "
            f"{numbers.wall_seconds:,.1f} s"
        )
    assert outcome.failure is not None
    return f"{outcome.folder.name}{_on(outcome.where)}: {outcome.failure.kind}: {outcome.failure.cause}"


def render_designs(document: DesignsDocument, console: Console) -> None:
    """Draw the designs, their speedups, what failed, and what it cost."""
    for table in design_tables(document).values():
        table.print(console)
    if projected := [each for each in document.launches if each.stop_cycles is not None]:
        _projected(projected, console)
    for failure in document.failures[:_SHOWN_FAILURES]:
        which = f"{failure.design}, launch {failure.sim_id} ({clipped(failure.kernel, 60)})"
        console.print(f"\n{which}: {failure.kind}", soft_wrap=True)
        print_facts(
            [
                ("cause", failure.cause),
                ("remedy", failure.remedy),
                ("log", failure.log),
                *(("", clipped(line, 110)) for line in failure.last_lines),
            ],
            console,
        )
    if len(document.failures) > _SHOWN_FAILURES:
        console.print(f"and {len(document.failures) - _SHOWN_FAILURES:,} more failures: --json has them all")
    console.print()
    print_facts(_facts(document), console)


def design_tables(document: DesignsDocument) -> dict[str, Table]:
    """By name: what each design did, and its speedup over the first."""
    tables = {"designs": _designs(document)}
    if document.speedups:
        tables["speedups"] = _speedups(document.speedups)
    return tables


def _designs(document: DesignsDocument) -> Table:
    right = ["launches", "cycles", "IPC", "L2 requests", "L2 misses", "DRAM reads", "DRAM writes", "CPU s"]
    table = Table(f"{document.workload} by design, weighted totals", ["design", *right], right=right)
    for each in document.designs:
        table.add_row(
            each.name,
            f"{each.simulated:,}" + (f" ({each.failed:,} failed)" if each.failed else ""),
            _whole(each.cycles),
            ratio(each.ipc),
            _whole(each.l2_accesses),
            percent(each.l2_miss_percent),
            _whole(each.dram_reads),
            _whole(each.dram_writes),
            ratio(each.cpu_seconds),
        )
    return table


def _speedups(speedups: list[SpeedupEntry]) -> Table:
    right = ["speedup", "interval", "without latency", "not vouched for"]
    table = Table(f"speedup over {speedups[0].over}, in cycles", ["design", *right], right=right)
    for each in speedups:
        interval = each.interval
        table.add_row(
            each.design,
            times(each.speedup),
            "none" if interval is None else f"{ratio(interval.low)} to {ratio(interval.high)}",
            times(each.active_speedup),
            percent(each.not_vouched_percent),
        )
    return table


def _projected(launches: list[DesignLaunch], console: Console) -> None:
    right = ["launch", "stopped at cycle", "projected cycles", "simulated"]
    table = Table("projected launches", ["design", *right, "kernel"], right=right)
    for each in launches[:_SHOWN_PROJECTED]:
        share = 100 * (each.stop_cycles or 0) / each.cycles
        table.add_row(
            each.design,
            str(each.sim_id),
            f"{each.stop_cycles:,}",
            f"{each.cycles:,}",
            percent(share, 1),
            clipped(each.kernel, 60),
        )
    table.print(console)
    if len(launches) > _SHOWN_PROJECTED:
        console.print(f"and {len(launches) - _SHOWN_PROJECTED:,} more: --json has them all")


def _facts(document: DesignsDocument) -> list[tuple[str, str]]:
    selection = document.selection
    facts = [
        ("selection", f"{selection.path} ({selection.method}), weights by {document.weights}"),
        ("simulator", document.simulator),
        ("warm-up", _WARMED[document.warm_up]),
    ]
    if document.stop != "none":
        facts += [
            (
                "projected",
                f"{each.name}: {each.projected:,} of {counted(each.simulated, 'launch', 'launches')} by the "
                f"rule {document.stop}; {percent(each.simulated_cycles_percent, 1)} of all cycles simulated",
            )
            for each in document.designs
        ]
    facts += [("GPU", f"{each.name}: {each.gpu}") for each in document.designs if each.gpu is not None]
    facts += [("cost", cost) for each in document.designs if (cost := _cost(each))]
    for each in document.designs:
        facts += [
            (
                "cold start",
                f"{each.name}: {cold.percent:+.2f} % of the cycles after --warm-up {cold.warm_up}, by "
                f"{counted(cold.launches, 'launch', 'launches')} of {cold.of:,} simulated both ways; no "
                "interval has it",
            )
            for cold in each.cold_start
        ]
    reasons = dict.fromkeys(
        each.interval_reason.text for each in document.speedups if each.interval_reason is not None
    )
    facts += [("no interval", reason) for reason in reasons]
    facts += [("note", note.text) for note in document.notes]
    return facts


def _cost(design: DesignEntry) -> str:
    if design.cpu_seconds is None or design.whole_cpu_seconds is None:
        return ""
    saved = design.whole_cpu_seconds / design.cpu_seconds if design.cpu_seconds > 0 else None
    return (
        f"{design.name}: {design.cpu_seconds:,.1f} CPU s; all launches would take about "
        f"{design.whole_cpu_seconds:,.0f}, {times(saved)} as much (estimated by the weights)"
    )


def _on(where: str) -> str:
    return f" on {where}" if where else ""


def _whole(value: float | None) -> str:
    return count(None if value is None else round(value))


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
