"""``assay run CAMPAIGN``: a whole campaign in this one process."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.follow import follow, raise_for_failure
from assay_client.cli.options import JsonOption
from assay_client.cli.output import show
from assay_client.cli.reporters.outcome import render_outcome
from assay_client.local import run_campaign

app = typer.Typer()


@app.command()
def run(
    campaign: Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="A campaign file (YAML).")],
    *,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="DIR", help="Where records stay; default: the user's state folder."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Where report.json and report.html go."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a campaign with server and agent inside this process, and show its report.

    The exit code is 6 where a run failed; the report then covers the others.
    """
    outcome = run_campaign(
        campaign,
        state,
        output_directory=output,
        follow=functools.partial(follow, quiet=as_json),
    )
    show(outcome.to_dict(), as_json, lambda console: render_outcome(outcome, console))
    raise_for_failure(outcome.status)
