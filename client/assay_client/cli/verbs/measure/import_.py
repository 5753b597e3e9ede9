"""``assay import FILE...`` takes finished measurements into a campaign's store.

``assay import table FILE`` makes a recording of another tool's table; ``assay import accel-sim LOG...`` joins
simulated launches to the selection that they were simulated for.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_client.cli.follow import follow, raise_for_failure
from assay_client.cli.inputs import INTERVAL_LOG, RECORDING, SELECTION, SIMULATOR_OUTPUT, require
from assay_client.cli.options import (
    DocumentOption,
    JsonOption,
    MatchOption,
    MemoryLimitOption,
    ProjectionParameterOption,
    SyntheticOption,
    WeightsOption,
    match_kind,
    parse_parameters,
    weight_kind,
)
from assay_client.cli.output import json_text, show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.imported import render_imported, render_table
from assay_client.cli.reporters.simulated import render_simulated
from assay_client.cli.traces import simulated_traces
from assay_client.cli.verb import DefaultVerbGroup, verb_app
from assay_client.files import require_folder_of, write_atomically
from assay_client.local import run_campaign
from assay_client.places import default_state_directory
from assay_client.recordings.foreign import import_table
from assay_client.recordings.importing import campaign_text, check_kind, parse_condition, recorded_run
from assay_client.recordings.simulations import SimulationRequest, import_simulated
from assay_client.remote.client import Client
from assay_client.settings import settings_of
from assay_sampling.errors import ParameterError
from assay_sampling.projection.files import ProjectionOptions, parse_options


class ImportGroup(DefaultVerbGroup):
    """``import FILE...`` is ``import recordings FILE...``."""

    default = "recordings"


app = verb_app(ImportGroup)


@app.callback()
def import_() -> None:
    """Import recordings into a store, other tools' tables, or simulated launches."""


@app.command(name="recordings")
def recordings(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            readable=False,
            metavar="FILE...",
            help="Recordings of any known format, at most one of each level.",
        ),
    ] = None,
    *,
    workload: Annotated[str, typer.Option("--workload", metavar="NAME", help="What was recorded.")],
    device: Annotated[str, typer.Option("--device", metavar="KIND", help="The kind of GPU, such as V100.")],
    condition: Annotated[
        list[str] | None,
        typer.Option(
            "--condition",
            metavar="NAME=VALUE",
            help="Under what it was recorded: cache=all, clock=base, sm_percent=50, sm_share=partition; "
            "repeatable.",
        ),
    ] = None,
    detailed: Annotated[
        Path | None,
        typer.Option("--detailed", readable=False, metavar="FILE", help="A recording with counters."),
    ] = None,
    light: Annotated[
        Path | None,
        typer.Option("--light", readable=False, metavar="FILE", help="A recording of the free run."),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", help="The campaign's name; default: made from the workload's."
        ),
    ] = "",
    server: Annotated[
        str | None,
        typer.Option(
            "--server", metavar="ADDRESS", help="Submit to this server; an agent there must see the files."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            readable=False,
            metavar="DIR",
            help="Import inside this process into this state folder.",
        ),
    ] = None,
    synthetic: SyntheticOption = False,
    as_json: JsonOption = False,
) -> None:
    """Import recordings into a campaign's store as a recorded run.

    The word 'recordings' may be left out. Takes any file that `assay inspect` reads. Without --server it
    imports inside this process, and the exit code is 6 if the run failed.
    """
    if server is not None and state is not None:
        raise ParameterError("--state", "it cannot be combined with --server", "give one of the two")
    require(RECORDING, *(files or []), detailed, light)
    run = recorded_run(files or [], detailed=detailed, light=light, synthetic=synthetic)
    check_kind(device, run)
    text = campaign_text(
        run, workload=workload, device=device, name=name, condition=parse_condition(condition or [])
    )
    with tempfile.TemporaryDirectory(prefix="assay-") as directory:
        campaign = Path(directory) / "import.yaml"
        campaign.write_text(text, "utf-8")
        status = _submit(campaign, server) if server else _run(campaign, state, as_json)
    document = {"campaign": status}
    show(document, as_json, lambda console: render_imported(status, console))
    raise_for_failure(status)


@app.command(name="table")
def table(
    file: Annotated[
        Path,
        typer.Argument(
            readable=False,
            metavar="FILE",
            help="A table with a row for each launch: CSV, JSON lines, JSON or Parquet, plain or compressed.",
        ),
    ],
    *,
    mapping: Annotated[
        Path,
        typer.Option(
            "--map",
            readable=False,
            metavar="MAPPING",
            help="Which column is what, in which unit (TOML); 'assay docs foreign-tables' has examples.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            readable=False,
            metavar="FILE",
            help="The recording to write; default: FILE's name with .launches.parquet.",
        ),
    ] = None,
    synthetic: SyntheticOption = False,
    as_json: JsonOption = False,
) -> None:
    """Convert another tool's table to a recording.

    The result is a Parquet file that every verb reads. A mapping says which columns are kernel, times,
    shapes and counters; 'assay docs foreign-tables' has those for KTT, Kernel Tuner and aiconfigurator."""
    if output is not None:
        require_folder_of(output)
    with activity(f"reading {file}"):
        document = import_table(file, mapping, output, synthetic=synthetic)
    show(document, as_json, lambda console: render_table(document, console))


@app.command(name="accel-sim")
def accel_sim(
    logs: Annotated[
        list[Path],
        typer.Argument(
            readable=False,
            metavar="LOG...",
            help="Standard outputs of Accel-Sim: of the selected launches, or of all.",
        ),
    ],
    *,
    selection: Annotated[
        Path,
        typer.Option(
            "--selection",
            readable=False,
            metavar="FILE",
            help="What they were simulated for: a selection, or a weights file.",
        ),
    ],
    full: Annotated[
        list[Path] | None,
        typer.Option(
            "--full",
            readable=False,
            metavar="LOG",
            help="The run of all launches, if the LOGs simulate the selected ones apart; repeatable.",
        ),
    ] = None,
    intervals: Annotated[
        list[Path] | None,
        typer.Option(
            "--intervals",
            readable=False,
            metavar="FILE",
            help="The interval log of each LOG, in their order, for PKA; repeatable.",
        ),
    ] = None,
    traces: Annotated[
        list[Path] | None,
        typer.Option(
            "--traces",
            readable=False,
            metavar="DIR",
            help="The traces that were simulated (folder, kernelslist.g or traces), for LOGs of runs that "
            "were ended within a launch: with its interval log such a launch counts as projected; and for "
            "LOGs with the ids of a tracer that missed launches: the folder of 'assay export'. Repeatable.",
        ),
    ] = None,
    recording: Annotated[
        Path | None,
        typer.Option(
            "--recording",
            readable=False,
            metavar="FILE",
            help="Use the cycles of this recording of silicon instead of those that the selection was made "
            "on.",
        ),
    ] = None,
    weights: WeightsOption = None,
    workload: Annotated[
        str,
        typer.Option("--workload", metavar="NAME", help="The workload's name; default: that of --selection."),
    ] = "",
    match: MatchOption = "exact",
    param: ProjectionParameterOption = None,
    output: DocumentOption = None,
    memory_limit: MemoryLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score simulated launches against their selection.

    Simulator, PKS and PKA error as in PKA's Table 4, in all cycles and in active ones; with --full also what
    starting cold costs. Logs of other workloads, simulators or GPUs are refused with the first difference."""
    limit = settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes
    options = parse_options(parse_parameters(param or [], example="rule=paper"), ProjectionOptions)
    require(SELECTION, selection)
    require(SIMULATOR_OUTPUT, *logs, *(full or []))
    require(INTERVAL_LOG, *(intervals or []))
    require(RECORDING, recording)
    if output is not None:
        require_folder_of(output)
    request = SimulationRequest(
        selection=selection,
        logs=logs,
        full=full or [],
        intervals=intervals or [],
        traces=simulated_traces(traces or []),
        recording=recording,
        weights=weight_kind(weights),
        workload=workload,
        match=match_kind(match),
        options=options,
        memory_limit_bytes=limit,
    )
    with activity("reading") as shown:
        document = import_simulated(request, shown.say)
    if output is not None:
        write_atomically(output, json_text(document.to_dict()))
    show(document.to_dict(), as_json, lambda console: render_simulated(document, console))


def _submit(campaign: Path, server: str) -> dict[str, Any]:
    with Client(server) as client:
        return client.status(client.submit(campaign))


def _run(campaign: Path, state: Path | None, quiet: bool) -> dict[str, Any]:
    outcome = run_campaign(
        campaign, state or default_state_directory(), follow=functools.partial(follow, quiet=quiet)
    )
    return dict(outcome.status)
