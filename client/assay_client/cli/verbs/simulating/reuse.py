"""``assay reuse TRACES...``: what launches touch again, cold-start corrections, and warm-up lists."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay_client.cli.inputs import SIMULATOR_OUTPUT, TRACES, require
from assay_client.cli.options import JsonOption, MemoryLimitOption
from assay_client.cli.output import show
from assay_client.cli.plotting import PlotOption, require_plot, write_plot
from assay_client.cli.progress import Activity, activity
from assay_client.cli.reporters.reuse import render_reuse
from assay_client.cli.traces import traces_of
from assay_client.cli.verb import verb_app
from assay_client.recordings.warm_up import plan_warm_up, write_warm_up
from assay_client.settings import settings_of
from assay_sampling.cold_start.correction import corrections
from assay_sampling.cold_start.reuse import Footprint, LaunchReuse, footprint, forward_reuse
from assay_sampling.errors import ParameterError

if TYPE_CHECKING:
    from assay_report.figures.figure import Figure

app = verb_app()


@app.command()
def reuse(
    traces: Annotated[
        list[Path],
        typer.Argument(
            readable=False,
            metavar="TRACES...",
            help="A kernelslist.g, or kernel-N.traceg in order of launch.",
        ),
    ],
    *,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            readable=False,
            metavar="FILE",
            help="Accel-Sim's output of the cold launches, to be corrected.",
        ),
    ] = None,
    warm_up: Annotated[
        list[int] | None,
        typer.Option("--warm-up", metavar="LAUNCH", min=1, help="1-based place in the list; repeatable."),
    ] = None,
    preceding: Annotated[
        int,
        typer.Option(
            "--preceding", metavar="COUNT", min=1, help="Launches to replay before each of --warm-up."
        ),
    ] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            readable=False,
            metavar="LIST",
            help="Write the list for the simulator here, and the traces that it names next to it.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Allow writing into the folder of the traces and over existing files."),
    ] = False,
    memory_limit: MemoryLimitOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how much of each launch's data the next one touches again.

    With --warm-up it shows the list of kernels that warms launches; with --output it writes the list, the
    memory-only traces that it names, and links to the others. The folder of the traces stays unchanged."""
    require_plot(plot)
    limit = settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes
    require(TRACES, *traces)
    require(SIMULATOR_OUTPUT, log)
    paths, kernels = traces_of(traces)
    document: dict[str, Any] = {}
    with activity("reading traces") as shown:
        if warm_up:
            if kernels is None:
                raise ParameterError("--warm-up", "single traces have no order", "give a kernelslist.g")
            plan = plan_warm_up(kernels, warm_up, preceding, output)
            if output is not None:
                write_warm_up(plan, kernels, output, force=force, say=shown.say)
            document["warm_up"] = plan.to_dict(output)
        elif output is not None:
            raise ParameterError("--output", "there is no list to write", "name launches with --warm-up")
        launches = list(_reuse(paths, limit, shown))
        document["launches"] = [item.to_dict() for item in launches]
        if log is not None:
            shown.say(f"reading {log}")
            before = {item["launch"]: item["forward_reuse"]["sector"] for item in document["launches"]}
            kernels_by_launch = {item["launch"]: item["kernel"] for item in document["launches"]}
            document["corrections"] = corrections(log, before, kernels_by_launch)
    write_plot(plot, lambda: _figure(document))
    show(document, as_json, lambda console: render_reuse(document, console))


def _figure(document: dict[str, Any]) -> Figure:
    from assay_report.figures.kinds import reuse as kind  # noqa: PLC0415 - only who draws waits for it

    return kind.of_document(document)


def _reuse(paths: list[Path], limit: int, shown: Activity) -> Iterable[LaunchReuse]:
    def footprints() -> Iterable[Footprint]:
        for path in paths:
            shown.say(f"reading {path}")
            yield footprint(path, memory_limit_bytes=limit)

    return forward_reuse(footprints())
