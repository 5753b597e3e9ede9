"""``assay-agent quarantine``: lists the lost GPUs of this box, and puts one back into service."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from assay_agent.config import AgentSettings
from assay_agent.health import lost_gpu as health
from assay_agent.health.quarantine import UNREADABLE, Quarantine, Quarantined, named
from assay_core.settings.command_line import with_settings
from assay_sampling.errors import ParameterError, RefusedError

quarantine_app = typer.Typer(
    help="List lost GPUs that take no runs, or return one to service.", no_args_is_help=True
)

_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@quarantine_app.callback()
def _quarantine() -> None:
    """List lost GPUs that take no runs, or return one to service."""


@quarantine_app.command("list")
@with_settings(AgentSettings, "state_dir")
def list_(
    *,
    settings: AgentSettings,
    as_json: _Json = False,
) -> None:
    """List GPUs that are out of service, since when, and why."""
    entries = Quarantine(settings.state_dir).entries()
    if as_json:
        typer.echo(json.dumps({"quarantined": [_document(entry) for entry in entries]}, indent=2))
        return
    for entry in entries:
        typer.echo(f"{entry.index:>3}  {entry.gpu}  {entry.name}, since {_time(entry)}: {entry.reason}")
        typer.echo(f"     lost in {entry.run}; {_remedy(entry)}")
    if not entries:
        typer.echo("no GPU is out of service")


@quarantine_app.command()
@with_settings(AgentSettings, "state_dir")
def clear(
    gpu: Annotated[str, typer.Argument(metavar="UUID|INDEX", help="As 'quarantine list' names it.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Even if the driver objects.")] = False,
    settings: AgentSettings,
    as_json: _Json = False,
) -> None:
    """Return a GPU to service; a running agent notices within a second or two.

    The driver is asked first: a GPU that does not answer, or has an error pending, stays out of service
    unless --force is given.
    """
    entry = _one_entry(Quarantine(settings.state_dir), gpu)
    problem = "" if entry.synthetic or force else health.ask(entry.gpu)
    if problem:
        raise RefusedError(
            f"GPU {entry.gpu}",
            f"the driver still reports a problem with it: {problem}",
            "reset the GPU or reboot the box first; --force lets it be used anyway",
        )
    Quarantine(settings.state_dir).remove(entry.gpu)
    if as_json:
        typer.echo(json.dumps({"cleared": _document(entry)}, indent=2))
    else:
        typer.echo(f"{entry.gpu} ({entry.name}) may take runs again; it was out of service: {entry.reason}")


def _one_entry(quarantine: Quarantine, which: str) -> Quarantined:
    """The one entry that matches; raises ParameterError."""
    entries = quarantine.entries()
    matching = list(named(entries, which))
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise ParameterError(
            f"GPU {which!r}",
            f"it matches {len(matching)} GPUs out of service: {', '.join(e.gpu for e in matching)}",
            "give the whole UUID",
        )
    if quarantine.holds(which):
        return Quarantined(gpu=which, index=-1, name="unknown", reason=UNREADABLE, run="", since_s=0)
    uuids = ", ".join(entry.gpu for entry in entries) or "none"
    raise ParameterError(
        f"GPU {which!r}", f"it is not out of service; these are: {uuids}", "give one of them"
    )


def _document(entry: Quarantined) -> dict[str, Any]:
    return {**entry.to_dict(), "since": _time(entry), "remedy": _remedy(entry)}


def _time(entry: Quarantined) -> str:
    return datetime.fromtimestamp(entry.since_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _remedy(entry: Quarantined) -> str:
    return f"reset or replace it, then: assay-agent quarantine clear {shlex.quote(entry.gpu)}"
