"""One attempt at a launch: the simulator's process, what it left, and why it failed.

The process runs under the supervisor that ends tools: nothing of it outlives us. Its memory is bounded by the
address space that it may have.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_client.simulating.installation import Simulator
from assay_client.simulating.launch_folder import LaunchFolder
from assay_client.simulating.stopping import StopRule, Watch
from assay_core.files.durable import storage_errors
from assay_core.processes.tool_run import EndingSteps, ToolResult, run_tool
from assay_sampling.documents.designs import LaunchNumbers, SimulationFailure, SimulationFailureKind
from assay_sampling.errors import InputError, StorageError
from assay_sampling.files.reading import reading
from assay_sampling.projection.runs import LaunchProjection
from assay_sampling.simulators.accel_sim.cold import read_details
from assay_sampling.simulators.accel_sim.output import SimulatorOutput
from assay_sampling.simulators.accel_sim.statistics import SimulatedLaunch

# The simulator has nothing to put in order: it is asked once, then killed.
_ENDING = EndingSteps(interrupt_seconds=0.5, terminate_seconds=0.5)
_FOR_EVER = float("inf")
_LAST_LINES = 10
_SEARCHED_BYTES = 1 << 20
_DEADLOCK = b"ERROR ** deadlock detected"
LEAST_MEMORY_BYTES = 64 << 20
HANG_SECONDS = 900.0
_NO_MEMORY = ("std::bad_alloc", "Cannot allocate memory", "out of memory")
_STARTED = b"launching kernel name"
_LEAST_FREE_BYTES = 1 << 20
_KILLED = 9

REMEDIES: dict[SimulationFailureKind, str] = {
    "refused": "correct the configuration or the design's options, as the last lines say",
    "crashed": "read the last lines: a truncated trace and a configuration for another generation do this",
    "killed": "something ended it, such as the kernel where memory ran out: lower --jobs; the same command "
    "tries it again",
    "out_of_memory": "raise --process-memory, and lower --jobs so that all processes fit",
    "deadlock": "the simulator found its own model stuck: report it to its authors, or simulate this launch "
    "with other options",
    "hung": "the simulator wrote nothing for that long: raise --hang-after if the machine is that slow",
    "incomplete": "the same command tries it again; leave out options that end a simulation early",
    "damaged_trace": "copy or trace it again; --stop none simulates it as far as the simulator reads it",
    "occupied": "an earlier process of this launch still runs, perhaps on another machine: end it, or wait",
    "worker_differs": "give it the same paths, files and release of Assay; the same command tries again",
    "worker_died": "read these workers' logs: they may need more memory; the same command tries it again",
    "another_launch": "give the traces that the tracer's post-processing wrote, with their own ids",
}


@dataclass(frozen=True)
class Limits:
    """The limits of a process: its address space, and for how long it may write nothing."""

    memory_bytes: int
    hang_seconds: float = HANG_SECONDS


def simulate(
    folder: LaunchFolder,
    simulator: Simulator,
    limits: Limits,
    watch: Watch,
    *,
    locks: Sequence[int],
    rule: StopRule | None = None,
) -> LaunchNumbers | SimulationFailure | None:
    """Simulate a launch. Returns its numbers, or the failure; None if it was cancelled.

    Args:
        folder: where it runs; it is emptied.
        simulator: what runs.
        limits: of the process.
        watch: ends it before its end.
        held: descriptors of locks that stay held until the last of its processes has ended.
        rule: of projection, by which the launch is stopped; None: it is simulated whole.

    Raises StorageError where the disk is full or refuses.
    """
    folder.prepare()
    damage = _damage(folder, rule)
    if damage is not None:
        folder.keep_failure(damage)
        return damage
    ended = run_tool(
        command(folder, simulator, limits.memory_bytes),
        environment=simulator.environment(),
        directory=folder.path,
        timeout_seconds=_FOR_EVER,
        cancelled=watch,
        stdout_path=folder.log,
        held=locks,
        ending=_ENDING,
    )
    if ended.cancelled and not (watch.hung or watch.reached):
        return None
    result = _outcome(folder, ended, limits, watch, rule)
    if isinstance(result, SimulationFailure):
        _refuse_full_disk(folder)
        folder.keep_failure(result)
    else:
        folder.keep(result)
    return result


def command(folder: LaunchFolder, simulator: Simulator, memory_bytes: int) -> list[str]:
    """The command of a process. Its list is named by ``./``: the simulator takes the part before the last
    slash for the traces' folder and gives it to a shell, which would divide a path at blanks."""
    design = folder.design
    return [
        "/bin/sh", "-c", 'ulimit -v "$1"; shift; exec "$@"', "sh", str(memory_bytes >> 10),
        str(simulator.program), "-trace", "./kernelslist.g",
        "-config", "gpgpusim.config", "-config", "trace.config",
        "-visualizer_enabled", "1", "-visualizer_zlevel", "1",
        "-gpgpu_runtime_stat", "500:0",
        *design.completed, *design.options,
    ]  # fmt: skip


def _outcome(
    folder: LaunchFolder, ended: ToolResult, limits: Limits, watch: Watch, rule: StopRule | None
) -> LaunchNumbers | SimulationFailure:
    projected = None
    if rule is not None and (watch.reached or ended.exit_code == 0):
        projected = rule.projection(folder)
    try:
        own, before, output = _launches(folder.log)
    except InputError as error:
        own, before, output = [], [], None
        unreadable = f"its output cannot be read: {error.cause}"
    else:
        unreadable = "its output has no statistics of the launch"
    if projected is not None and output is not None:
        return _projected_numbers(projected, before, output, ended)
    whole = output is not None and len(own) == 1 and own[0].complete
    if whole and ended.exit_code == 0 and own[0].traced_id == folder.launch.traced_id:
        assert output is not None
        return _numbers(own[0], before, output, ended)
    kind, cause = _why(folder, ended, limits, hung=watch.hung)
    if kind is None and whole:
        kind, cause = "another_launch", f"its trace is of launch {own[0].traced_id}"
    lines = _last_lines(folder.log, ended.stderr)
    return failure_of(folder, kind or "incomplete", cause or unreadable, lines)


def _damage(folder: LaunchFolder, rule: StopRule | None) -> SimulationFailure | None:
    """A failure where the trace is damaged, whose instructions a rule needs."""
    if rule is None:
        return None
    try:
        rule.work(folder)
    except InputError as error:
        return failure_of(folder, "damaged_trace", f"{error.subject}: {error.cause}")
    return None


def failure_of(
    folder: LaunchFolder, kind: SimulationFailureKind, cause: str, last_lines: Sequence[str] = ()
) -> SimulationFailure:
    """The failure of a launch, with what to do about one of its kind."""
    return SimulationFailure(
        design=folder.design.name,
        sim_id=folder.launch.launch + 1,
        kernel="",
        kind=kind,
        cause=cause,
        remedy=REMEDIES[kind],
        log=str(folder.log),
        last_lines=list(last_lines),
    )


def _why(
    folder: LaunchFolder, ended: ToolResult, limits: Limits, *, hung: bool
) -> tuple[SimulationFailureKind | None, str]:
    """The failure class of a process and what happened; None where it ended well."""
    tail = _tail(folder.log)
    causes: list[tuple[bool, SimulationFailureKind, str]] = [
        (hung, "hung", f"it wrote nothing for {limits.hang_seconds:g} s"),
        (_DEADLOCK in tail, "deadlock", "the simulator detected a deadlock"),
        (
            any(text in ended.stderr for text in _NO_MEMORY),
            "out_of_memory",
            f"it needs more than {limits.memory_bytes:,} bytes",
        ),
        (ended.signal == _KILLED, "killed", "it was killed"),
        (ended.exit_code != 0 and (_STARTED in tail or ended.signal is not None), "crashed", ended.ending),
        (ended.exit_code != 0, "refused", ended.ending),
    ]
    return next(((kind, cause) for holds, kind, cause in causes if holds), (None, ""))


def _launches(log: Path) -> tuple[list[SimulatedLaunch], list[SimulatedLaunch], SimulatorOutput]:
    """The launches of a log that were simulated, those that were replayed, and the log."""
    output = SimulatorOutput(log)
    launches = list(output.launches())
    replayed = read_details(log).replays
    own = [each for each in launches if each.uid not in replayed]
    return own, [each for each in launches if each.uid in replayed], output


def _numbers(
    launch: SimulatedLaunch, before: Sequence[SimulatedLaunch], output: SimulatorOutput, ended: ToolResult
) -> LaunchNumbers:
    latency = output.config.launch_latency_cycles
    return LaunchNumbers(
        gpu=output.config.gpu_name(),
        core_clock_mhz=output.config.core_clock_mhz,
        cycles=launch.cycles,
        stop_cycles=None,
        active_cycles=None if latency is None or launch.cycles < latency else launch.cycles - latency,
        instructions=launch.instructions,
        executed_instructions=launch.instructions,
        l2_accesses=launch.l2_accesses,
        l2_misses=launch.l2_misses,
        dram_reads=launch.dram_reads,
        dram_writes=launch.dram_writes,
        replayed_instructions=sum(each.instructions for each in before),
        wall_seconds=ended.seconds,
        cpu_seconds=ended.cpu_seconds or 0.0,
        peak_memory_bytes=ended.peak_memory_bytes or 0,
    )


def _projected_numbers(
    projection: LaunchProjection,
    before: Sequence[SimulatedLaunch],
    output: SimulatorOutput,
    ended: ToolResult,
) -> LaunchNumbers:
    """Those of a launch that a rule stopped. Statistics that are printed at a launch's end count as unknown,
    also where the simulator came there before it was ended."""
    assert projection.stop is not None
    assert projection.total_instructions is not None
    cycles, latency = round(projection.stop.projected_cycles), output.config.launch_latency_cycles
    return LaunchNumbers(
        gpu=output.config.gpu_name(),
        core_clock_mhz=output.config.core_clock_mhz,
        cycles=cycles,
        stop_cycles=round(projection.stop.cycles),
        active_cycles=None if latency is None or cycles < latency else cycles - latency,
        instructions=round(projection.total_instructions),
        executed_instructions=projection.launch.instructions,
        l2_accesses=None,
        l2_misses=None,
        dram_reads=None,
        dram_writes=None,
        replayed_instructions=sum(each.instructions for each in before),
        wall_seconds=ended.seconds,
        cpu_seconds=ended.cpu_seconds or 0.0,
        peak_memory_bytes=ended.peak_memory_bytes or 0,
    )


def _tail(log: Path) -> bytes:
    with reading(log), log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _SEARCHED_BYTES, 0))
        return file.read()


def _last_lines(log: Path, stderr: str) -> list[str]:
    """The last lines of what a process printed: of its output, then of its errors."""

    def lines() -> Iterator[str]:
        for text in (_tail(log).decode(errors="replace"), stderr):
            yield from [line.rstrip() for line in text.splitlines() if line.strip()][-_LAST_LINES:]

    return list(lines())


def _refuse_full_disk(folder: LaunchFolder) -> None:
    """Raise StorageError where the disk is full: the simulator does not notice, and leaves a part of its
    output."""
    with storage_errors(folder.path):
        free = shutil.disk_usage(folder.path).free
    if free < _LEAST_FREE_BYTES:
        raise StorageError(
            str(folder.path),
            f"the disk is full: {free:,} bytes are free, and the output of this launch is not whole",
            "free space there; the same command then goes on",
        )
