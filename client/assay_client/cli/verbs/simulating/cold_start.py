"""``assay cold-start WARM FLUSHED``: what cold caches cost each launch, and the workload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay_client.cli.inputs import WARM_OR_FLUSHED, require
from assay_client.cli.options import JsonOption, MemoryLimitOption, SyntheticOption
from assay_client.cli.output import show
from assay_client.cli.plotting import PlotOption, require_plot, write_plot
from assay_client.cli.progress import activity
from assay_client.cli.reporters.cold_start import render_cold_start
from assay_client.cli.verb import verb_app
from assay_client.recordings import analyses
from assay_client.settings import settings_of
from assay_sampling.cold_start.comparison import compare_outputs, compare_recordings
from assay_sampling.errors import InputError, ParameterError
from assay_sampling.files.reading import is_folder, read_head, require_file
from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers.opening import READERS
from assay_sampling.simulators.accel_sim.output import looks_like_output

if TYPE_CHECKING:
    from assay_report.figures.figure import Figure

app = verb_app()


@app.command()
def cold_start(
    warm: Annotated[
        Path, typer.Argument(readable=False, metavar="WARM", help="Caches left alone between launches.")
    ],
    flushed: Annotated[
        Path,
        typer.Argument(
            readable=False, metavar="FLUSHED", help="Cold caches: flushed, or launches simulated alone."
        ),
    ],
    *,
    cost: Annotated[
        str | None,
        typer.Option("--cost", metavar="QUANTITY", help="The cost of recordings; default: their cycles."),
    ] = None,
    active_cycles: Annotated[
        bool, typer.Option("--active-cycles", help="Of simulations: without the fixed launch latency.")
    ] = False,
    synthetic: SyntheticOption = False,
    memory_limit: MemoryLimitOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare warm caches with cold ones, launch by launch.

    Both are recordings with counters, or both standard outputs of Accel-Sim."""
    require_plot(plot)
    limit = settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes
    require(WARM_OR_FLUSHED, *(path for path in (warm, flushed) if not is_folder(path)))
    with activity(f"comparing {warm} and {flushed}"):
        if _simulated(warm, flushed):
            if cost is not None or synthetic:
                raise ParameterError("--cost, --synthetic", "they are for recordings, not for simulations")
            comparison = compare_outputs(warm, flushed, active_cycles=active_cycles)
        else:
            if active_cycles:
                raise ParameterError("--active-cycles", "it is for a simulator's output, not for recordings")
            mark = True if synthetic else None
            left, right = (_read(path, mark, limit) for path in (warm, flushed))
            comparison = compare_recordings(left, right, cost)
    document = {"warm_run": str(warm), "flushed_run": str(flushed), **comparison.to_dict()}
    write_plot(plot, lambda: _figure(document))
    show(document, as_json, lambda console: render_cold_start(document, console))


def _figure(document: dict[str, Any]) -> Figure:
    from assay_report.figures.kinds import cold_start as kind  # noqa: PLC0415 - only who draws waits for it

    return kind.of_comparison(document)


def _read(path: Path, synthetic: bool | None, limit: int) -> Launches:
    try:
        return analyses.read_profile(path, synthetic=synthetic, memory_limit_bytes=limit).whole
    except InputError as error:
        if path.is_dir() or not any(reader.recognises(path, read_head(path)) for reader in READERS):
            # Readers name the recordings that they know, but this verb also reads simulations.
            raise InputError(path, error.cause, f"{error.remedy}; or {WARM_OR_FLUSHED.words}") from error
        raise


def _simulated(warm: Path, flushed: Path) -> bool:
    simulated = {_is_simulated(path) for path in (warm, flushed)}
    if len(simulated) > 1:
        raise ParameterError(
            f"{warm}, {flushed}",
            "one is a simulator's output and the other is a recording",
            "compare silicon with silicon and simulation with simulation",
        )
    return simulated.pop()


def _is_simulated(path: Path) -> bool:
    if path.is_dir():
        return False
    require_file(path)
    return looks_like_output(read_head(path))
