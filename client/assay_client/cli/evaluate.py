"""``assay evaluate SELECTION FILE``: a saved selection scored on a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay_client import analyses
from assay_client.cli.options import JsonOption, MemoryLimitOption, SyntheticOption, parse_bytes
from assay_client.cli.output import show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.evaluation import render_evaluation
from assay_client.cli.verb import verb_app

app = verb_app()


@app.command()
def evaluate(
    selection: Annotated[
        Path, typer.Argument(metavar="SELECTION", help="A selection written with: assay select -o")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording that holds the same launches.")],
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

    The recording must hold the same launches; the weights are taken as they are."""
    limit = parse_bytes(memory_limit)
    with activity(f"reading {file}"):
        document = analyses.evaluate(
            selection,
            file,
            quantity=cost,
            synthetic=True if synthetic else None,
            memory_limit_bytes=limit,
        )
    show(document, as_json, lambda console: render_evaluation(document, console))
