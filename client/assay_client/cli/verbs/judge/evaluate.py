"""``assay evaluate SELECTION FILE...``: a saved selection scored on a recording, or on two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from assay_client.cli.inputs import INTERVAL_LOG, RECORDING, SELECTION, require
from assay_client.cli.options import (
    JsonOption,
    MemoryLimitOption,
    RanksOption,
    SyntheticOption,
    UnitOption,
    parse_parameters,
    with_rule,
)
from assay_client.cli.output import show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.evaluation import render_evaluation, render_relative
from assay_client.cli.verb import FileVerbCommand, verb_app
from assay_client.recordings import analyses
from assay_client.recordings.units import unit_choice
from assay_client.settings import settings_of
from assay_sampling.errors import ParameterError
from assay_sampling.projection.files import ProjectionOptions, parse_options

app = verb_app()


@app.command(cls=FileVerbCommand)
def evaluate(
    selection: Annotated[
        Path,
        typer.Argument(readable=False, metavar="SELECTION", help="A selection written with: assay select -o"),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            readable=False,
            metavar="FILE...",
            help="A recording of the same launches; a second one adds its speedup over the first, true and "
            "predicted. With --ranks: the recording's files, one a rank.",
        ),
    ],
    *,
    ranks: RanksOption = False,
    cost: Annotated[
        str | None,
        typer.Option("--cost", metavar="QUANTITY", help="Score in this cost instead of the selection's."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="KIND",
            help="launches, instructions or light_time; by default light_time on another GPU or under "
            "another condition, if the selection has a light run.",
        ),
    ] = None,
    scales_at_most: Annotated[
        float | None,
        typer.Option(
            "--scales-at-most",
            metavar="F",
            help="For the interval, assume that no launch scales more than F times as its kernel does; "
            "default: 3.",
        ),
    ] = None,
    intervals: Annotated[
        Path | None,
        typer.Option(
            "--intervals",
            readable=False,
            metavar="FILE",
            help="The interval log of FILE, a simulator's standard output: also score the representatives "
            "with projected costs, as if each simulation had ended where a rule stops.",
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule", metavar="RULE", help="With --intervals: waves, artifact, paper or instructions."
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="With --intervals: a parameter of the rule, as assay project has them; repeatable.",
        ),
    ] = None,
    unit: UnitOption = "auto",
    synthetic: SyntheticOption = False,
    memory_limit: MemoryLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a saved selection on a recording.

    The recording must hold the same launches; the weights stay unchanged. With a second recording,
    of another GPU or another share of its SMs, the speedup between the two is scored."""
    limit = settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes
    if len(files) > 2 and not ranks:
        raise ParameterError(
            "FILE",
            f"{len(files)} recordings are given, and a speedup needs two",
            "name one or two, or give --ranks if each is a rank of one job",
        )
    require(SELECTION, selection)
    require(RECORDING, *files)
    projection = _projection(intervals, files, rule, param or [])
    options: dict[str, Any] = {
        "quantity": cost,
        "weights": weights,
        "scales_at_most": scales_at_most,
        "synthetic": True if synthetic else None,
        "unit": unit_choice(unit),
        "memory_limit_bytes": limit,
    }
    with activity("reading " + " and ".join(map(str, files))):
        if len(files) == 2 and not ranks:
            document = analyses.evaluate_relative(selection, *files, **options)
            render = render_relative
        else:
            document = analyses.evaluate(selection, files, ranks=ranks, **projection, **options)
            render = render_evaluation
    show(document, as_json, lambda console: render(document, console))


def _projection(
    intervals: Path | None, files: list[Path], rule: str | None, param: list[str]
) -> dict[str, Any]:
    """The arguments for projected costs of representatives; raises ParameterError if they do not fit."""
    if intervals is None:
        if rule is not None or param:
            option = "--param" if rule is None else "--rule"
            raise ParameterError(option, "it belongs to --intervals", "give the interval log of FILE, too")
        return {}
    if len(files) != 1:
        raise ParameterError("--intervals", f"{len(files)} recordings are given", "name the one it is of")
    require(INTERVAL_LOG, intervals)
    given_options = with_rule(parse_parameters(param, example="tolerance_percent=12"), rule)
    return {"intervals": intervals, "projection": parse_options(given_options, ProjectionOptions)}
