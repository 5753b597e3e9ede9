"""``assay pka-table row | suites``: the error and speedup of selection and projection together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from assay_client.cli.inputs import INTERVAL_LOG, PKA_ROW, RECORDING, SELECTION, SIMULATOR_OUTPUT, require
from assay_client.cli.options import DocumentOption, JsonOption, ProjectionParameterOption, parse_parameters
from assay_client.cli.output import json_text, show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.pka_table import render_pka_table
from assay_client.cli.verb import verb_app
from assay_client.files import require_folder_of, write_atomically
from assay_client.recordings.pka import PkaApplication, pka_row, pka_suites
from assay_sampling.projection.files import ProjectionOptions, parse_options

app = verb_app()


@app.callback()
def pka_table() -> None:
    """Score selection with projection, as PKA's Table 4 does."""


@app.command("row")
def row(
    selection: Annotated[
        Path,
        typer.Argument(readable=False, metavar="SELECTION", help="A selection written with: assay select -o"),
    ],
    simulations: Annotated[
        list[Path],
        typer.Argument(
            readable=False,
            metavar="SIMULATION...",
            help="Standard outputs of Accel-Sim: of all launches, or of the selected ones.",
        ),
    ],
    *,
    intervals: Annotated[
        list[Path] | None,
        typer.Option(
            "--intervals",
            readable=False,
            metavar="FILE",
            help="The interval log of each SIMULATION, in their order; repeatable.",
        ),
    ] = None,
    silicon: Annotated[
        Path | None,
        typer.Option(
            "--silicon",
            readable=False,
            metavar="RECORDING",
            help="Use the cycles of this recording instead of those that the selection was made on.",
        ),
    ] = None,
    suite: Annotated[str, typer.Option("--suite", metavar="NAME", help="The suite's name.")] = "all",
    application: Annotated[
        str | None,
        typer.Option(
            "--application",
            metavar="NAME",
            help="The application's name; default: the name of SELECTION's file.",
        ),
    ] = None,
    cycles_per_second: Annotated[
        float | None,
        typer.Option(
            "--cycles-per-second",
            metavar="NUMBER",
            min=1e-9,
            help="Speed of the simulator, for the hours; default: from its log.",
        ),
    ] = None,
    param: ProjectionParameterOption = None,
    output: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score one application: errors and speedups of PKS and of PKA, against silicon.

    Unknown values are left out: the simulator's error needs a simulation of all launches."""
    options = parse_options(parse_parameters(param or [], example="rule=paper"), ProjectionOptions)
    require(SELECTION, selection)
    require(SIMULATOR_OUTPUT, *simulations)
    require(INTERVAL_LOG, *(intervals or []))
    require(RECORDING, silicon)
    inputs = PkaApplication(
        selection=selection,
        simulations=simulations,
        intervals=intervals or [],
        silicon=silicon,
        suite=suite,
        application=application or selection.stem,
        cycles_per_second=cycles_per_second,
        options=options,
    )
    with activity(f"reading {' and '.join(map(str, simulations))}"):
        document = pka_row(inputs)
    _give(document, output, as_json)


@app.command("suites")
def suites(
    rows: Annotated[
        list[Path],
        typer.Argument(readable=False, metavar="ROWS...", help="Files written by row with -o, one per row."),
    ],
    *,
    output: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put applications into one table, with the means of each suite.

    Means are arithmetic for errors, hours and use of DRAM, geometric for speedups."""
    require(PKA_ROW, *rows)
    _give(pka_suites(rows), output, as_json)


def _give(document: dict[str, Any], output: Path | None, as_json: bool) -> None:
    if output is not None:
        require_folder_of(output)
        write_atomically(output, json_text(document))
    show(document, as_json, lambda console: render_pka_table(document, console))
