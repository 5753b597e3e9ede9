"""Draws a campaign while it runs: how far it is, what its GPUs do, and the runs that need attention."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.campaign import described, resting_lines, state_of, waiting_lines
from assay_client.cli.reporters.tables import SYNTHETIC_NOTICE, Table
from assay_client.cli.reporters.text import ASSUMED, clipped, condition_of, counted
from assay_client.visible_console import VisibleConsole
from assay_sampling.visible import visible

_BAR_CELLS = 40
_FEWEST_ROWS = 3
# What stands around the two tables: the sentence, the bar, headings, and lines that say what was left out.
_OTHER_LINES = 14


@dataclass(frozen=True)
class LiveView:
    """What is known of a campaign now.

    Args:
        status: the campaign, as from :meth:`assay_client.remote.client.Client.watch`.
        runs: its runs; None while they are not known, or are too many to fetch again and again.
        gpus: every GPU of the lab.
    """

    status: Mapping[str, Any]
    runs: Sequence[Mapping[str, Any]] | None = None
    gpus: Sequence[Mapping[str, Any]] = ()


def live_text(view: LiveView, width: int, height: int) -> str:
    """The view as text for a terminal of this size: lines of ``width``, about ``height`` of them.

    Reasons are wrapped, never cut; rows that do not fit are counted.
    """
    page = io.StringIO()
    # As a file, so that it draws text alone; as a terminal, so that tables fit its width.
    console = VisibleConsole(
        file=page,
        width=width,
        force_terminal=True,
        no_color=True,
        color_system=None,
        markup=False,
        emoji=False,
        highlight=False,
    )
    rows = max(_FEWEST_ROWS, (height - _OTHER_LINES) // 2)
    status = view.status
    console.print(visible(described(status)))
    console.print(_bar(status["runs_done"] + status["runs_failed"], status["runs_total"], width))
    if status["synthetic"]:
        console.print(SYNTHETIC_NOTICE)
    _draw_gpus(view, console, rows)
    _draw_runs(view, console, rows)
    for line in (*waiting_lines(status["waiting"]), *resting_lines(status["resting"])):
        console.print(line)
    return page.getvalue().rstrip("\n")


def _bar(ended: int, total: int, width: int) -> str:
    cells = max(0, min(_BAR_CELLS, width - len("[] 100 % ")))
    full = cells * ended // total if total else 0
    return f"[{'#' * full}{'.' * (cells - full)}] {100 * ended / total if total else 0:.0f} %"


def _draw_gpus(view: LiveView, console: Console, most: int) -> None:
    """The GPUs that run something of this campaign."""
    prefix = f"{view.status['campaign_id']}."
    at_work = [gpu for gpu in view.gpus if (gpu["run_id"] or "").startswith(prefix)]
    workloads = {run["run_id"]: run["workload"] for run in view.runs or ()}
    drawn = Table("GPUs at work", ["GPU", "agent", "run", "workload", "since"], clip=["workload"])
    for gpu in at_work[:most]:
        drawn.add_row(
            clipped(gpu["name"], 24),
            clipped(gpu["agent"], 16),
            gpu["run_id"] + (f" slice {gpu['slice']}" if gpu["slice"] else ""),
            clipped(workloads.get(gpu["run_id"], "-"), 30),
            _clock(gpu["leased_at"]),
        )
    if drawn.rows:
        drawn.print(console)
    if len(at_work) > most:
        console.print(f"and {counted(len(at_work) - most, 'more GPU', 'more GPUs')}: assay lab gpus")


def _draw_runs(view: LiveView, console: Console, most: int) -> None:
    """The runs that failed, were retried or flagged, and those that run."""
    worth = list(_worth_a_look(view.runs or ()))
    drawn = Table("Needs attention", ["run", "workload", "level", "condition", "state", "flags"])
    for run in worth[:most]:
        flags = [flag["name"] for flag in run["flags"] if flag["name"] != ASSUMED]
        again = counted(run["retries"], "retry", "retries") if run["retries"] else ""
        drawn.add_row(
            run["run_id"],
            clipped(run["workload"], 24),
            run["level"],
            condition_of(run),
            state_of(run),
            ", ".join([*flags, *([again] if again else [])]),
        )
    if drawn.rows:
        drawn.print(console)
    rest = len(worth) - most
    if rest > 0:
        console.print(
            f"and {counted(rest, 'more run', 'more runs')}: assay lab status {view.status['campaign_id']}"
        )


def _worth_a_look(runs: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Failed runs first, then what was retried or flagged."""
    yield from (run for run in runs if run["state"] == "failed")
    for run in runs:
        flagged = any(flag["name"] != ASSUMED for flag in run["flags"])
        if run["state"] != "failed" and (flagged or run["retries"]):
            yield run


def _clock(moment: str | None) -> str:
    """``14:03:07``, of this machine's time zone."""
    return datetime.fromisoformat(moment).astimezone().strftime("%H:%M:%S") if moment else "-"
