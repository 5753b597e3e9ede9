"""``assay reuse TRACES...``: what launches touch again, cold-start corrections, and warm-up lists."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_client.cli.inputs import SIMULATOR_OUTPUT, TRACES, require
from assay_client.cli.options import JsonOption, MemoryLimitOption, parse_bytes
from assay_client.cli.output import show
from assay_client.cli.progress import Activity, activity
from assay_client.cli.reporters.reuse import render_reuse
from assay_client.cli.traces import traces_of
from assay_client.cli.verb import verb_app
from assay_client.files import write_atomically
from assay_sampling.cold_start_correction import corrections
from assay_sampling.errors import ParameterError
from assay_sampling.reuse import Footprint, LaunchReuse, footprint, forward_reuse
from assay_sampling.simulators.accel_sim_kernels_list import KernelsList
from assay_sampling.simulators.accel_sim_warm_up import (
    memory_only_path,
    memory_only_trace,
    warm_up_list,
    warm_up_order,
)

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
            help="Accel-Sim's output of the cold launches, to correct.",
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
            help="The list for the simulator, beside the traces.",
        ),
    ] = None,
    memory_limit: MemoryLimitOption = "8GiB",
    as_json: JsonOption = False,
) -> None:
    """Measure what each launch touches that the next touches again.

    With --warm-up it writes the memory-only traces that are missing, and a list of kernels."""
    limit = parse_bytes(memory_limit)
    require(TRACES, *traces)
    require(SIMULATOR_OUTPUT, log)
    paths, kernels = traces_of(traces)
    document: dict[str, Any] = {}
    with activity("reading traces") as shown:
        if warm_up:
            document["warm_up"] = _write_warm_up(kernels, warm_up, preceding, output, shown)
        elif output is not None:
            raise ParameterError("--output", "there is no list to write", "name launches with --warm-up")
        found = list(_reuse(paths, limit, shown))
        document["launches"] = [item.to_dict() for item in found]
        if log is not None:
            shown.say(f"reading {log}")
            before = {item["launch"]: item["forward_reuse"]["sector"] for item in document["launches"]}
            kernels_by_launch = {item["launch"]: item["kernel"] for item in document["launches"]}
            document["corrections"] = corrections(log, before, kernels_by_launch)
    show(document, as_json, lambda console: render_reuse(document, console))


def _reuse(paths: list[Path], limit: int, shown: Activity) -> Iterable[LaunchReuse]:
    def footprints() -> Iterable[Footprint]:
        for path in paths:
            shown.say(f"reading {path}")
            yield footprint(path, memory_limit_bytes=limit)

    return forward_reuse(footprints())


def _write_warm_up(
    kernels: KernelsList | None, selected: list[int], preceding: int, output: Path | None, shown: Activity
) -> dict[str, Any]:
    if kernels is None:
        raise ParameterError("--warm-up", "single traces have no order", "give a kernelslist.g")
    target = output or kernels.path.with_name("kernelslist.warm.g")
    if target.resolve().parent != kernels.path.resolve().parent:
        raise ParameterError(
            "--output",
            f"{target} is not beside the traces, and the simulator looks for them beside the list",
            f"write it into {kernels.path.parent}",
        )
    rows = [launch - 1 for launch in selected]
    lines = warm_up_list(kernels, rows, preceding)
    written = []
    for launch, memory_only in warm_up_order(len(kernels.traces), rows, preceding):
        replay = memory_only_path(kernels.traces[launch])
        if memory_only and not replay.exists():
            shown.say(f"writing {replay}")
            write_atomically(replay, b"".join(memory_only_trace(kernels.traces[launch])))
            written.append(str(replay))
    write_atomically(target, "".join(f"{line}\n" for line in lines))
    return {"list": str(target), "lines": lines, "written_traces": written}
