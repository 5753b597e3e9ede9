"""``assay admin role WHO ROLE``: give a person another role."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.people import render_role
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client
from assay_core.identity.roles import Role

app = verb_app()


@app.command()
def role(
    who: Annotated[str, typer.Argument(metavar="WHO", help="A person's id or name.")],
    new: Annotated[Role, typer.Argument(metavar="ROLE", help="viewer, submitter, operator or admin.")],
    *,
    project: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Also change the project; * for all.")
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a person another role.

    It takes effect at once, also for running calls. Admins only."""
    with Client(server) as client:
        now = client.set_role(who, new, project=project)
    show(now, as_json, lambda console: render_role(now, console))
