"""``assay scale-model evaluate | predict | miss-rates``: a large GPU's IPC from two small ones."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay_client.cli.inputs import SCALING_TABLE, TRACES, require
from assay_client.cli.options import JsonOption, MemoryLimitOption, SeedOption
from assay_client.cli.output import show
from assay_client.cli.plotting import PlotOption, require_plot, write_plot
from assay_client.cli.progress import activity
from assay_client.cli.reporters.scale_model import (
    render_evaluation,
    render_miss_rates,
    render_prediction,
)
from assay_client.cli.traces import traces_of
from assay_client.cli.verb import verb_app
from assay_client.settings import settings_of
from assay_core.settings.quantities import parse_bytes
from assay_sampling.errors import ParameterError
from assay_sampling.scale_model.evaluation import evaluate
from assay_sampling.scale_model.miss_rate_curve import LINE_BYTES, TraceAccesses, stack_distances
from assay_sampling.scale_model.prediction import (
    DEFAULT_LEVEL,
    calibration_of,
    interval_coverage,
    predict_workload,
)
from assay_sampling.scale_model.rules import DEFAULT_RULE, RULES
from assay_sampling.scale_model.scaling_table import Workload, read_scaling_table

if TYPE_CHECKING:
    from assay_report.figures.figure import Figure

app = verb_app()

TableArgument = Annotated[
    Path,
    typer.Argument(
        readable=False, metavar="CSV", help="Columns workload,size,size_unit,ipc,mpki,f_mem; one line a size."
    ),
]
WeakOption = Annotated[
    bool, typer.Option("--weak-scaling", help="The work grows with the GPU, so there is no cliff.")
]
ModelsOption = Annotated[
    str | None,
    typer.Option("--models", metavar="S,L", help="Sizes of the scale models; default: the two smallest."),
]
LevelOption = Annotated[
    float, typer.Option("--level", metavar="SHARE", help="The probability with which an interval must hold.")
]


@app.callback()
def scale_model() -> None:
    """Predict a large GPU's IPC from two small ones.

    A miss-rate curve shows where the large one has a cliff."""


@app.command("evaluate")
def evaluate_table(
    table: TableArgument,
    *,
    models: ModelsOption = None,
    weak_scaling: WeakOption = False,
    level: LevelOption = DEFAULT_LEVEL,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare every rule with targets whose IPC is known.

    The rule with a constant never sees the workload that it predicts."""
    require_plot(plot)
    require(SCALING_TABLE, table)
    workloads = read_scaling_table(table)
    evaluation = evaluate(workloads, _sizes(models), weak_scaling=weak_scaling)
    document: dict[str, Any] = evaluation.to_dict()
    document["intervals"] = interval_coverage(evaluation, level)
    document["level"] = level
    write_plot(plot, lambda: _scaling().of_evaluation(document))
    show(document, as_json, lambda console: render_evaluation(document, console))


@app.command("predict")
def predict_target(
    table: TableArgument,
    *,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME",
            help="The workload to predict; default: the only one in the table.",
        ),
    ] = None,
    target: Annotated[
        list[int] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="SIZE",
            min=1,
            help="Size to predict; repeatable. Default: all in the table.",
        ),
    ] = None,
    rule: Annotated[str, typer.Option("--rule", metavar="NAME", help=", ".join(RULES))] = DEFAULT_RULE,
    models: ModelsOption = None,
    weak_scaling: WeakOption = False,
    level: LevelOption = DEFAULT_LEVEL,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            readable=False,
            metavar="CSV",
            help="Table of workloads with known targets, for the intervals.",
        ),
    ] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict one workload's IPC on larger GPUs, with intervals."""
    require_plot(plot)
    require(SCALING_TABLE, table, calibration)
    chosen = _workload(table, read_scaling_table(table), workload)
    calibration_result = None
    if calibration is not None:
        calibration_result = calibration_of(
            read_scaling_table(calibration),
            str(calibration),
            sizes=_sizes(models),
            weak_scaling=weak_scaling,
        )
    document = predict_workload(
        chosen,
        target or (),
        rule=rule,
        sizes=_sizes(models),
        weak_scaling=weak_scaling,
        level=level,
        calibration=calibration_result,
    ).to_dict()
    write_plot(plot, lambda: _curve(chosen, document, _sizes(models), weak_scaling=weak_scaling))
    show(document, as_json, lambda console: render_prediction(document, console))


@app.command("miss-rates")
def miss_rates(
    traces: Annotated[
        list[Path],
        typer.Argument(
            readable=False,
            metavar="TRACES...",
            help="A kernelslist.g, or kernel-N.traceg in order of launch.",
        ),
    ],
    *,
    capacity: Annotated[
        list[str],
        typer.Option("--capacity", metavar="BYTES", help="Size of the last-level cache; repeatable."),
    ],
    resident_blocks: Annotated[
        int,
        typer.Option(
            "--resident-blocks", metavar="COUNT", min=1, help="Thread blocks that run together on the GPU."
        ),
    ] = 1,
    line_bytes: Annotated[
        int, typer.Option("--line", metavar="BYTES", help="Bytes of a cache line.")
    ] = LINE_BYTES,
    sectors: Annotated[
        int, typer.Option("--sectors", metavar="COUNT", help="Sectors of a line; 1: not sectored.")
    ] = 4,
    sampling_rate: Annotated[
        float,
        typer.Option("--sampling-rate", metavar="SHARE", help="Share of the lines to sample; 1 is exact."),
    ] = 1.0,
    seed: SeedOption = 0,
    memory_limit: MemoryLimitOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the miss-rate curve of launches from their traces.

    The cache is fully associative and LRU; it stays warm from launch to launch."""
    capacities = [parse_bytes(text, "--capacity", least=1) for text in capacity]
    limit = settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes
    if sectors < 1 or line_bytes % sectors:
        raise ParameterError("--sectors", f"{sectors} do not divide a line of {line_bytes} bytes")
    require_plot(plot)
    require(TRACES, *traces)
    accesses = TraceAccesses(traces_of(traces)[0], resident_blocks, line_bytes // sectors)
    with activity("reading traces"):
        distances = stack_distances(
            accesses,
            sectors_per_line=sectors,
            sampling_rate=sampling_rate,
            seed=seed,
            memory_limit_bytes=limit,
        )
        mpki = distances.misses_per_thousand(capacities, accesses.thread_instructions, line_bytes)
        misses = distances.misses([size // line_bytes for size in capacities])
    document = {
        "accesses": distances.accesses,
        "first_touches": distances.first_touches,
        "thread_instructions": accesses.thread_instructions,
        "line_bytes": line_bytes,
        "sectors_per_line": sectors,
        "sampling_rate": distances.sampling_rate,
        "resident_blocks": resident_blocks,
        "seed": seed,
        "curve": [
            {"capacity_bytes": size, "misses": missed, "mpki": rate}
            for size, missed, rate in zip(capacities, misses.tolist(), mpki.tolist(), strict=True)
        ],
    }
    write_plot(plot, lambda: _scaling().of_miss_rates(document))
    show(document, as_json, lambda console: render_miss_rates(document, console))


def _scaling() -> ModuleType:
    from assay_report.figures.kinds import scaling  # noqa: PLC0415 - only who draws waits for it

    return scaling


def _curve(
    workload: Workload, document: dict[str, Any], sizes: list[int] | None, *, weak_scaling: bool
) -> Figure:
    from assay_client.recordings import figures  # noqa: PLC0415 - only who draws waits for it

    rules = figures.other_rules(workload, document, sizes=sizes, weak_scaling=weak_scaling)
    made: Figure = _scaling().of_prediction(document, workload.ipc, rules)
    return made


def _workload(table: Path, workloads: list[Workload], name: str | None) -> Workload:
    matches = [workload for workload in workloads if name in (None, workload.name)]
    if len(matches) != 1:
        names = ", ".join(workload.name for workload in workloads)
        cause = "it holds several workloads" if name is None else f"it holds no workload {name!r}"
        raise ParameterError(str(table), cause, f"give --workload, one of {names}")
    return matches[0]


def _sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ParameterError("--models", f"{text!r} is not two sizes", "write --models 8,16")
    return [int(part) for part in parts]
