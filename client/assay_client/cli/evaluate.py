"""``assay evaluate SELECTION FILE [OTHER]``: a saved selection scored on a recording, or on two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay_client import analyses
from assay_client.cli.inputs import RECORDING, SELECTION, require
from assay_client.cli.options import JsonOption, MemoryLimitOption, SyntheticOption, parse_bytes
from assay_client.cli.output import show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.evaluation import render_evaluation, render_relative
from assay_client.cli.verb import verb_app

app = verb_app()


@app.command()
def evaluate(
    selection: Annotated[
        Path,
        typer.Argument(readable=False, metavar="SELECTION", help="A selection written with: assay select -o"),
    ],
    file: Annotated[
        Path, typer.Argument(readable=False, metavar="FILE", help="A recording that holds the same launches.")
    ],
    other: Annotated[
        Path | None,
        typer.Argument(
            readable=False,
            metavar="OTHER",
            help="A second recording: how much faster is it than the first, truly and as predicted?",
            show_default=False,
        ),
    ] = None,
    *,
    cost: Annotated[
        str | None,
        typer.Option("--cost", metavar="QUANTITY", help="Score in this cost instead of the selection's."),
    ] = None,
    synthetic: SyntheticOption = False,
    memory_limit: MemoryLimitOption = "8GiB",
    as_json: JsonOption = False,
) -> None:
    """Score a saved selection on a recording.

    The recording must hold the same launches; the weights are taken as they are. With a second recording,
    of another GPU or another share of its SMs, the speedup between the two is scored."""
    limit = parse_bytes(memory_limit)
    require(SELECTION, selection)
    require(RECORDING, file, other)
    if other is not None:
        with activity(f"reading {file} and {other}"):
            relative = analyses.evaluate_relative(
                selection,
                file,
                other,
                quantity=cost,
                synthetic=True if synthetic else None,
                memory_limit_bytes=limit,
            )
        show(relative, as_json, lambda console: render_relative(relative, console))
        return
    with activity(f"reading {file}"):
        document = analyses.evaluate(
            selection,
            file,
            quantity=cost,
            synthetic=True if synthetic else None,
            memory_limit_bytes=limit,
        )
    show(document, as_json, lambda console: render_evaluation(document, console))
