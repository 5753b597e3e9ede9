"""``assay project FILE``: when a launch's simulation may stop, and what its cycles then will be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.inputs import INTERVAL_LOG, SIMULATION, require
from assay_client.cli.options import JsonOption, parse_parameters
from assay_client.cli.output import show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.project import render_projection
from assay_client.cli.verb import verb_app
from assay_sampling.projection_files import parse_options, project_file
from assay_sampling.readers.files import read_head
from assay_sampling.simulators.accel_sim_output import looks_like_output

app = verb_app()


@app.command()
def project(
    file: Annotated[
        Path,
        typer.Argument(
            readable=False,
            metavar="FILE",
            help="A simulator's standard output, its interval log, or a CSV of samples.",
        ),
    ],
    *,
    intervals: Annotated[
        Path | None,
        typer.Option("--intervals", readable=False, metavar="FILE", help="The interval log of the same run."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="rule=artifact|paper|instructions, window_cycles=3000, s=0.25; repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Project launches from where their IPC is stable (PKP).

    A CSV has the columns cycles,instructions,ctas and needs --param wave_ctas= and --param total_ctas=;
    total_instructions= lets the default rule project by instructions."""
    options = parse_options(parse_parameters(param or [], example="rule=paper"))
    require(SIMULATION, file)
    if looks_like_output(read_head(file)):  # nothing else goes with one, and that is told first
        require(INTERVAL_LOG, intervals)
    with activity(f"reading {file}"):
        document = project_file(file, intervals, options)
    show(document, as_json, lambda console: render_projection(document, console))
