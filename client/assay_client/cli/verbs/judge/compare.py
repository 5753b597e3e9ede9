"""``assay compare FILE...``: every selection method on one profile, in one table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay_client.cli.inputs import RECORDING, require
from assay_client.cli.options import (
    JsonOption,
    LaunchOffsetOption,
    MemoryLimitOption,
    RanksOption,
    SeedOption,
    SyntheticOption,
    TablesOption,
    UnitOption,
    one_or_each,
    parse_parameters,
)
from assay_client.cli.output import show
from assay_client.cli.plotting import PlotOption, require_plot, write_plot
from assay_client.cli.progress import activity
from assay_client.cli.reporters.comparison import render_comparison, tables_for_papers
from assay_client.cli.reporters.for_papers import write_tables
from assay_client.cli.reporters.tables import origin_label
from assay_client.cli.verb import FileVerbCommand, verb_app
from assay_client.recordings import analyses, comparing
from assay_client.recordings.units import unit_choice
from assay_client.settings import settings_of
from assay_sampling.errors import ParameterError
from assay_sampling.methods.built_in import BUILT_IN
from assay_sampling.scoring.trials import LEAST_TRIALS

if TYPE_CHECKING:
    from assay_report.figures.figure import Figure

app = verb_app()


@app.command(cls=FileVerbCommand)
def compare(
    files: Annotated[
        list[Path],
        typer.Argument(readable=False, metavar="FILE...", help="Recordings of one workload on one device."),
    ],
    *,
    light: Annotated[
        Path | None,
        typer.Option(
            "--light", readable=False, metavar="FILE", help="The light recording of a two-level profile."
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", metavar="METHOD", help="Compare only these; repeatable."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="[METHOD.]NAME=VALUE",
            help="A parameter of one method, or of all that have it; repeatable.",
        ),
    ] = None,
    ranks: RanksOption = False,
    seed: SeedOption = 0,
    unit: UnitOption = "auto",
    on: Annotated[
        list[Path] | None,
        typer.Option(
            "--on",
            readable=False,
            metavar="FILE",
            help=(
                "A recording of another GPU; repeatable. Every method is scored there with both kinds of "
                "weights at one speedup, and stars and recommendation follow these scores."
            ),
        ),
    ] = None,
    speedup: Annotated[
        float | None,
        typer.Option(
            "--speedup",
            min=1,
            metavar="S",
            help="With --on: the speedup to compare at; default: the median of the methods' own.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            min=LEAST_TRIALS,
            metavar="N",
            help="Tries of each method that draws or reads costs; default: 30 to 200, by the launches.",
        ),
    ] = None,
    plot: PlotOption = None,
    tables: TablesOption = None,
    synthetic: SyntheticOption = False,
    launch_offset: LaunchOffsetOption = None,
    memory_limit: MemoryLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare selection methods on a workload.

    Methods that draw at random are scored over many draws, methods that choose by costs on held-out launches.
    A star marks those that no other beats in both error and speedup; with --on, those that no other beats on
    the other GPUs, in the worst error of the total and the worst by kernel and grid, at one speedup. Methods
    that do not apply are listed with the reason; the last line recommends a method, and says why."""
    methods = method or []
    assignments = parse_parameters(param or [], example="pks.k_max=20")
    limit = settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes
    parameters = comparing.parameters_by_method(assignments, methods) if assignments else {}
    require_plot(plot)
    _refuse_method_as_file(files)
    require(RECORDING, *files, light, *(on or []))
    choice = unit_choice(unit)
    with activity("reading " + ", ".join(map(str, [*files, *(on or [])]))) as shown:
        profile = analyses.read_profile(
            files,
            light=light,
            ranks=ranks,
            synthetic=True if synthetic else None,
            launch_offset=one_or_each(launch_offset),
            metrics=comparing.metrics_of(assignments),
            memory_limit_bytes=limit,
        )
        others = [analyses.read_profile(path, memory_limit_bytes=limit) for path in on or []]
        document = comparing.compare(
            profile,
            methods=methods,
            parameters=parameters,
            seed=seed,
            trials=trials,
            unit=choice,
            on=others,
            speedup=speedup,
            progress=lambda name: shown.say(f"selecting with {name}"),
        )
    write_plot(plot, lambda: _figure(document))
    if tables is not None:
        write_tables(tables, tables_for_papers(document), origin_label(document["profile"]))
    show(document, as_json, lambda console: render_comparison(document, console))


def _figure(document: dict[str, Any]) -> Figure:
    from assay_report.figures.kinds import pareto  # noqa: PLC0415 - only who draws waits for it

    return pareto.of_comparison(document)


def _refuse_method_as_file(files: Sequence[Path]) -> None:
    first, others = files[0], files[1:]
    if str(first) in BUILT_IN and not first.exists():
        named = [str(other) for other in others] or ["FILE"]
        words = shlex.join(["assay", "compare", *named, "-m", str(first)])
        raise ParameterError("assay compare", f"{str(first)!r} is a method, not a file", f"write: {words}")
