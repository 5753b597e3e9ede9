"""``assay admin token``: make a join token for an agent, a fleet of agents, or a person."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.identities import render_token
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client
from assay_core.identity.roles import Role
from assay_core.settings.quantities import parse_span_seconds

app = verb_app()


@app.command()
def token(
    *,
    role: Annotated[
        Role, typer.Option("--role", metavar="ROLE", help="agent, viewer, submitter, operator or admin.")
    ],
    name: Annotated[str, typer.Option(metavar="TEXT", help="The person's name; agents have their own.")] = "",
    project: Annotated[str, typer.Option(metavar="TEXT", help="A person's project; * for all.")] = "",
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="TEXT", help="A label of the agents. Repeatable.")
    ] = None,
    uses: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="How often it can be used.")] = 1,
    valid: Annotated[str, typer.Option(metavar="SPAN", help="How long it can be used.")] = "1h",
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a join token.

    Anyone who has it can join, so hand it over in private. By default it can be used once, within an hour."""
    with Client(server) as client:
        seconds = parse_span_seconds(valid, "--valid")
        made = client.make_token(
            role, name, project=project, labels=label or (), uses=uses, valid_seconds=seconds
        )
    show(made, as_json, lambda console: render_token(made, console))
