"""Target ``accel-sim-jobs``: what the framework's own scripts take, a job for each selected launch.

``run_simulations.py`` runs a list for each application and its arguments, which it finds by their folder;
``plot-correlation.py`` joins simulated launches with rows of hardware by their position. So each launch is an
"argument" of its own, one more has them all, and each has the rows of its own launches, numbered anew.

Source: accel-sim-framework, util/job_launching/common.py and run_simulations.py, and
util/plotting/plot-correlation.py, whose parse_hw_csv_2 reads one metric of each launch; docs/handover.md.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from assay_sampling.errors import CounterUnavailableError
from assay_sampling.handover.accel_sim import (
    LIST_NAME,
    checked_traces,
    filtered_entries,
    launch_ids_files,
    refuse_unwarmed,
    traced_ids_of,
)
from assay_sampling.handover.isolated import copies_before
from assay_sampling.handover.target import HandedFile, HandOver, Inputs, Need, of_one_process
from assay_sampling.handover.weights import weights_entry
from assay_sampling.launches.in_memory import Launches
from assay_sampling.scoring.by_operation import place_saved_operations
from assay_sampling.scoring.elsewhere import placed_on
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.simulators.accel_sim.kernels_list import MemoryCopy
from assay_sampling.simulators.accel_sim.trace_folder import TraceFolder
from assay_sampling.simulators.accel_sim.warm_up import memory_only_path, memory_only_trace

ALL_IN_ONE = "selected"
_CYCLES, _METRIC = "cycles_gpc_avg", "gpc__cycles_elapsed.avg"
# A launch that is not to be correlated: one that only warms caches, or that has no cycles.
_LEFT_OUT = "left_out"
_DEVICE = "device__attribute_display_name"


@dataclass(frozen=True)
class _Job:
    """A job: its argument, the lines of its list, its launches in their order (None: it only warms caches),
    the traces that are linked and those whose memory instructions are written, by name."""

    argument: str
    lines: tuple[str, ...]
    launches: tuple[int | None, ...]
    links: dict[str, Path]
    replayed: dict[str, Path]


class AccelSimJobsTarget:
    """Folders for ``run_simulations.py -T``, its app yml, and rows for ``plot-correlation.py``."""

    name = "accel-sim-jobs"
    summary = "for Accel-Sim's run_simulations.py: a list for each launch, app yml, hardware rows"
    needs: frozenset[Need] = frozenset({"traces"})
    takes: frozenset[Need] = frozenset({"traces", "recording"})
    file_suffix = ""

    def hand_over(self, saved: SavedSelection, inputs: Inputs) -> HandOver:
        """See :class:`assay_sampling.handover.target.Target`.

        Raises CounterUnavailableError for a recording without elapsed cycles.
        """
        whole, saved = saved, saved.by_launch()
        launches = of_one_process(saved, inputs)
        folder, notes = checked_traces(saved, inputs, launches)
        refuse_unwarmed(saved, inputs, folder, launches)
        jobs = [_together(folder, launches.tolist())]
        jobs += [_alone(folder, launch, inputs.warm_up) for launch in launches.tolist()]
        # Their scripts divide names at two hyphens.
        app = re.sub("-+", "-", inputs.workload)
        files = [
            HandedFile(f"define-{app}.yml", "copy it to util/job_launching/apps", partial(_yml, app, jobs))
        ]
        links: dict[str, Path] = {}
        for job in jobs:
            place = f"traces/{app}/{job.argument}/traces"
            files.append(
                HandedFile(f"{place}/{LIST_NAME}", "what its job simulates", partial(_lines, job.lines))
            )
            files += [
                HandedFile(f"{place}/{name}", "memory instructions alone", partial(memory_only_trace, trace))
                for name, trace in job.replayed.items()
            ]
            files += launch_ids_files(folder, [at + 1 for at in job.launches if at is not None], f"{place}/")
            links |= {f"{place}/{name}": trace for name, trace in job.links.items()}
        if inputs.recording is not None:
            files += _hardware(app, jobs, inputs.recording, _rows(whole, inputs.recording))
        files.append(weights_entry(whole, inputs))
        order = np.arange(len(launches))
        traced_ids = traced_ids_of(folder, launches)
        return HandOver(tuple(files), order, tuple(sorted(links.items())), notes, traced_ids)


def _together(folder: TraceFolder, launches: Sequence[int]) -> _Job:
    """All selected launches in one process, in the order of the traces."""
    launch_by_trace = {folder.by_id[launch + 1]: launch for launch in launches}
    entries = filtered_entries(folder.kernels, frozenset(launch_by_trace))
    traces = [entry for entry in entries if not isinstance(entry, MemoryCopy)]
    lines = tuple(entry.line if isinstance(entry, MemoryCopy) else entry.name for entry in entries)
    links = {trace.name: trace for trace in traces}
    return _Job(ALL_IN_ONE, lines, tuple(launch_by_trace[trace] for trace in traces), links, {})


def _alone(folder: TraceFolder, launch: int, warm_up: int) -> _Job:
    """A launch in a process of its own, after the memory instructions of so many before it."""
    own = folder.by_id[launch + 1]
    lines: list[str] = []
    replayed = {}
    for before in range(max(launch - warm_up, 0), launch):
        trace = folder.by_id[before + 1]
        name = memory_only_path(trace).name
        replayed[name] = trace
        lines += [*(copy.line for copy in copies_before(folder.kernels, trace)), name]
    lines += [*(copy.line for copy in copies_before(folder.kernels, own)), own.name]
    order = (*(None for _ in replayed), launch)
    return _Job(f"launch_{launch + 1}", tuple(lines), order, {own.name: own}, replayed)


def _lines(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield f"{line}\n"


def _yml(app: str, jobs: Sequence[_Job]) -> Iterator[str]:
    """Two suites: the launches together, and each apart."""
    for suite, of_suite in ((f"{app}-{ALL_IN_ONE}", jobs[:1]), (app, jobs[1:])):
        yield f'"{suite}":\n    exec_dir: "none/"\n    data_dirs: "none/"\n    execs:\n        - "{app}":\n'
        for job in of_suite:
            yield f'            - args: "{job.argument}"\n'


def _rows(saved: SavedSelection, launches: Launches) -> dict[int, int]:
    """The row of each selected launch in the recording; raises MisalignedError for another workload's."""
    if saved.unit == "operation":
        by_operation = place_saved_operations(saved, launches)
        rows = np.concatenate(by_operation.operations.rows_of(by_operation.placed.rows))
    else:
        rows = placed_on(saved, launches, None).rows
    return dict(zip(launches.column("launch")[rows].tolist(), rows.tolist(), strict=True))


def _hardware(app: str, jobs: Sequence[_Job], recording: Launches, rows: dict[int, int]) -> list[HandedFile]:
    """The recording's elapsed cycles of the launches of each job."""
    if _CYCLES not in recording.counters:
        raise CounterUnavailableError(
            ", ".join(recording.sources) or "recording",
            f"it has no {_METRIC}, which plot-correlation.py compares",
            "record it: ncu --metrics gpc__cycles_elapsed.avg, or leave out --recording",
        )
    cycles = recording.column(_CYCLES)
    names = recording.names
    kernels = recording.column("kernel_id")
    (device, *_) = (each.name or each.label() for each in recording.devices())
    files = []
    for job in jobs:
        table: list[tuple[str, float | None]] = []
        for launch in job.launches:
            row = None if launch is None else rows.get(launch)
            name = "" if row is None else names[int(kernels[row])]
            value = None if row is None or np.isnan(cycles[row]) else float(cycles[row])
            table.append((name, value))
        files.append(
            HandedFile(
                f"hardware/{app}/{job.argument}/gpc__cycles_elapsed.csv",
                "cycles on silicon of its launches, numbered anew",
                partial(_csv, device, table),
            )
        )
    return files


def _csv(device: str, table: Sequence[tuple[str, float | None]]) -> Iterator[str]:
    yield _csv_line(["ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"])
    yield _csv_line([0, "", _DEVICE, "", device])
    for number, (kernel, cycles) in enumerate(table):
        metric = _LEFT_OUT if cycles is None else _METRIC
        yield _csv_line([number, kernel, metric, "cycle", 0 if cycles is None else f"{cycles:.6f}"])


def _csv_line(values: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(values)
    return text.getvalue()
