"""Draws campaigns and the states of their runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from assay_client.cli.reporters.estimates import eta_in_words
from assay_client.cli.reporters.tables import SYNTHETIC_NOTICE, Table
from assay_client.cli.reporters.text import ASSUMED, clipped, condition_of, count, counted, size
from assay_client.cli.reporters.warnings import render_warnings
from assay_core.identity.roles import OWNER_NAME
from assay_sampling.visible import visible

_MOST_RUNS_NAMED = 5


def render_overview(overview: Mapping[str, Any], console: Console) -> None:
    """Draw the campaigns of a server, the slots that rest, and files that were moved aside."""
    render_campaigns(overview["campaigns"], console)
    for line in resting_lines(overview["resting"]):
        console.print(line, soft_wrap=True)
    for moved in overview["set_aside"]:
        console.print(visible(_set_aside(moved)), soft_wrap=True)
    for each in overview["changed_records"]:
        notice = f"{each['file']} of run {each['run_id']} is {each['what']} since its report was made"
        console.print(visible(notice), soft_wrap=True)
    if overview["shortage"]:
        console.print(visible(_shortage(overview["shortage"])), soft_wrap=True)
    for spool in overview["spools"]:
        for line in _spool_lines(spool):
            console.print(visible(line), soft_wrap=True)


def _shortage(shortage: Mapping[str, Any]) -> str:
    used, limit = shortage["used_bytes"], shortage["limit_bytes"]
    if limit and used >= limit:
        why = f"published records take {size(used)} of {size(limit)} (--records-limit)"
    else:
        free, least = size(shortage["free_bytes"]), size(shortage["minimum_free_bytes"])
        why = f"its disk has {free} left, and {least} must stay free (--minimum-free)"
    return (
        f"the server accepts no new work: {why}; archive or delete campaigns that have ended "
        "(assay lab campaigns archive ID -o FILE --yes)"
    )


def _spool_lines(spool: Mapping[str, Any]) -> Iterator[str]:
    agent = spool["agent"]
    if spool["waits"]:
        used, limit = size(spool["used_bytes"]), size(spool["limit_bytes"])
        yield (
            f"the spool of agent {agent} is full ({used} of {limit}): no run starts there until it has sent "
            "some of it to this server"
        )
    if spool["damaged"]:
        files = counted(spool["damaged"], "damaged file", "damaged files")
        yield (
            f"agent {agent} found {files} in its spool and measured again: check its disk, then remove "
            "spool-damaged from its state folder"
        )


_WHY_SET_ASIDE = {
    "unknown_to_database": "the database does not know them: it may be a backup older than these files",
    "changed": "they differ from what was stored, so their runs are measured again",
}


def _set_aside(moved: Mapping[str, Any]) -> str:
    names = moved["names"]
    rest = moved["files"] - len(names)
    listed = ", ".join(names) + (f" and {rest:,} more" if rest > 0 else "")
    why = _WHY_SET_ASIDE.get(moved["reason"], moved["reason"])
    what = counted(moved["files"], "file", "files")
    return f"set aside in {moved['folder']}: {what} ({listed}); {why}; look at them, then remove the folder"


def render_campaigns(campaigns: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Draw one line for each campaign."""
    if not campaigns:
        console.print("no campaigns yet; submit one with: assay lab submit CAMPAIGN")
        return
    numbers = ["runs", "done", "failed"]
    # On one box everything belongs to the owner of the server's socket.
    people = {campaign["owner_name"] for campaign in campaigns} - {"", OWNER_NAME}
    whose = [name for name in ("owner", "project") if people]
    drawn = Table("Campaigns", ["campaign", *whose, "state", *numbers, "data"], right=numbers)
    for campaign in campaigns:
        drawn.add_row(
            campaign["campaign_id"],
            *([campaign["owner_name"], campaign["project"]] if people else []),
            state_of(campaign),
            count(campaign["runs_total"]),
            count(campaign["runs_done"]),
            count(campaign["runs_failed"]),
            "synthetic" if campaign["synthetic"] else "measured",
        )
    drawn.print(console)


def render_submitted(campaign: Mapping[str, Any], console: Console) -> None:
    """Draw the id of a new campaign, its warnings, and how to follow it."""
    campaign_id = campaign["campaign_id"]
    console.print(f"{campaign_id}: {count(campaign['runs_total'])} runs planned")
    render_warnings(campaign["warnings"], console)
    console.print(f"follow it with: assay lab status {campaign_id} --follow")


def render_campaign(campaign: Mapping[str, Any], console: Console) -> None:
    """Draw a campaign with its runs, flags and failures."""
    console.print(visible(described(campaign)), soft_wrap=True)
    if campaign["synthetic"]:
        console.print(SYNTHETIC_NOTICE)
    if campaign["failure"]:
        console.print(describe_failure(campaign["failure"]))
    drawn = Table(
        "Runs",
        [
            "run",
            "workload",
            "device",
            "level",
            "condition",
            "state",
            "slices",
            "retries",
            "launches",
            "flags",
        ],
        right=["slices", "retries", "launches"],
    )
    for run in campaign["runs"]:
        drawn.add_row(
            run["run_id"],
            clipped(run["workload"], 30),
            clipped(run["device_kind"], 30),
            run["level"],
            condition_of(run),
            state_of(run),
            f"{run['slices_done']:,}/{run['slices']:,}" if run["slices"] else "-",
            count(run["retries"]),
            count(run["launches"]),
            ", ".join(flag["name"] for flag in run["flags"] if flag["name"] != ASSUMED),
        )
    drawn.print(console)
    for line in (*waiting_lines(campaign["waiting"]), *resting_lines(campaign["resting"])):
        console.print(line, soft_wrap=True)
    for line in failure_lines(campaign["runs"]):
        console.print(line)


def failure_lines(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each failure once, with the runs that it ended: a missing tool ends all of them in the same way."""
    ended: dict[str, list[str]] = {}
    for run in runs:
        if run["failure"]:
            ended.setdefault(describe_failure(run["failure"]), []).append(run["run_id"])
    return [f"{_runs_named(names)}: {why}" for why, names in ended.items()]


def _runs_named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_RUNS_NAMED
    named = ", ".join(names[:_MOST_RUNS_NAMED])
    return f"{named} and {counted(more, 'more run', 'more runs')}" if more > 0 else named


def described(campaign: Mapping[str, Any]) -> str:
    """One line: ``demo-1 running: 3 of 8 runs done, 1 running, 5 of 14 slices, 2 retries``.

    Slices are left out if every run has one; a retry is an attempt beyond the first of its slice.
    """
    running, slices = campaign["runs_running"], campaign["slices"]
    complete, retries = campaign["slices_done"], campaign["retries"]
    parts = [f"{count(campaign['runs_done'])} of {count(campaign['runs_total'])} runs done"]
    parts += [f"{count(running)} running"] if running else []
    parts += [f"{count(campaign['runs_failed'])} failed"] if campaign["runs_failed"] else []
    cancelled, paused = campaign["runs_cancelled"], campaign["runs_paused"]
    parts += [f"{count(cancelled)} cancelled"] if cancelled and campaign["state"] != "cancelled" else []
    parts += [f"{count(paused)} paused"] if paused else []
    parts += [f"{count(complete)} of {count(slices)} slices done"] if slices > campaign["runs_total"] else []
    parts += [counted(retries, "retry", "retries")] if retries else []
    parts += cost_parts(campaign)
    return f"{campaign['campaign_id']} {state_of(campaign)}: {', '.join(parts)}"


def cost_parts(campaign: Mapping[str, Any]) -> list[str]:
    """GPU hours so far, and the estimate until the runs are done, of a campaign that runs."""
    hours, eta = campaign["gpu_hours"], campaign["eta"]
    parts = [f"{hours:.1f} GPU hours"] if hours >= 0.05 else []
    if campaign["state"] in ("running", "analysing") and eta["remaining_ms"] is not None:
        parts.append(f"done in {eta_in_words(eta)}")
    return parts


def state_of(thing: Mapping[str, Any]) -> str:
    """The state of a campaign or run, and whether it is paused."""
    return f"{thing['state']}, paused" if thing["paused"] else str(thing["state"])


def waiting_lines(waiting: Sequence[Mapping[str, Any]]) -> list[str]:
    """What waiting runs need and no agent offers: a line for each reason, with the runs that wait."""
    by_reason: dict[str, tuple[str, int]] = {}
    for each in waiting:
        first, runs = by_reason.get(each["reason"], (each["first_run_id"], 0))
        by_reason[each["reason"]] = (first, runs + each["runs"])
    return [
        visible(f"{first}{f' and {runs - 1:,} more' if runs > 1 else ''} waiting: {reason}")
        for reason, (first, runs) in by_reason.items()
    ]


def resting_lines(rests: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each slot that takes no runs for a while: for how long, why, and what to do."""
    return [visible(_rest_line(rest)) for rest in rests]


def _rest_line(rest: Mapping[str, Any]) -> str:
    seconds = -(-rest["remaining_ms"] // 1000)
    failures = counted(rest["failures"], "failure", "failures")
    why = describe_failure(rest["failure"])
    return f"slot {rest['slot']} of agent {rest['agent']} rests for {seconds:,} s after {failures}: {why}"


def describe_failure(failure: Mapping[str, Any]) -> str:
    """``subject: cause [class]; remedy``."""
    subject = f"{failure['subject']}: " if failure["subject"] else ""
    remedy = f"; {failure['remedy']}" if failure["remedy"] else ""
    return visible(f"{subject}{failure['cause']} [{failure['failure_class']}]{remedy}")
