"""The command line of the agent: ``assay-agent run``, and commands that examine its box and its rules.

Each command imports what it needs: the daemon with its profilers and readers takes a second to load, and
most commands answer without it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from assay_agent.cli.join import join
from assay_agent.cli.policy import policy_app, policy_in_force
from assay_agent.cli.quarantine import quarantine_app
from assay_agent.cli.slurm_job import slurm_job
from assay_agent.config import AgentSettings
from assay_agent.daemon.state import StateDirectory, credentials_folder
from assay_agent.gpus.inventory import read_inventory
from assay_core.loading import loading
from assay_core.program import CONTEXT_SETTINGS, version_option
from assay_core.records.machine import Inventory
from assay_core.settings.command_line import with_settings
from assay_sampling.errors import AssayError

app = typer.Typer(
    help="The agent of a GPU box: takes runs from an assay-server, measures, and streams launches.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT_SETTINGS,
    rich_markup_mode=None,
)


@app.callback()
def _program(version: Annotated[bool, version_option("assay-agent")] = False) -> None:
    """The agent of a GPU box: takes runs from an assay-server, measures, and streams launches."""


app.command()(join)
app.command()(slurm_job)
app.add_typer(policy_app, name="policy")
app.add_typer(quarantine_app, name="quarantine")


@app.command()
@with_settings(AgentSettings)
def run(*, settings: AgentSettings, again: Callable[[], AgentSettings]) -> None:
    """Work for a server until SIGTERM or SIGINT; a second one hands runs back at once."""
    with loading():
        from assay_agent.cli.running import run_agent  # noqa: PLC0415 - see above

    run_agent(settings, again)


@app.command()
@with_settings(AgentSettings, "state_dir")
def new_identity(
    *,
    settings: AgentSettings,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Give the state folder of a cloned box a new identity; stop its agent first.

    The new agent joins with a new token; it has the labels of that token, not those of the old identity."""
    with StateDirectory(settings.state_dir) as folder:
        before, now = folder.agent_id, folder.renew_identity()
    state = str(settings.state_dir)
    document = {"state": state, "agent_id_before": before, "agent_id": now}
    text = (
        f"{state}: agent {now} (was {before})\n"
        "join the lab with a new token; labels come with it: assay-server token --role agent --label LABEL"
    )
    typer.echo(json.dumps(document, indent=2) if as_json else text)


@app.command()
def inventory(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what this box has: processors, memory, GPUs, or why it has no GPU."""
    box = read_inventory()
    typer.echo(json.dumps(box.to_dict(), indent=2) if as_json else _described(box))


@app.command()
@with_settings(AgentSettings, "state_dir", "virtual", "policy_file")
def probe(
    *,
    settings: AgentSettings,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show what an agent on this box would offer: GPUs, profilers, conditions, and what may run."""
    from assay_agent.doctor.probe import describe_probe, probe_box  # noqa: PLC0415 - see above

    document = probe_box(settings.state_dir, settings.virtual, policy_in_force(settings.policy_file))
    typer.echo(json.dumps(document, indent=2) if as_json else describe_probe(document))


@app.command()
@with_settings(AgentSettings, "state_dir", "server", "socket_owner")
def doctor(
    *,
    settings: AgentSettings,
    need: Annotated[
        str, typer.Option("--for", metavar="client|agent|server|all", help="Which program's needs to check.")
    ] = "agent",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List what this box lacks, with remedies; exit code 10 if something needed is missing."""
    from assay_agent.daemon.agent import server_of  # noqa: PLC0415 - see above
    from assay_agent.doctor.examination import examine, require_nothing_missing  # noqa: PLC0415

    credentials = credentials_folder(settings.state_dir).read()
    server, owner = server_of(settings, credentials), settings.socket_owner
    checks = examine(need, settings.state_dir, server, credentials, owner)
    if as_json:
        missing = [check.name for check in checks if check.state == "missing"]
        listed = [check.to_dict() for check in checks]
        document = {"for": need, "ready": not missing, "missing": missing, "checks": listed}
        typer.echo(json.dumps(document, indent=2))
    else:
        for check in checks:
            typer.echo(f"{check.state:<8}{check.name}: {check.found}")
            if check.remedy:
                typer.echo(f"{'':<8}{check.remedy}")
    require_nothing_missing(checks, need)


def _described(box: Inventory) -> str:
    lines = [
        f"host    {box.host}",
        f"cpus    {box.cpu_count}",
        f"memory  {box.memory_bytes / 2**30:.1f} GiB",
        f"driver  {box.driver_version or '-'} (CUDA {box.cuda_driver_version or '-'})",
    ]
    for device in box.devices:
        what = device.problem or (
            f"{device.name}, compute capability {device.compute_capability}, {device.sm_count or '?'} SMs, "
            f"{device.memory_bytes / 2**30:.1f} GiB, {device.uuid}"
            f"{'; takes no runs: ' + device.left_out if device.left_out else ''}"
        )
        lines.append(f"GPU {device.index}   {what}")
    if box.no_device_reason:
        lines.append(f"no GPU  {box.no_device_reason}")
    return "\n".join(lines)


def main() -> None:
    """Entry point: typed errors become one paragraph on standard error and an exit code."""
    try:
        app()
    except AssayError as error:
        typer.echo(f"assay-agent: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
