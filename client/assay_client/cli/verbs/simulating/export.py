"""``assay export SELECTION --to TARGET``: a selection in the form of a simulator, a tracer or a viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.inputs import RECORDING, SELECTION, require
from assay_client.cli.options import JsonOption, MatchOption, MemoryLimitOption, match_kind
from assay_client.cli.output import show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.exported import render_exported
from assay_client.cli.verb import FileVerbCommand, verb_app
from assay_client.recordings.handing_over import ExportRequest, export
from assay_client.settings import settings_of

app = verb_app()


@app.command(name="export", cls=FileVerbCommand)
def export_(
    selection: Annotated[
        Path,
        typer.Argument(
            readable=False,
            metavar="SELECTION",
            help="A selection written with: assay select -o, or a weights file.",
        ),
    ],
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="TARGET", help="accel-sim, accel-sim-jobs, macsim, nvbit, weights or perfetto."
        ),
    ],
    traces: Annotated[
        Path | None,
        typer.Option(
            "--traces",
            readable=False,
            metavar="DIR",
            help="For accel-sim, accel-sim-jobs and macsim: the folder of the traces, or the list in it.",
        ),
    ] = None,
    recording: Annotated[
        Path | None,
        typer.Option(
            "--recording",
            readable=False,
            metavar="FILE",
            help="The selection's own recording. For perfetto: it is drawn; for accel-sim and "
            "accel-sim-jobs: it tells which launches the tracer missed; for the latter also: its cycles.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            readable=False,
            metavar="PATH",
            help="The folder to write, for weights and perfetto the file; default: named after SELECTION.",
        ),
    ] = None,
    warm_up: Annotated[
        int,
        typer.Option(
            "--warm-up",
            metavar="COUNT",
            min=0,
            help="For accel-sim, accel-sim-jobs: replay the memory instructions of this many launches before "
            "each; for nvbit: also trace those launches.",
        ),
    ] = 0,
    workload: Annotated[
        str,
        typer.Option(
            "--workload", metavar="NAME", help="The workload's name in files; default: that of SELECTION."
        ),
    ] = "",
    match: MatchOption = "exact",
    copy: Annotated[
        bool,
        typer.Option(
            "--copy",
            help="With --traces: copy them instead of linking to them (links are relative).",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    memory_limit: MemoryLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a selection to a simulator, a tracer or a viewer.

    Traces with other kernels or grids than the selection are refused with the first differences. The folder
    of the traces stays unchanged: the output links to them, or copies them with --copy. 'assay docs handover'
    shows the way into the simulator and back."""
    limit = settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes
    require(SELECTION, selection)
    require(RECORDING, recording)
    request = ExportRequest(
        selection=selection,
        to=to,
        output=output,
        traces=traces,
        recording=recording,
        workload=workload,
        warm_up=warm_up,
        match=match_kind(match),
        copy=copy,
        force=force,
        memory_limit_bytes=limit,
    )
    with activity("checking") as shown:
        document = export(request, shown.say)
    show(document.to_dict(), as_json, lambda console: render_exported(document, console))
