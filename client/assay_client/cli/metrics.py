"""``assay metrics METHOD``: the command lines of ncu and nsys to select by a method on a GPU."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from assay_client import local
from assay_client.cli.options import JsonOption, parse_parameters
from assay_client.cli.output import show
from assay_client.cli.reporters.metrics import render_measuring
from assay_client.cli.verb import verb_app
from assay_sampling.gpu_names import compute_capability_of
from assay_sampling.nsight.commands import Window
from assay_sampling.nsight.measuring import WORKLOAD, Measuring, help_of, measuring

app = verb_app()


@app.command()
def metrics(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD",
            help="One of pks, random, systematic, stratified, first_instructions, single_iteration, tbpoint, "
            "photon, sieve, stem.",
        ),
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND...", help="The workload, after --; default: ./workload."),
    ] = None,
    *,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="GPU", help="V100, RTX 3070, ... or a compute capability such as 8.6."),
    ] = None,
    tool_version: Annotated[
        str,
        typer.Option(
            "--tool-version", metavar="RELEASE", help="The release of Nsight Compute, such as 2024.1."
        ),
    ] = "",
    first: Annotated[
        int,
        typer.Option("--first", metavar="NUMBER", min=0, help="Counters of so many launches; 0: all."),
    ] = 0,
    skip: Annotated[
        int, typer.Option("--skip", metavar="NUMBER", min=0, help="Launches to leave out before them.")
    ] = 0,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter of the method; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the ncu and nsys command lines for a method.

    Metrics, cache and clock control, page, window of launches and names are those that Assay's own agent asks
    for and its readers need. What is printed is a shell script: assay metrics pks > measure.sh

    A method that needs no counters needs nsys alone.
    """
    capability = "" if gpu is None else compute_capability_of(gpu)
    found = measuring(
        method,
        parse_parameters(param or []),
        compute_capability=capability,
        tool_version=tool_version,
        window=Window(skip, first),
        command=tuple(command or WORKLOAD),
    )
    limits = local.nsight_compute_limits(capability, tool_version) if capability and found.counters else ""
    document = _document(found, gpu, limits)
    show(document, as_json, lambda console: render_measuring(document, console))


def _document(found: Measuring, gpu: str | None, limits: str) -> dict[str, Any]:
    return {
        "method": found.method,
        "gpu": gpu,
        "compute_capability": found.compute_capability or None,
        "tool_version": found.tool_version or None,
        "counters": [
            {"name": name, "metric": metric, "help": help_of(name)} for name, metric in found.counters
        ],
        "missing": list(found.missing),
        "passes": found.passes.passes,
        "passes_exact": found.passes.exact,
        "of_every_launch": found.of_every_launch,
        "commands": [
            {"what": line.what, "argv": list(line.argv), "output": line.output or None}
            for line in found.commands
        ],
        "notes": [*found.notes, *([limits] if limits else [])],
    }
