"""Simulates a selection on designs of a GPU: ``assay simulate``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay_client.files import write_atomically
from assay_client.recordings.analyses import read_profile
from assay_client.recordings.handing_over import made_by, workload_name
from assay_client.simulating.attempts import HANG_SECONDS
from assay_client.simulating.designs import Design, parse_designs
from assay_client.simulating.driver import Driver, Outcome, Progress, folder_locked
from assay_client.simulating.installation import Simulator, digest_of, open_simulator
from assay_client.simulating.launch_folder import (
    LaunchFolder,
    copy_configuration,
    folder_name,
    key_of,
    read_by,
)
from assay_client.simulating.stopping import StopRule
from assay_client.simulating.tasks import LaunchTask
from assay_client.simulating.workers import LocalWorkers, Workers, default_jobs
from assay_sampling.documents.common import NoteEntry
from assay_sampling.documents.designs import DesignsDocument, EarlyStop, LaunchNumbers, WarmUp
from assay_sampling.documents.handover import SelectedOn
from assay_sampling.errors import MisalignedError, RefusedError
from assay_sampling.files.reading import reading
from assay_sampling.handover.designs import (
    SimulatedDesign,
    WeighedLaunches,
    design_entry,
    launch_entries,
    notes_on,
    speedup_entries,
)
from assay_sampling.handover.isolated import IsolatedLaunch, isolated_launches, with_tail_of
from assay_sampling.handover.target import Inputs
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES
from assay_sampling.notes.registry import Note, distinct_notes
from assay_sampling.parameters import WeightKind
from assay_sampling.projection.projector import ProjectionParameters
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.simulators.accel_sim.launch_traces import LaunchTraces

WARM_UPS: tuple[WarmUp, ...] = ("none", "tail", "whole")
STOPS: tuple[EarlyStop, ...] = ("none", "waves")
_WORKLOAD = "workload.json"


@dataclass(frozen=True)
class SimulateRequest:
    """What to simulate.

    Args:
        selection: the selection.
        selection_file: its file, for messages and for the workload's name.
        traces: the folder of the traces, or the list in it.
        accel_sim: where Accel-Sim was built.
        designs: ``NAME=CONFIG[:OPTIONS]`` each.
        output: the folder of the simulations.
        warm_up: what is replayed before each representative.
        stop: the rule of projection that ends simulations; "none": they are simulated whole.
        jobs: processes at a time on this machine; None: a core each.
        workers: ``dask://HOST:PORT`` of the scheduler whose workers simulate; None: this machine does.
        memory_bytes: the address space of each process; None: its share of its machine's memory.
        hang_seconds: for how long a process may write nothing.
        weights: the kind of weights; None: the selection's own.
        workload: its name in the document; "" takes the selection's file.
        match: how closely traces must be the selected launches.
        force: simulate anew what was simulated with another simulator, configuration or trace.
        recording: that the selection was made on: it tells the launches that a tracer missed.
        memory_limit_bytes: refuse a recording before holding more than this of it.
    """

    selection: SavedSelection
    selection_file: Path
    traces: Path
    accel_sim: Path
    designs: Sequence[str]
    output: Path
    warm_up: WarmUp
    stop: EarlyStop
    jobs: int | None = None
    workers: str | None = None
    memory_bytes: int | None = None
    hang_seconds: float = HANG_SECONDS
    weights: WeightKind | None = None
    workload: str = ""
    match: MatchKind = "exact"
    force: bool = False
    recording: Path | None = None
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES


@dataclass(frozen=True)
class Follower:
    """Who is told what happens: each is called in the caller's thread."""

    say: Callable[[str], None] = lambda _: None
    follow: Callable[[Progress], None] = lambda _: None
    ended: Callable[[Outcome], None] = lambda _: None


def simulate_selection(request: SimulateRequest, follower: Follower) -> DesignsDocument:
    """Simulate what is not simulated yet, and the table of designs.

    Raises ParameterError for a simulator or design that is not there, RefusedError and MisalignedError for
    traces or a folder of another workload, and for results of another simulator, configuration or trace
    without ``force``; StorageError for a full disk; NotReadyError if workers elsewhere are lost.
    """
    if request.workers is not None:  # they have working folders of their own
        request = replace(request, traces=request.traces.absolute(), output=request.output.absolute())
    simulator = open_simulator(request.accel_sim)
    designs = parse_designs(request.designs, simulator)
    saved = request.selection.by_launch()
    kind = request.weights or saved.weights.here
    chosen = WeighedLaunches(saved, saved.weights_of(kind), kind)
    inputs = _inputs(request, follower)
    follower.say("checking the traces")
    launches, notes = isolated_launches(saved, inputs, request.warm_up)
    with folder_locked(request.output):
        _claim(request.output, saved)
        rule = _rule(request.stop, launches)
        keys = _Keys(simulator.digest(), rule, follower.say)
        folders = [
            folder
            for design in designs
            for folder in _folders(request, design, launches, request.warm_up, keys)
        ]
        there = _results(folders, force=request.force)
        for design in designs:
            copy_configuration(request.output / design.name, design)
        missing = [
            LaunchTask(folder, simulator, request.hang_seconds, request.memory_bytes, rule)
            for folder in folders
            if folder.path not in there
        ]
        outcomes = [Outcome(folder, numbers, None, resumed=True) for folder, numbers in there.values()]
        if missing:
            driver = Driver(_workers(request), follow=follower.follow, ended=follower.ended)
            outcomes += driver.run(missing)
        others = _other_warm_ups(request, saved, inputs, designs, keys)
    simulated = [_simulated(request, chosen, design, outcomes, others) for design in designs]
    return _document(request, simulator, chosen, simulated, [*notes, *notes_on(simulated, request.warm_up)])


def _inputs(request: SimulateRequest, follower: Follower) -> Inputs:
    recording = None
    if request.recording is not None:
        follower.say(f"reading {request.recording}")
        recording = read_profile(request.recording, memory_limit_bytes=request.memory_limit_bytes).whole
    return Inputs(request.selection_file, traces=request.traces, recording=recording, match=request.match)


def _workers(request: SimulateRequest) -> Workers:
    if request.workers is None:
        return LocalWorkers(request.jobs or default_jobs())
    from assay_client.simulating.dask_workers import DaskWorkers  # noqa: PLC0415 - only who has a cluster

    return DaskWorkers(request.workers)


class _Keys:
    """Keys of launches; each trace is read once."""

    def __init__(self, simulator: str, rule: StopRule | None, say: Callable[[str], None]) -> None:
        self._simulator, self._say = simulator, say
        self._stop = "" if rule is None else rule.key
        self._traces: dict[Path, str] = {}
        self._configurations: dict[str, str] = {}

    def of(self, design: Design, launch: IsolatedLaunch) -> dict[str, str]:
        traces = read_by(launch)
        for path in traces:
            if path not in self._traces:
                self._say(f"reading {path}")
                self._traces[path] = digest_of([path])
        if design.name not in self._configurations:
            self._configurations[design.name] = design.digest()
        read = "".join(self._traces[path] for path in traces)
        configuration = self._configurations[design.name]
        return key_of(self._simulator, design, configuration, launch, traces=read, stop=self._stop)


def _rule(stop: EarlyStop, launches: Sequence[IsolatedLaunch]) -> StopRule | None:
    if stop == "none":
        return None
    traces = LaunchTraces({each.traced_id: each.trace for each in launches})
    return StopRule(ProjectionParameters(rule=stop), traces)


def _folders(
    request: SimulateRequest,
    design: Design,
    launches: Sequence[IsolatedLaunch],
    warm_up: WarmUp,
    keys: _Keys,
) -> list[LaunchFolder]:
    place, gpu = request.output / design.name, design.gpu()
    own = [with_tail_of(launch, gpu) for launch in launches]
    return [
        LaunchFolder(
            place / folder_name(launch, warm_up, request.stop), design, launch, keys.of(design, launch)
        )
        for launch in own
    ]


def _results(
    folders: Sequence[LaunchFolder], *, force: bool
) -> dict[Path, tuple[LaunchFolder, LaunchNumbers]]:
    """What is simulated already, by folder; see :meth:`LaunchFolder.result`."""
    results = {}
    for folder in folders:
        try:
            numbers = folder.result()
        except RefusedError:
            if not force:
                raise
            continue
        if numbers is not None:
            results[folder.path] = folder, numbers
    return results


def _claim(output: Path, saved: SavedSelection) -> None:
    """Raise RefusedError where a folder has simulations of another workload; else write down whose it is."""
    path = output / _WORKLOAD
    ours = {"sequence": saved.sequence.exact, "launches": saved.document.profile.launches}
    if path.is_file():
        with reading(path):
            text = path.read_bytes()
        try:
            theirs = json.loads(text)
        except ValueError:
            theirs = ours
        if isinstance(theirs, dict) and {name: theirs.get(name) for name in ours} != ours:
            raise RefusedError(
                str(output),
                "it has simulations of another workload than the selection's",
                "name another folder with -o",
            )
    write_atomically(path, json.dumps(ours) + "\n")


def _other_warm_ups(
    request: SimulateRequest, saved: SavedSelection, inputs: Inputs, designs: Sequence[Design], keys: _Keys
) -> Mapping[tuple[str, WarmUp], Mapping[int, LaunchNumbers]]:
    """What the folder has of the representatives by design and warm-up, whatever this call replays, with its
    rule that stops them."""
    by_warm_up: dict[tuple[str, WarmUp], dict[int, LaunchNumbers]] = {}
    for warm_up in WARM_UPS:
        suffix = ("" if warm_up == "none" else f"-{warm_up}") + (
            "" if request.stop == "none" else f"-{request.stop}"
        )
        if not any(request.output.glob(f"*/launch-*{suffix}/result.json")):
            continue
        try:
            launches, _ = isolated_launches(saved, inputs, warm_up)
        except MisalignedError:
            continue  # the launches before have no traces
        for design in designs:
            place = request.output / design.name
            ready = [each for each in launches if (place / folder_name(each, warm_up, request.stop)).is_dir()]
            results = _results(_folders(request, design, ready, warm_up, keys), force=True)
            by_warm_up[design.name, warm_up] = {
                folder.launch.launch: numbers for folder, numbers in results.values()
            }
    return by_warm_up


def _simulated(
    request: SimulateRequest,
    chosen: WeighedLaunches,
    design: Design,
    outcomes: Sequence[Outcome],
    others: Mapping[tuple[str, WarmUp], Mapping[int, LaunchNumbers]],
) -> SimulatedDesign:
    own = [each for each in outcomes if each.folder.design is design]
    kernels = dict(zip(chosen.launches, chosen.saved.kernel, strict=True))
    return SimulatedDesign(
        name=design.name,
        configuration=str(design.configuration),
        options=[*design.completed, *design.options],
        folder=str(request.output / design.name),
        numbers={each.folder.launch.launch: each.numbers for each in own if each.numbers is not None},
        failures=[
            each.failure.model_copy(update={"kernel": kernels[each.folder.launch.launch]})
            for each in own
            if each.failure is not None
        ],
        resumed=frozenset(each.folder.launch.launch for each in own if each.resumed),
        cold=others.get((design.name, "none"), {}),
        warm={
            warm_up: others[design.name, warm_up]
            for warm_up in WARM_UPS
            if warm_up != "none" and (design.name, warm_up) in others
        },
    )


def _document(
    request: SimulateRequest,
    simulator: Simulator,
    chosen: WeighedLaunches,
    designs: Sequence[SimulatedDesign],
    notes: Sequence[Note],
) -> DesignsDocument:
    document = chosen.saved.document
    return DesignsDocument(
        made_by=made_by(),
        workload=workload_name(request.workload, request.selection_file),
        selection=SelectedOn(
            path=str(request.selection_file),
            method=document.method,
            parameters=document.parameters,
            seed=document.seed,
            weights=chosen.kind,
            profile=document.profile,
        ),
        weights=chosen.kind,
        simulator=str(simulator.program),
        warm_up=request.warm_up,
        stop=request.stop,
        designs=[design_entry(design, chosen) for design in designs],
        speedups=speedup_entries(designs, chosen),
        launches=[entry for design in designs for entry in launch_entries(design, chosen)],
        failures=[failure for design in designs for failure in design.failures],
        notes=[NoteEntry.of(note) for note in distinct_notes(notes)],
    )
