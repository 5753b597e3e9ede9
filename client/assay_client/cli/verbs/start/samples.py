"""``assay samples DIR``: a small synthetic sample of every kind of file that the README's commands read."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.options import JsonOption
from assay_client.cli.output import show
from assay_client.cli.verb import verb_app
from assay_client.samples.folder import FILES, NOTICE, write_samples

app = verb_app()


@app.command()
def samples(
    folder: Annotated[
        Path,
        typer.Argument(
            readable=False, metavar="DIR", help="The folder to write them into; a missing one is created."
        ),
    ],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing sample.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a synthetic sample of recordings and traces to try the commands on.

    Recordings in the formats of Nsight Compute and Nsight Systems, traces and a log in those of Accel-Sim,
    all of one small workload on virtual GPUs: less than 1 MB, and the same each time. All are marked as
    synthetic, and README.md in the folder says what each is.
    """
    paths = write_samples(folder, force=force)
    document = {
        "synthetic": True,
        "folder": folder,
        "files": [{"path": path, "about": file.about} for path, file in zip(paths, FILES, strict=True)],
    }
    lines = [f"written to {path}: {file.about}" for path, file in zip(paths, FILES, strict=True)]
    lines += [
        NOTICE,
        f"next: cd {shlex.quote(str(folder))}, then assay select pks profile.csv -o selection.json",
    ]
    show(document, as_json, lambda console: console.print("\n".join(lines), soft_wrap=True))
