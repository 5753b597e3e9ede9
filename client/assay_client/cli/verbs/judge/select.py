"""``assay select [METHOD] FILE...``: the launches that stand for a workload, with weights and their error."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from assay_client.cli.inputs import RECORDING, method_and_files, require, with_goals
from assay_client.cli.options import (
    CountOption,
    JsonOption,
    LaunchOffsetOption,
    MemoryLimitOption,
    MethodParameterOption,
    OptionalMethodArgument,
    RanksOption,
    SeedOption,
    SyntheticOption,
    TargetOption,
    UnitOption,
    one_or_each,
    parse_parameters,
)
from assay_client.cli.output import json_pieces, show
from assay_client.cli.plotting import PlotOption, require_plot, write_plot
from assay_client.cli.progress import activity
from assay_client.cli.reporters.selection import render_selection, render_whole_selection
from assay_client.cli.verb import MethodVerbCommand, verb_app
from assay_client.files import require_folder_of, write_atomically
from assay_client.recordings import analyses
from assay_client.recordings.units import unit_choice, unit_for
from assay_client.settings import settings_of
from assay_sampling.counters.features import own_metrics
from assay_sampling.errors import ParameterError
from assay_sampling.gathering.spilling import spill_beyond
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.by_operation import select_by_unit
from assay_sampling.methods.choosing.recommended import Recommended, select_recommended
from assay_sampling.scoring.evaluation import cost_of
from assay_sampling.scoring.selection import Selection

if TYPE_CHECKING:
    from rich.console import Console

    from assay_report.figures.figure import Figure

app = verb_app()


class FigureOfSelection(Enum):
    """What ``--plot`` draws of a selection."""

    LAUNCHES = "launches"
    GROUPS = "groups"
    TIERS = "tiers"


@app.command(cls=MethodVerbCommand)
def select(
    method: OptionalMethodArgument = None,
    files: Annotated[
        list[Path] | None,
        typer.Argument(readable=False, metavar="FILE...", help="Recordings of one workload on one device."),
    ] = None,
    *,
    light: Annotated[
        Path | None,
        typer.Option(
            "--light", readable=False, metavar="FILE", help="The light recording of a two-level profile."
        ),
    ] = None,
    count: CountOption = None,
    target: TargetOption = None,
    param: MethodParameterOption = None,
    ranks: RanksOption = False,
    seed: SeedOption = 0,
    unit: UnitOption = "auto",
    on: Annotated[
        Path | None,
        typer.Option(
            "--on",
            readable=False,
            metavar="FILE",
            help="A recording of the GPU on which the selection will be used; it decides the unit.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            readable=False,
            metavar="FILE",
            help="Write the selection to a .json or .csv file, in an existing folder.",
        ),
    ] = None,
    plot: PlotOption = None,
    figure: Annotated[
        FigureOfSelection,
        typer.Option("--figure", metavar="NAME", help="For --plot: launches, groups or tiers (Sieve)."),
    ] = FigureOfSelection.LAUNCHES,
    synthetic: SyntheticOption = False,
    launch_offset: LaunchOffsetOption = None,
    memory_limit: MemoryLimitOption = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also print the groups, the scores and all details.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Select the launches that stand for a workload.

    They are scored against the recording itself, and the first line says whether to trust them on another
    GPU. Without METHOD a few fast methods are tried, and the one with the best verdict is taken."""
    named, files = method_and_files("select", method, files or [])
    parameters = parse_parameters(param or [])
    limit = settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes
    if output is not None and output.suffix not in (".json", ".csv"):
        raise ParameterError(
            "--output", f"{output} ends in neither .json nor .csv", "name a file that ends in one of them"
        )
    if output is not None:
        require_folder_of(output)
    goals = {"--param": param, "-k": count, "--target": target}
    if goal := next((option for option, value in goals.items() if value is not None), None):
        if named is None:
            raise ParameterError(goal, "no method is named", f"write: assay select METHOD FILE {goal} ...")
        parameters = with_goals(named, parameters, count, target)
    require_plot(plot)
    require(RECORDING, *files, light, on)
    choice = unit_choice(unit)
    in_memory = len(files) > 1 or any((light, on, plot, choice == "operation"))
    with activity("reading " + ", ".join(map(str, files))) as shown:
        profile = analyses.read_profile(
            files,
            light=light,
            ranks=ranks,
            synthetic=True if synthetic else None,
            launch_offset=one_or_each(launch_offset),
            metrics=own_metrics(parameters.get("features")),
            memory_limit_bytes=limit,
            spill_beyond_bytes=None if in_memory else spill_beyond(named, parameters),
        )
        other = None if on is None else analyses.read_profile(on, memory_limit_bytes=limit)
        shown.say("selecting" if named is None else f"selecting with {named}")
        of = unit_for(choice, profile, other)
        if named is None:
            recommendation = select_recommended(of, profile, seed)
        else:
            recommendation = Recommended(select_by_unit(of, named, profile, parameters, seed))
    selection = recommendation.selection
    document = selection.document(labels=True).to_dict()
    if output is not None:
        write_atomically(output, selection.to_csv() if output.suffix == ".csv" else json_pieces(document))
    write_plot(plot, lambda: _figure(profile, selection, document, figure))

    def render(console: Console) -> None:
        if show_all:
            projected = _projected_by_group(profile, selection).tolist()
            render_whole_selection(document, projected, output, console, tried=recommendation.tried)
        else:
            render_selection(document, output, console, tried=recommendation.tried)

    show(document, as_json, render)


def _figure(
    profile: Profile, selection: Selection, document: dict[str, Any], kind: FigureOfSelection
) -> Figure:
    from assay_client.recordings import figures  # noqa: PLC0415 - only who draws waits for it

    return figures.of_selection(profile, selection, document, kind.value)


def _projected_by_group(profile: Profile, selection: Selection) -> np.ndarray:
    """The projected cost of each group, shape (g,), to order groups by it."""
    chosen = selection.representatives
    launches = profile.whole if selection.operations is None else selection.operations.operations.launches
    cost = cost_of(launches, selection.evaluation.quantity)
    each = chosen.weight * cost.values[chosen.row]
    return np.bincount(chosen.group, weights=each, minlength=len(selection.group_launches))
