"""PKA's Table 4 from files: a selection, the simulations of its launches, and the cycles on silicon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from assay_client.recordings.analyses import evaluate, load_selection
from assay_sampling.errors import InputError, ParameterError, RefusedError
from assay_sampling.files.reading import reading
from assay_sampling.handover.simulated import Silicon
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES
from assay_sampling.projection.files import ProjectionOptions
from assay_sampling.projection.pka_table import PkaRow, SimulatedWorkload, application_row, pka_table
from assay_sampling.projection.runs import LaunchProjection, project_run
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.simulators.accel_sim.run import SimulatorRun


class PkaRows(BaseModel):
    """The document of ``assay pka-table``: applications, and in a whole table the means of suites."""

    model_config = ConfigDict(extra="allow")

    rows: list[PkaRow]
    synthetic: bool = False
    notes: list[str] = []


@dataclass(frozen=True)
class PkaApplication:
    """The inputs of one application's row.

    Args:
        selection: as ``assay select -o`` writes it.
        simulations: standard outputs of Accel-Sim: of all launches, or of the selected ones.
        intervals: their interval logs, in the same order; without them nothing is projected.
        silicon: a recording of the workload whose cycles count; None: those that the selection was made on.
        suite, application: the names in the row.
        cycles_per_second: speed of the simulator; None: from the logs.
        options: options of the projection.
    """

    selection: Path
    simulations: Sequence[Path]
    intervals: Sequence[Path]
    silicon: Path | None
    suite: str
    application: str
    cycles_per_second: float | None
    options: ProjectionOptions


def pka_row(inputs: PkaApplication) -> dict[str, Any]:
    """The row of one application, as the document that ``assay pka-table row`` writes.

    Raises InputError for a file that cannot be read, ParameterError for intervals that do not go with the
    simulations, RefusedError for a selection of several processes or a cost that is not in cycles.
    """
    if inputs.intervals and len(inputs.intervals) != len(inputs.simulations):
        raise ParameterError(
            "--intervals",
            f"{len(inputs.intervals)} interval logs for {len(inputs.simulations)} simulations",
            "give one for each SIMULATION, in their order, or none",
        )
    whole = load_selection(inputs.selection)
    saved = whole.by_launch()
    if len(set(saved.process.tolist())) > 1:
        raise RefusedError(
            str(inputs.selection),
            "it selects launches of several processes, and a simulator's log counts those of one",
            "select on the recording of one process",
        )
    projections = list(_simulated(inputs))
    silicon_cycles, synthetic, notes = _silicon(whole, inputs)
    row = application_row(
        inputs.suite,
        inputs.application,
        silicon_cycles=silicon_cycles,
        launches=saved.document.profile.launches,
        selected=saved.launch,
        weights=saved.weight,
        simulated=SimulatedWorkload.of(projections),
        cycles_per_second=inputs.cycles_per_second or _speed(projections),
    )
    if row.pks_speedup is None and row.pka_speedup is None:
        notes.append("not all selected launches were simulated: there is nothing to compare")
    elif row.simulator_error_percent is None and silicon_cycles is not None:
        notes.append("not all launches were simulated: the speedup of PKA is over PKS")
    if not inputs.intervals:
        notes.append("there is no interval log: each launch is simulated to its end, so PKA is PKS")
    return {
        "rows": [row.to_dict()],
        "selection": str(inputs.selection),
        "simulations": [str(path) for path in inputs.simulations],
        "intervals": [str(path) for path in inputs.intervals],
        "silicon": None if inputs.silicon is None else str(inputs.silicon),
        "synthetic": synthetic,
        "notes": notes,
    }


def _simulated(inputs: PkaApplication) -> Sequence[LaunchProjection]:
    launches: list[LaunchProjection] = []
    for path, intervals in zip_longest(inputs.simulations, inputs.intervals):
        run = SimulatorRun(path, intervals)
        launches += project_run(run, inputs.options.of_rule(), sms=inputs.options.sms)
    return launches


def silicon_of(
    saved: SavedSelection, recording: Path | None, memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES
) -> Silicon:
    """Cycles of the whole workload on silicon, None if unknown.

    They are those of ``recording``, else those that the selection was made on. Raises RefusedError for a
    recording of a simulator or without cycles, MisalignedError for one of another workload.
    """
    document = saved.document
    if recording is None:
        cost = document.cost
        in_cycles = cost is not None and cost.unit == "cycle" and not document.profile.simulated
        cycles = cost.total if cost is not None and in_cycles else None
        devices = () if cycles is None else tuple(document.profile.devices)
        return Silicon(cycles, None, document.profile.synthetic, devices)
    evaluated = evaluate(document, recording, memory_limit_bytes=memory_limit_bytes)
    if evaluated["evaluated_on"]["simulated"]:
        raise RefusedError(
            str(recording),
            "it is a simulator's run, and the table compares simulations with silicon",
            "name a recording of silicon with cycles",
        )
    if evaluated["cost"]["unit"] != "cycle":
        raise RefusedError(
            str(recording),
            f"the selection was scored in {evaluated['cost']['unit']}, and simulators count cycles",
            "select again on a recording with cycles",
        )
    of_recording = evaluated["evaluated_on"]
    return Silicon(
        float(evaluated["cost"]["total"]),
        recording,
        bool(of_recording["synthetic"]),
        tuple(of_recording["devices"]),
    )


def _silicon(saved: SavedSelection, inputs: PkaApplication) -> tuple[float | None, bool, list[str]]:
    """Cycles of the whole workload, None if unknown; whether they are synthetic; notes."""
    silicon = silicon_of(saved, inputs.silicon)
    if inputs.silicon is not None or silicon.cycles is not None:
        return silicon.cycles, silicon.synthetic, []
    cost = saved.document.cost
    in_cycles = cost is not None and cost.unit == "cycle"
    why = "made on a simulator's run" if in_cycles else "not scored in cycles"
    return None, silicon.synthetic, [f"the selection was {why}: name a recording with --silicon for errors"]


def _speed(launches: Sequence[LaunchProjection]) -> float | None:
    """Simulated cycles per second from the logs; None if they do not say."""
    seconds = [projection.launch.simulation_seconds for projection in launches]
    times_s = [each for each in seconds if each is not None]
    if len(times_s) < len(seconds) or not sum(times_s):
        return None
    return sum(projection.launch.cycles for projection in launches) / sum(times_s)


def pka_suites(files: Sequence[Path]) -> dict[str, Any]:
    """The whole table of applications' rows, with the means of each suite.

    ``files`` hold documents of :func:`pka_row` or of this function, as JSON. Raises InputError for another
    file, RefusedError if an application of a suite is given twice.
    """
    rows: list[PkaRow] = []
    notes: list[str] = []
    synthetic = False
    for path in files:
        read = _read(path)
        rows += [row for row in read.rows if row.known is None]  # means are made anew
        synthetic |= read.synthetic
        notes += [f"{path}: {note}" for note in read.notes]
    keys: set[tuple[str, str]] = set()
    for row in rows:
        if (row.suite, row.application) in keys:
            raise RefusedError(
                f"application {row.application!r}",
                f"it is given twice in suite {row.suite!r}",
                "give it once, or another name with --application",
            )
        keys.add((row.suite, row.application))
    return {"rows": [asdict(row) for row in pka_table(rows)], "synthetic": synthetic, "notes": notes}


def _read(path: Path) -> PkaRows:
    with reading(path):
        text = path.read_bytes()
    return _parsed(path, PkaRows, text, "write one with: assay pka-table row SELECTION SIMULATION -o FILE")


Parsed = TypeVar("Parsed", bound=BaseModel)


def _parsed(path: Path, kind: type[Parsed], document: Mapping[str, Any] | bytes, remedy: str) -> Parsed:
    """A document as its model; raises InputError naming the first invalid field."""
    try:
        if isinstance(document, bytes):
            return kind.model_validate_json(document)
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        cause = f"it is not what this verb reads: {where + ': ' if where else ''}{first['msg']}"
        raise InputError(path, cause, remedy) from error
