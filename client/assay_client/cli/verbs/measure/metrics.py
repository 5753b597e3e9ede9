"""``assay metrics METHOD``: the command lines of ncu and nsys to select by a method on a GPU."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from assay_client import local
from assay_client.cli.options import JsonOption, MethodArgument, MethodParameterOption, parse_parameters
from assay_client.cli.output import show
from assay_client.cli.reporters.metrics import render_measuring
from assay_client.cli.verb import MethodVerbCommand, verb_app
from assay_sampling.notes.registry import Note
from assay_sampling.nsight.commands import Window
from assay_sampling.nsight.measuring import WORKLOAD, Measuring, help_of, measuring
from assay_sampling.running.gpu_names import compute_capability_of

app = verb_app()


@app.command(cls=MethodVerbCommand)
def metrics(
    method: MethodArgument,
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
        typer.Option(
            "--first", metavar="NUMBER", min=0, help="How many launches to measure counters of; 0: all."
        ),
    ] = 0,
    skip: Annotated[
        int, typer.Option("--skip", metavar="NUMBER", min=0, help="How many launches to skip before them.")
    ] = 0,
    unit: Annotated[
        Literal["launch", "operation"],
        typer.Option("--unit", metavar="UNIT", help="operation: record operators, library calls, ranges."),
    ] = "launch",
    param: MethodParameterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the ncu and nsys command lines for a method.

    The commands use the metrics, cache and clock control, page, window and names that Assay's own agent uses.
    The output is a shell script: assay metrics pks > measure.sh

    A method without counters needs only nsys.
    """
    capability = "" if gpu is None else compute_capability_of(gpu)
    plan = measuring(
        method,
        parse_parameters(param or []),
        compute_capability=capability,
        tool_version=tool_version,
        first_release=local.first_nsight_compute(capability),
        window=Window(skip, first),
        command=tuple(command or WORKLOAD),
        operations=unit == "operation",
    )
    limits = local.nsight_compute_limits(capability, tool_version) if capability and plan.counters else None
    document = _document(plan, gpu, limits)
    show(document, as_json, lambda console: render_measuring(document, console))


def _document(plan: Measuring, gpu: str | None, limits: Note | None) -> dict[str, Any]:
    return {
        "method": plan.method,
        "gpu": gpu,
        "compute_capability": plan.compute_capability or None,
        "tool_version": plan.tool_version or None,
        "counters": [
            {"name": name, "metric": metric, "help": help_of(name)} for name, metric in plan.counters
        ],
        "missing": list(plan.missing),
        "passes": plan.passes.passes,
        "passes_exact": plan.passes.exact,
        "of_every_launch": plan.of_every_launch,
        "commands": [
            {"what": line.what, "argv": list(line.argv), "output": line.output or None}
            for line in plan.commands
        ],
        "notes": [note.to_dict() for note in (*plan.notes, *([limits] if limits else []))],
    }
