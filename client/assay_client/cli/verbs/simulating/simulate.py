"""``assay simulate SELECTION``: the selected launches in a simulator, and the table of designs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay_client.cli.inputs import RECORDING, SELECTION, require
from assay_client.cli.options import (
    JsonOption,
    MatchOption,
    MemoryLimitOption,
    TablesOption,
    WeightsOption,
    match_kind,
    weight_kind,
)
from assay_client.cli.output import console, json_text, show
from assay_client.cli.plotting import PlotOption, require_plot, write_plot
from assay_client.cli.progress import Activity, activity
from assay_client.cli.reporters.designs import design_tables, ended_line, progress_line, render_designs
from assay_client.cli.reporters.for_papers import write_tables
from assay_client.cli.reporters.tables import SIMULATED_NOTICE
from assay_client.cli.verb import verb_app
from assay_client.files import require_folder_of, write_atomically
from assay_client.recordings.analyses import load_selection
from assay_client.settings import settings_of
from assay_client.simulating.attempts import HANG_SECONDS, LEAST_MEMORY_BYTES
from assay_client.simulating.driver import Outcome, Progress
from assay_client.simulating.selections import STOPS, WARM_UPS, Follower, SimulateRequest, simulate_selection
from assay_core.settings.quantities import parse_bytes
from assay_sampling.documents.designs import DesignsDocument, EarlyStop, WarmUp
from assay_sampling.errors import ParameterError, RunFailedError

if TYPE_CHECKING:
    from assay_report.figures.figure import Figure

app = verb_app()


@app.command(name="simulate")
def simulate(
    selection: Annotated[
        Path,
        typer.Argument(
            readable=False,
            metavar="SELECTION",
            help="A selection written with: assay select -o, or a weights file.",
        ),
    ],
    *,
    traces: Annotated[
        Path,
        typer.Option(
            "--traces",
            readable=False,
            metavar="DIR",
            help="The folder of Accel-Sim's traces, or the list in it.",
        ),
    ],
    accel_sim: Annotated[
        Path,
        typer.Option(
            "--accel-sim",
            readable=False,
            metavar="ROOT",
            help="Where Accel-Sim was built: the framework's folder, or its gpu-simulator.",
        ),
    ],
    design: Annotated[
        list[str] | None,
        typer.Option(
            "--design",
            metavar="NAME=CONFIG[:OPTIONS]",
            help="A design: a configuration of the simulator, such as SM7_QV100, or a folder with "
            "gpgpusim.config and trace.config, and options on top; repeatable. Speedups are over the first.",
        ),
    ] = None,
    warm_up: Annotated[
        str,
        typer.Option(
            "--warm-up",
            metavar="KIND",
            help="What is replayed of the launch before each: none, tail (memory instructions of its last "
            "160 blocks) or whole (of all).",
        ),
    ] = "none",
    stop: Annotated[
        str,
        typer.Option(
            "--stop",
            metavar="RULE",
            help="The rule of projection that ends a simulation early: none, or waves, as 'assay project' "
            "has it. Statistics of caches and memory are then unknown.",
        ),
    ] = "none",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", min=1, help="Processes at a time; default: a core each."),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            metavar="ADDRESS",
            help="Simulate on the workers of a Dask scheduler, dask://HOST:PORT, which see traces, simulator "
            "and the folder of -o at the same paths; a launch for each of their threads.",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            readable=False,
            metavar="DIR",
            help="The folder of the simulations; called again with it, the verb goes on.",
        ),
    ] = Path("sim"),
    process_memory: Annotated[
        str | None,
        typer.Option(
            "--process-memory",
            metavar="SIZE",
            help="The address space of a process, such as 4GiB; default: this machine's (with --workers: "
            "the worker's) memory / processes at a time.",
        ),
    ] = None,
    hang_after: Annotated[
        float,
        typer.Option(
            "--hang-after",
            metavar="SECONDS",
            min=1.0,
            help="End a process that has written nothing for so long.",
        ),
    ] = HANG_SECONDS,
    weights: WeightsOption = None,
    workload: Annotated[
        str,
        typer.Option("--workload", metavar="NAME", help="The workload's name; default: that of SELECTION."),
    ] = "",
    match: MatchOption = "exact",
    recording: Annotated[
        Path | None,
        typer.Option(
            "--recording",
            readable=False,
            metavar="FILE",
            help="The selection's own recording: it tells which launches the tracer missed.",
        ),
    ] = None,
    memory_limit: MemoryLimitOption = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Simulate anew what was simulated with another simulator, configuration or trace."
        ),
    ] = False,
    document_file: Annotated[
        Path | None,
        typer.Option("--document", readable=False, metavar="FILE", help="Also write the JSON document here."),
    ] = None,
    plot: PlotOption = None,
    tables: TablesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate the selected launches on designs of a GPU, and compare these.

    Each launch has a process of its own. What has ended is kept in the folder: the same command goes on after
    Ctrl-C, a full disk or a crash. 'assay docs simulate' shows the way from traces to the table."""
    require(SELECTION, selection)
    require(RECORDING, recording)
    require_plot(plot)
    if document_file is not None:
        require_folder_of(document_file)
    if jobs is not None and workers is not None:
        raise ParameterError(
            "--jobs", "the workers' threads say how many launches run at a time", "leave it out"
        )
    request = SimulateRequest(
        selection=load_selection(selection),
        selection_file=selection,
        traces=traces,
        accel_sim=accel_sim,
        designs=design or [],
        output=output,
        warm_up=_warm_up(warm_up),
        stop=_stop(stop),
        jobs=jobs,
        workers=workers,
        memory_bytes=_memory(process_memory),
        hang_seconds=hang_after,
        weights=weight_kind(weights),
        workload=workload,
        match=match_kind(match),
        force=force,
        recording=recording,
        memory_limit_bytes=settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes,
    )
    with activity("reading") as shown:
        messages = _Messages(shown)
        document = simulate_selection(request, messages.follower())
    messages.last_notices()
    if document_file is not None:
        write_atomically(document_file, json_text(document.to_dict()))
    write_plot(plot, lambda: _figure(document))
    write_tables(tables, design_tables(document), SIMULATED_NOTICE)
    show(document.to_dict(), as_json, lambda drawn: render_designs(document, drawn))
    if document.failures:
        first = document.failures[0]
        raise RunFailedError(
            f"launch {first.sim_id} on {first.design}, one of {len(document.failures)}",
            f"{first.kind}: {first.cause}",
            first.remedy,
        )


class _Messages:
    """Messages on standard error while launches are simulated."""

    def __init__(self, shown: Activity) -> None:
        self._shown = shown
        self._drawn = console(error=True)
        self._live = sys.stderr.isatty()
        self._notices: set[str] = set()
        self._last: Sequence[str] = ()

    def follower(self) -> Follower:
        return Follower(self._shown.say, self._follow, self._ended)

    def _follow(self, progress: Progress) -> None:
        self._shown.say(progress_line(progress))
        self._last = progress.notices
        if not self._live:
            self._print(progress.notices)

    def last_notices(self) -> None:
        """Print the remaining messages after the live display has ended."""
        self._print(self._last)

    def _print(self, notices: Sequence[str]) -> None:
        for notice in notices:
            if notice not in self._notices:
                self._notices.add(notice)
                self._drawn.print(notice, soft_wrap=True)

    def _ended(self, outcome: Outcome) -> None:
        if not self._live:
            self._drawn.print(ended_line(outcome), soft_wrap=True)


def _figure(document: DesignsDocument) -> Figure:
    from assay_report.figures.kinds.designs import of_designs  # noqa: PLC0415 - only who draws waits for it

    return of_designs(document)


def _warm_up(text: str) -> WarmUp:
    if text not in WARM_UPS:
        raise ParameterError("--warm-up", f"there is no kind {text!r}", f"use {', '.join(WARM_UPS)}")
    return text


def _stop(text: str) -> EarlyStop:
    if text not in STOPS:
        raise ParameterError("--stop", f"there is no rule {text!r}", f"use {' or '.join(STOPS)}")
    return text


def _memory(text: str | None) -> int | None:
    return None if text is None else parse_bytes(text, "--process-memory", least=LEAST_MEMORY_BYTES)
