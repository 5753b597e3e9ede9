"""``assay classify DETAILED --light LIGHT``: the group of every launch, from the counters of some.

``--launches LIST`` instead of ``--light`` takes a list without times, and projects costs from the grids.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.inputs import RECORDING, TRACES, require
from assay_client.cli.options import (
    JsonOption,
    MemoryLimitOption,
    RanksOption,
    SeedOption,
    SyntheticOption,
    UnitOption,
    parse_parameters,
)
from assay_client.cli.output import show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.classification import render_classification, render_listed
from assay_client.cli.verb import FileVerbCommand, verb_app
from assay_client.files import require_folder_of, write_atomically
from assay_client.recordings import analyses, classified
from assay_client.recordings.units import unit_choice, unit_for
from assay_client.settings import settings_of
from assay_sampling.counters.features import own_metrics
from assay_sampling.errors import ParameterError

app = verb_app()


@app.command(cls=FileVerbCommand)
def classify(
    files: Annotated[
        list[Path],
        typer.Argument(
            readable=False, metavar="DETAILED...", help="Recordings with counters, of a part of the workload."
        ),
    ],
    *,
    light: Annotated[
        Path | None,
        typer.Option(
            "--light", readable=False, metavar="FILE", help="The light recording of the whole workload."
        ),
    ] = None,
    listed: Annotated[
        Path | None,
        typer.Option(
            "--launches",
            readable=False,
            metavar="FILE",
            help="Instead of --light, for a part that was simulated: the kernelslist.g of the whole "
            "workload. It has no times, so costs are projected from the grids.",
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="A parameter of pks, such as abstain=true; repeatable.",
        ),
    ] = None,
    ranks: RanksOption = False,
    seed: SeedOption = 0,
    unit: UnitOption = "auto",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            readable=False,
            metavar="FILE",
            help="Write the group of every launch to a .csv or .parquet file, in an existing folder.",
        ),
    ] = None,
    synthetic: SyntheticOption = False,
    memory_limit: MemoryLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Assign every launch of a workload to a group.

    Groups come from the counters of some launches (PKS); models assign the others, and the table says how far
    each can be trusted."""
    if light is None and listed is None:
        raise ParameterError(
            "assay classify",
            "neither --light nor --launches is given, and the whole workload is in one of them",
            "give one; groups of one recording alone come from 'assay select pks', or without counters from "
            "'assay select stem' (labels in --json)",
        )
    if light is not None and listed is not None:
        raise ParameterError(
            "classify",
            "both --light and --launches are given",
            "give the light recording of the whole workload, or the kernelslist.g of its traces",
        )
    parameters = parse_parameters(param or [], example="abstain=true")
    limit = settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes
    if output is not None:
        if output.suffix not in (".csv", ".parquet"):
            raise ParameterError(
                "--output",
                f"{output} ends in neither .csv nor .parquet",
                "name a file that ends in one of them",
            )
        require_folder_of(output)
    if listed is not None:
        if unit_choice(unit) == "operation":
            raise ParameterError("--unit", "traces of a simulator know no operations", "leave it out")
        require(RECORDING, *files)
        require(TRACES, listed)
        with activity("reading " + ", ".join(map(str, [*files, listed]))):
            launches, labels, written = classified.classify_listed(
                files, listed, parameters=parameters, seed=seed, memory_limit_bytes=limit
            )
            if output is not None:
                write_atomically(output, classified.listed_file(launches, labels, output.suffix))
        show(written, as_json, lambda console: render_listed(written, output, console))
        return
    assert light is not None
    choice = unit_choice(unit)
    require(RECORDING, *files, light)
    with activity("reading " + ", ".join(map(str, [*files, light]))) as shown:
        profile = analyses.read_profile(
            files,
            light=light,
            ranks=ranks,
            synthetic=True if synthetic else None,
            metrics=own_metrics(parameters.get("features")),
            memory_limit_bytes=limit,
        )
        shown.say("grouping and labelling")
        selection = classified.classify(profile, parameters, seed, unit_for(choice, profile))
        if output is not None:
            shown.say(f"writing {output}")
            write_atomically(output, classified.label_file(profile.whole, selection, output.suffix))
    document = classified.document(selection)
    show(document, as_json, lambda console: render_classification(document, output, console))
