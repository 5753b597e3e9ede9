"""``assay doctor``: what is missing on this machine, each with a remedy."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.doctor import render_checks
from assay_client.cli.verb import verb_app
from assay_client.local import diagnose
from assay_client.places import likely_state_directory
from assay_sampling.errors import NotReadyError

app = verb_app()


class Need(StrEnum):
    """The program whose needs count."""

    CLIENT = "client"
    AGENT = "agent"
    SERVER = "server"
    ALL = "all"


@app.command()
def doctor(
    *,
    need: Annotated[
        Need, typer.Option("--for", metavar="|".join(Need), help="Which program's needs to check.")
    ] = Need.ALL,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            readable=False,
            metavar="DIR",
            help="The folder for the state; default: the working folder, for a client that of assay run.",
        ),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what this machine lacks, each with a remedy.

    The exit code is 10 if something needed is missing.
    """
    if state is None and need is Need.CLIENT:
        state = likely_state_directory()
    checks = diagnose(need.value, state, server)
    missing = [check["name"] for check in checks if check["state"] == "missing"]
    document: dict[str, Any] = {"for": need.value, "ready": not missing, "missing": missing, "checks": checks}
    show(document, as_json, lambda console: render_checks(checks, need.value, console))
    if missing:
        raise NotReadyError(
            "this machine",
            f"something needed is missing: {', '.join(missing)}",
            "each check says what to do; --for client, agent or server asks for less",
        )
