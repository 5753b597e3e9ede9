"""Command lines of our programs, read as the programs read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from assay_agent.main import app as agent_app
from assay_client.cli.main import app as client_app
from assay_server.cli.program import program as server_app

PROGRAMS = {"assay": client_app, "assay-agent": agent_app, "assay-server": server_app}


def parse_command_line(words: Sequence[str]) -> str:
    """The program and its verb; raises the parser's usage error for what does not exist."""
    command: Any = typer.main.get_command(PROGRAMS[words[0]])
    rest, said = list(words[1:]), words[0]
    while rest and (verb := getattr(command, "commands", {}).get(rest[0])) is not None:
        command, said, rest = verb, f"{said} {rest[0]}", rest[1:]
    command.make_context(said, rest)
    return said
