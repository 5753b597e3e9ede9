"""``assay admin audit``: who changed what on a server."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.people import render_audit
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client
from assay_core.settings.quantities import parse_span_seconds

app = verb_app()


@app.command()
def audit(
    *,
    identity: Annotated[
        str,
        typer.Option(metavar="WHO", help="Only entries of this identity, by its id or its name at the time."),
    ] = "",
    since: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Only entries of the last SPAN, such as 2h or 7d.")
    ] = None,
    most: Annotated[
        int, typer.Option("--most", metavar="NUMBER", min=1, help="Maximum number of entries.")
    ] = 100,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who changed what on a server, newest first; for admins.

    Refused calls are listed too. What agents did to a run is in 'assay explain RUN'."""
    since_ms = 0 if since is None else int(1000 * (time.time() - parse_span_seconds(since, "--since")))
    with Client(server) as client:
        document = client.audit(identity=identity, since_ms=since_ms, most=most)
    show(document, as_json, lambda console: render_audit(document, console))
