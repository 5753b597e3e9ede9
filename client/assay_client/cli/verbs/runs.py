"""``assay runs show RUN_ID``: one run, its command, environment, logs and flags."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.run import render_run
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.callback()
def runs() -> None:
    """Look at single runs of campaigns."""


@app.command("show")
def show_run(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="A run's id, such as demo-1.0003.")],
    *,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run: command, environment, logs, validity flags and attempts."""
    with Client(server) as client:
        run = client.run(run_id)
    show(run, as_json, lambda console: render_run(run, console))
