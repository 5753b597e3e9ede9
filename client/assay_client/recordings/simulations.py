"""Brings simulated launches back: Accel-Sim's logs joined to the selection that they were simulated for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay_client.recordings.analyses import load_selection
from assay_client.recordings.handing_over import made_by, workload_name
from assay_client.recordings.pka import silicon_of
from assay_sampling.documents.handover import SimulationDocument
from assay_sampling.errors import ParameterError
from assay_sampling.handover.simulated import Joined, join_simulated
from assay_sampling.handover.simulated_logs import GivenLog, ReadLog, read_log
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES
from assay_sampling.parameters import WeightKind
from assay_sampling.projection.files import ProjectionOptions
from assay_sampling.simulators.accel_sim.launch_traces import LaunchTraces


@dataclass(frozen=True)
class SimulationRequest:
    """What to join.

    Args:
        selection: a selection's file, or a weights file.
        logs: standard outputs of Accel-Sim: of the selected launches, or of all.
        full: standard outputs of the run of all launches, where the selected ones were simulated apart.
        intervals: the interval logs of ``logs``, in their order, or none.
        traces: those that were simulated, of logs that end within a launch.
        recording: a recording of silicon with cycles; None: those that the selection was made on.
        weights: the kind of weights; None: the selection's own, as PKA's Table 4 has them.
        workload: its name in the document; "" takes the selection's file.
        match: how closely launches are compared with the selection's.
        options: options of the projection.
        memory_limit_bytes: refuse before holding more than this.
    """

    selection: Path
    logs: Sequence[Path]
    full: Sequence[Path] = ()
    intervals: Sequence[Path] = ()
    traces: LaunchTraces | None = None
    recording: Path | None = None
    weights: WeightKind | None = None
    workload: str = ""
    match: MatchKind = "exact"
    options: ProjectionOptions = field(default_factory=ProjectionOptions)
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES


def import_simulated(
    request: SimulationRequest, say: Callable[[str], None] = lambda _: None
) -> SimulationDocument:
    """The errors of a selection in a simulator.

    Raises ParameterError for interval logs that do not go with the logs, and what reading and joining raise
    (:func:`assay_sampling.handover.simulated.join_simulated`).
    """
    if request.intervals and len(request.intervals) != len(request.logs):
        raise ParameterError(
            "--intervals",
            f"{len(request.intervals)} interval logs for {len(request.logs)} logs",
            "give one for each LOG, in their order, or none",
        )
    saved = load_selection(request.selection)
    weights = request.weights or saved.weights.here
    saved.weights_of(weights)
    logs = [_read(log, request, say) for log in _logs(request)]
    if request.recording is not None:
        say(f"reading {request.recording}")
    silicon = silicon_of(saved, request.recording, request.memory_limit_bytes)
    return join_simulated(
        Joined(
            selection=request.selection,
            saved=saved,
            weights=weights,
            workload=workload_name(request.workload, request.selection),
            logs=logs,
            silicon=silicon,
            match=request.match,
            made_by=made_by(),
        )
    )


def _logs(request: SimulationRequest) -> list[GivenLog]:
    intervals: Sequence[Path | None] = request.intervals or [None] * len(request.logs)
    sampled = [GivenLog(log, "sampled", its) for log, its in zip(request.logs, intervals, strict=True)]
    return [*sampled, *(GivenLog(log, "full") for log in request.full)]


def _read(log: GivenLog, request: SimulationRequest, say: Callable[[str], None]) -> ReadLog:
    say(f"reading {log.path}")
    return read_log(log, request.options, request.traces)
