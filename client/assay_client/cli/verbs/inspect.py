"""``assay inspect FILE...``: what recordings hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.inputs import RECORDING, require
from assay_client.cli.options import JsonOption, SyntheticOption
from assay_client.cli.output import show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.inspection import render_inspection
from assay_client.cli.verb import FileVerbCommand, verb_app
from assay_client.recordings import analyses

app = verb_app()


@app.command(cls=FileVerbCommand)
def inspect(
    files: Annotated[
        list[Path], typer.Argument(readable=False, metavar="FILE...", help="Recordings of any known format.")
    ],
    *,
    synthetic: SyntheticOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what recordings hold.

    Format, launches, kernels, devices, levels and counters. Formats are found by content, not by file
    name. The first file that cannot be read ends the command.
    """
    found = []
    with activity("") as shown:
        for path in files:
            shown.say(f"reading {path}")
            require(RECORDING, path)
            found.append(analyses.inspect(path, synthetic=True if synthetic else None))
    show({"files": found}, as_json, lambda console: render_inspection(found, console))
