"""``assay project FILE``: how much of a launch to simulate, and its projected cycles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay_client.cli.inputs import BLOCK_TRACES, INTERVAL_LOG, SIMULATION, SIMULATION_OR_TRACES, require
from assay_client.cli.options import JsonOption, parse_parameters, with_rule
from assay_client.cli.output import show
from assay_client.cli.plotting import PlotOption, require_plot, write_plot
from assay_client.cli.progress import activity
from assay_client.cli.reporters.project import render_projection, render_tbpoint
from assay_client.cli.traces import simulated_traces, traces_of
from assay_client.cli.verb import FileVerbCommand, verb_app
from assay_sampling.errors import ParameterError
from assay_sampling.files.reading import read_head
from assay_sampling.projection.files import ProjectionOptions, parse_options, project_file
from assay_sampling.projection.tbpoint.files import TBPOINT, TBPointOptions, regions_of_traces, sample_run
from assay_sampling.simulators.accel_sim.output import looks_like_output

if TYPE_CHECKING:
    from assay_report.figures.figure import Figure

app = verb_app()


@app.command(cls=FileVerbCommand)
def project(
    file: Annotated[
        Path,
        typer.Argument(
            readable=False,
            metavar="FILE",
            help="A simulator's standard output, its interval log, or a CSV of samples; for tbpoint its "
            "standard output with the times of thread blocks, or traces.",
        ),
    ],
    *,
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule",
            metavar="RULE",
            help="waves, or artifact, paper or instructions (PKP), or tbpoint; the default is waves if the "
            "number of instructions is known, else paper; with window_cycles or s it is instructions.",
        ),
    ] = None,
    traces: Annotated[
        list[Path] | None,
        typer.Option(
            "--traces",
            readable=False,
            metavar="FILE",
            help="The kernelslist.g of the simulated launches, or their traces; for blocks of uneven length, "
            "a run that was ended within a launch, and tbpoint; repeatable.",
        ),
    ] = None,
    intervals: Annotated[
        Path | None,
        typer.Option("--intervals", readable=False, metavar="FILE", help="The interval log of the same run."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="tolerance_percent=12 (waves); window_cycles=3000, s=0.25 (the other rules); for tbpoint "
            "stall_threshold=0.2, variance_limit=0.3, warm_up_difference=0.1, sms=, compute_capability=, "
            "stall_cycles=; repeatable.",
        ),
    ] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how much of a launch to simulate; project the rest.

    Simulation stops where waves of blocks agree or the IPC is stable (PKP), or skips thread blocks that run
    alike (TBPoint).

    A CSV has the columns cycles,instructions,ctas and needs --param wave_ctas= and --param total_ctas=;
    total_instructions= lets the default rule project by instructions. With --rule tbpoint, traces alone give
    the regions of each launch (--param sms= and compute_capability= name the GPU); a standard output and
    --traces show what skipping blocks would have saved, and the error of that.

    A run that ended within a launch is projected from its interval log; --traces gives the launch's
    instructions."""
    require_plot(plot)
    parameters = with_rule(parse_parameters(param or [], example="rule=paper"), rule)
    if parameters.get("rule") == TBPOINT:
        if plot is not None:
            raise ParameterError("--plot", "it draws rules that stop a launch, not tbpoint", "leave it out")
        options = parse_options({k: v for k, v in parameters.items() if k != "rule"}, TBPointOptions)
        document = _tbpoint(file, traces or [], intervals, options)
        show(document, as_json, lambda console: render_tbpoint(document, console))
        return
    document = _project(file, intervals, parse_options(parameters, ProjectionOptions), traces or [])
    write_plot(plot, lambda: _figure(document, file, intervals))
    show(document, as_json, lambda console: render_projection(document, console))


def _figure(document: dict[str, Any], file: Path, intervals: Path | None) -> Figure:
    from assay_client.recordings import figures  # noqa: PLC0415 - only who draws waits for it

    return figures.of_projection(document, file, intervals)


def _project(
    file: Path, intervals: Path | None, options: ProjectionOptions, traces: list[Path]
) -> dict[str, Any]:
    require(SIMULATION, file)
    if looks_like_output(read_head(file)):  # report first that --traces excludes other options
        require(INTERVAL_LOG, intervals)
    with activity(f"reading {file}"):
        return project_file(file, intervals, options, simulated_traces(traces))


def _tbpoint(
    file: Path, traces: list[Path], intervals: Path | None, options: TBPointOptions
) -> dict[str, Any]:
    require(SIMULATION_OR_TRACES, file)
    require(BLOCK_TRACES, *traces)
    if not looks_like_output(read_head(file)):
        if intervals is not None:
            raise ParameterError("--intervals", "it needs a standard output", "leave it out")
        with activity("reading traces"):
            return regions_of_traces(file, traces_of([file, *traces])[0], options)
    if not traces:
        raise ParameterError(
            str(file),
            "the log does not say what its thread blocks execute",
            "name the traces that were simulated: --traces kernelslist.g",
        )
    require(INTERVAL_LOG, intervals)
    with activity(f"reading {file} and its traces"):
        return sample_run(file, traces_of(traces)[0], intervals, options)
