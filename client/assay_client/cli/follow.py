"""Following a campaign: a bar on a terminal that can draw one, a line for every change elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from assay_client.cli.output import can_move, console
from assay_client.cli.reporters.campaign import described, waiting_lines
from assay_sampling.errors import RunFailedError
from assay_sampling.visible import visible

_NO_CAUSE = {"failure_class": "internal", "cause": "no cause was recorded", "remedy": ""}


def follow(
    statuses: Iterable[Mapping[str, Any]], *, quiet: bool = False, waits: bool = False
) -> Mapping[str, Any]:
    """Show each status on standard error until the last, which is returned.

    ``quiet`` leaves out the lines that a log would get; a terminal still shows the bar. ``waits`` also
    shows what waiting runs need and no agent offers: for a server whose agents came up long ago.
    """
    if can_move(console(error=True)):
        return _follow_with_bar(statuses, waits=waits)
    last: Mapping[str, Any] = {}
    before: list[str] = []
    for status in statuses:
        last = status
        lines = [described(status), *(waiting_lines(status["waiting"]) if waits else [])]
        for line in [] if quiet else lines:
            if line not in before:
                print(visible(line), file=sys.stderr, flush=True)
        before = lines
    return last


def _follow_with_bar(statuses: Iterable[Mapping[str, Any]], *, waits: bool) -> Mapping[str, Any]:
    last: Mapping[str, Any] = {}
    before: list[str] = []
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(error=True), transient=True) as progress:
        task = progress.add_task("waiting", total=None)
        for status in statuses:
            last = status
            ended = status["runs_done"] + status["runs_failed"]
            progress.update(task, description=described(status), completed=ended, total=status["runs_total"])
            lines = waiting_lines(status["waiting"]) if waits else []
            for line in lines:
                if line not in before:
                    progress.console.print(line, soft_wrap=True)
            before = lines
    return last


def raise_for_failure(status: Mapping[str, Any]) -> None:
    """Raise RunFailedError with the classified cause if the campaign or one of its runs did not succeed."""
    failed = [run for run in status["runs"] if run["state"] == "failed"]
    campaign_id = status["campaign_id"]
    if failed:
        first = failed[0]
        failure = first["failure"] or {
            "failure_class": "internal",
            "cause": "no cause was recorded",
            "remedy": "",
        }
        others = f" ({len(failed)} runs failed; this is the first)" if len(failed) > 1 else ""
        raise RunFailedError(
            f"run {first['run_id']}",
            f"{failure['cause']} [{failure['failure_class']}]{others}",
            failure["remedy"] or f"see: assay explain {first['run_id']}",
        )
    if status["state"] == "cancelled":
        raise RunFailedError(f"campaign {campaign_id}", "it was cancelled", "submit it again to run it")
    if status["state"] == "failed":
        failure = status["failure"] or _NO_CAUSE
        raise RunFailedError(f"campaign {campaign_id}", failure["cause"], failure["remedy"])
