"""``assay inspect FILE...``: what recordings hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from assay_client.cli.inputs import RECORDING, raise_together, require
from assay_client.cli.options import JsonOption, SyntheticOption
from assay_client.cli.output import show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.inspection import render_inspection
from assay_client.cli.verb import FileVerbCommand, verb_app
from assay_client.recordings import analyses
from assay_sampling.errors import AssayError

app = verb_app()


@app.command(cls=FileVerbCommand)
def inspect(
    files: Annotated[
        list[Path], typer.Argument(readable=False, metavar="FILE...", help="Recordings of any known format.")
    ],
    *,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            min=0,
            metavar="N",
            help="Also the N kernels, operators and NVTX ranges with the most time, and their shares of it.",
        ),
    ] = 0,
    synthetic: SyntheticOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what recordings contain.

    Format, launches, kernels, devices, levels and counters; with --top where the time goes, or the cycles
    where a recording has no times. Formats are found by content, not by file name. Each file that cannot be
    read has its own error, and the others are still shown; the exit code is that of the first error."""
    documents: list[dict[str, Any]] = []
    errors: list[AssayError] = []
    with activity("") as shown:
        for path in files:
            shown.say(f"reading {path}")
            try:
                require(RECORDING, path)
                documents.append(analyses.inspect(path, synthetic=True if synthetic else None, top=top))
            except AssayError as error:
                errors.append(error)
    if documents:
        show({"files": documents}, as_json, lambda console: render_inspection(documents, console))
    raise_together(errors)
