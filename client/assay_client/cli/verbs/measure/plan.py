"""``assay plan CAMPAIGN``: what a campaign would run, and roughly what it would cost; nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, parse_parameters
from assay_client.cli.output import show
from assay_client.cli.reporters.plan import render_plan
from assay_client.cli.verb import verb_app
from assay_client.local import plan_campaign

app = verb_app()


@app.command()
def plan(
    campaign: Annotated[
        Path, typer.Argument(readable=False, metavar="CAMPAIGN", help="A campaign file (YAML).")
    ],
    *,
    assume: Annotated[
        list[str] | None,
        typer.Option(
            "--assume",
            metavar="NAME=VALUE",
            help="Replace an assumption behind hours and bytes; the plan lists them. Repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a campaign file and predict its hours and bytes.

    Shows its runs with their slices and passes, and for each GPU the hours and bytes they would take.

    Nothing is run. Hours and bytes rest on assumptions, which the plan lists and --assume replaces.
    """
    document = plan_campaign(campaign, parse_parameters(assume or (), "--assume", "launches=50000"))
    show(document, as_json, lambda console: render_plan(document, console))
