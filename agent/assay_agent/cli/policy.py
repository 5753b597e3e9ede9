"""``assay-agent policy``: what the local policy allows, and why."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from assay_agent.config import AgentSettings
from assay_agent.policy.file import DEFAULT_POLICY_FILE, read_policy
from assay_agent.policy.gate import Decision, gate_for
from assay_core.records.work import CommandSource
from assay_core.settings.command_line import with_settings
from assay_sampling.errors import ParameterError, RefusedError

policy_app = typer.Typer(help="Check what a server may ask this agent to run.", no_args_is_help=True)


def policy_in_force(path: Path | None) -> Path | None:
    """The policy file that was named, else the box's default one if it exists."""
    if path is None and DEFAULT_POLICY_FILE.exists():
        return DEFAULT_POLICY_FILE
    return path


@policy_app.callback()
def _policy() -> None:
    """Check what a server may ask this agent to run."""


@policy_app.command()
@with_settings(AgentSettings, "server", "socket_owner", "policy_file")
def check(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="Program and arguments.")],
    *,
    settings: AgentSettings,
    directory: Annotated[str, typer.Option(help="Working directory; default: the agent's.")] = "",
    environment: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="A variable. Repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say whether a command may run here, and which rule decides; exit code 7 if it may not.

    Put -- before a command that has options.
    """
    file = policy_in_force(settings.policy_file)
    policy = read_policy(file) if file is not None else None
    gate = gate_for(policy, settings.server, settings.socket_owner)
    # Of a campaign the server makes such a program absolute, from the folder of the campaign file.
    program = str(Path(directory).absolute() / command[0]) if "/" in command[0] else command[0]
    decision = gate.decide(CommandSource((program, *command[1:]), _variables(environment or []), directory))
    if as_json:
        document = {**dataclasses.asdict(decision), "policy": str(file) if file is not None else None}
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo(_described(decision))
    if not decision.allowed:
        raise RefusedError("this command", decision.why, decision.remedy)


def _described(decision: Decision) -> str:
    lines = [f"{'allowed' if decision.allowed else 'refused'}: {decision.why}"]
    if decision.program:
        lines.append(f"program  {decision.program!r}")
    if decision.resolved not in ("", decision.program):
        lines.append(f"that is  {decision.resolved!r}")
    if decision.runs not in ("", decision.resolved):
        lines.append(f"started  by {decision.runs!r}, which the rule names")
    if decision.note:
        lines.append(f"beware   {decision.note}")
    return "\n".join(lines)


def _variables(assignments: list[str]) -> dict[str, str]:
    variables = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise ParameterError("--env", f"{text!r} has no '='", "write NAME=VALUE")
        variables[name] = value
    return variables
