"""Logs of simulations, read for a selection: which launches they hold, and whether they belong together.

Logs of different simulators, of different simulated GPUs and of other workloads are refused with the first
difference. A launch counts if its statistics are whole, or if the run was ended within it and a rule projects
it from its interval log and its trace. Launches of which only memory instructions were simulated, to warm
caches, do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from assay_sampling.documents.common import NoteEntry
from assay_sampling.documents.handover import LogEntry
from assay_sampling.errors import InputError, MisalignedError, RefusedError
from assay_sampling.handover.comparing.shapes import SeenLaunch
from assay_sampling.handover.nvbit import id_ranges
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.projection.files import ProjectionOptions
from assay_sampling.projection.runs import LaunchProjection, project_run
from assay_sampling.simulators.accel_sim.cold import read_details
from assay_sampling.simulators.accel_sim.launch_traces import LaunchTraces
from assay_sampling.simulators.accel_sim.run import SimulatorRun

LogKind = Literal["sampled", "full"]
# Options that say what is printed, sampled or when a run ends, and nothing of the GPU.
_NOT_OF_THE_GPU = frozenset(
    {"gpgpu_runtime_stat", "gpgpu_max_cycle", "gpgpu_max_insn", "gpgpu_max_cta", "gpgpu_max_completed_cta",
     "gpgpu_cflog_interval", "gpgpu_memlatency_stat", "gpgpu_ptx_inst_debug_file",
     "gpgpu_ptx_inst_debug_thread_uid", "gpgpu_ptx_inst_debug_to_file", "gpgpu_deadlock_detect",
     "gpgpu_ptx_save_converted_ptxplus"}
)  # fmt: skip


@dataclass(frozen=True)
class GivenLog:
    """A log to read, with its interval log where there is one."""

    path: Path
    kind: LogKind = "sampled"
    intervals: Path | None = None


@dataclass(frozen=True)
class ReadLog:
    """What a log holds. ``launches`` are those that count, ``started`` the ids of the others from 1.

    ``replays`` launches only warmed caches, with memory instructions, and took ``replayed_cycles``.
    """

    source: GivenLog
    run: SimulatorRun
    launches: tuple[LaunchProjection, ...]
    started: tuple[int, ...]
    replays: int
    replayed_cycles: int

    @property
    def numbers(self) -> list[int]:
        """0-based launches that count, in the order of the log."""
        return [_number(projection) for projection in self.launches]

    @property
    def stopped(self) -> list[int]:
        """Ids from 1 of the launches that count though the run was ended within them."""
        return [_number(projection) + 1 for projection in self.launches if not projection.launch.complete]

    @property
    def counted_ids(self) -> str:
        """Ids of the launches that count, as ranges from 1."""
        return id_ranges(np.unique(np.array(self.numbers, np.int64)) + 1).replace(" ", ", ")

    def active_replayed_cycles(self) -> float:
        """``replayed_cycles`` without the launch latencies, NaN where these are unknown."""
        latency = self.run.config.launch_latency_cycles
        if latency is None:
            return np.nan if self.replays else 0.0
        return self.replayed_cycles - self.replays * latency

    def latencies(self) -> np.ndarray:
        """The launch latency in the cycles of each launch that counts, shape (n,), NaN where unknown: not
        echoed, a launch that ran beside others, or one of fewer cycles."""
        latency = self.run.config.launch_latency_cycles
        has_latency = np.array(
            [
                latency is not None and each.launch.headers[0].alone and each.launch.cycles >= latency
                for each in self.launches
            ],
            bool,
        )
        return np.where(has_latency, np.nan if latency is None else float(latency), np.nan)

    def by_number(self) -> dict[int, SeenLaunch]:
        """Its launches by 0-based number, to be compared with a selection."""
        return {
            _number(each): SeenLaunch(
                each.launch.kernel.strip(),
                each.launch.grid,
                each.launch.block,
                f"{self.source.path.name}:{each.launch.line}",
            )
            for each in self.launches
        }

    def notes(self) -> tuple[Note, ...]:
        """What is doubtful in it, and which launches count where it ends within one."""
        doubts = list(self.run.notes)
        name = str(self.source.path)
        if self.started:
            doubts.append(
                make_note(
                    "log_counts_launches",
                    log=name,
                    counted=self.counted_ids,
                    launches=len(self.launches),
                    left_out=self.started[0],
                )
            )
        elif self.run.output.cut is not None:
            doubts.append(
                make_note(
                    "log_cut_after_launches",
                    log=name,
                    counted=self.counted_ids,
                    launches=len(self.launches),
                )
            )
        if self.stopped:
            doubts.append(make_note("stopped_launches_projected", log=name, launches=tuple(self.stopped)))
        if self.replays:
            doubts.append(make_note("replays_left_out", log=name, launches=self.replays))
        return tuple(doubts)

    def document(self) -> LogEntry:
        """As the document of simulated launches has it."""
        intervals = self.source.intervals
        return LogEntry.model_validate(
            {
                "path": str(self.source.path),
                "kind": self.source.kind,
                "intervals": None if intervals is None else str(intervals),
                "counted": len(self.launches),
                "counted_ids": self.counted_ids,
                "ending": self.run.output.ending,
                "notes": [NoteEntry.of(note) for note in self.notes()],
            }
        )


@dataclass
class _Collected:
    counted: list[LaunchProjection] = field(default_factory=list)
    started: list[int] = field(default_factory=list)


def read_log(source: GivenLog, options: ProjectionOptions, traces: LaunchTraces | None = None) -> ReadLog:
    """Read a log to its end; of a launch within which the run was ended, the total is that of its trace.
    Traces of a tracer that missed launches say which launches those of a log of selected ones are.

    Raises InputError for a file that is not such a log or cannot be read, RefusedError where launches ran at
    the same time, so that their cycles are not known one by one, MisalignedError for a launch that is none
    of such traces.
    """
    launch_ids = traces.launch_ids if traces is not None and source.kind == "sampled" else {}

    def own_id(traced_id: int) -> int:
        if launch_ids and traced_id not in launch_ids:
            raise MisalignedError(
                str(source.path),
                f"its launch {traced_id:,} is none of the traces that were given",
                "give the folder that was simulated, as assay export wrote it: --traces DIR",
            )
        return launch_ids.get(traced_id, traced_id)

    run = SimulatorRun(source.path, source.intervals)
    replayed = read_details(source.path).replays
    contents, replays, replayed_cycles = _Collected(), 0, 0
    for each in project_run(run, options.of_rule(), sms=options.sms, traces=traces):
        launch = each.launch
        if launch.uid in replayed:
            replays, replayed_cycles = replays + 1, replayed_cycles + launch.cycles
            continue
        if len(launch.uids) > 1:
            raise RefusedError(
                f"{source.path}:{launch.line}",
                f"launches {', '.join(map(str, launch.uids))} ran at the same time and have one count of "
                "cycles",
                "simulate with -gpgpu_concurrent_kernel_sm 0",
            )
        own = replace(each, launch=replace(launch, traced_id=own_id(_number(each) + 1)))
        if launch.complete or _is_projected(own):
            contents.counted.append(own)
        else:
            contents.started.append(_number(own) + 1)
    ids = {_number(each) + 1 for each in contents.counted} | set(contents.started)
    for lost in run.output.unfinished():
        if lost["uid"] in replayed:
            continue
        number = own_id(int(lost["traced_id"] or lost["uid"]))
        if number not in ids:
            contents.started.append(number)
    _refuse_id_zero(source.path, contents)
    return ReadLog(source, run, tuple(contents.counted), tuple(contents.started), replays, replayed_cycles)


def _is_projected(projection: LaunchProjection) -> bool:
    """Whether a launch that did not end was projected: a rule stops it, and its size is known."""
    return projection.stop is not None and projection.total_instructions is not None


def _number(projection: LaunchProjection) -> int:
    launch = projection.launch
    return (launch.uid if launch.traced_id is None else launch.traced_id) - 1


def _refuse_id_zero(path: Path, contents: _Collected) -> None:
    for each in contents.counted:
        if _number(each) < 0:
            raise InputError(
                path,
                "kernel ids begin at 1, and this one is 0",
                "simulate traces with the ids that the tracer gave them",
                line=each.launch.line,
                field="kernel id",
            )


def refuse_mixed(logs: Sequence[ReadLog]) -> None:
    """Raise RefusedError with the first difference where logs are of different simulators or GPUs."""
    first = logs[0]
    for other in logs[1:]:
        difference = _difference(first, other)
        if difference is not None:
            what, ours, theirs = difference
            raise RefusedError(
                f"{first.source.path} and {other.source.path}",
                f"they were not simulated alike: {what} is {ours} in the first and {theirs} in the second",
                "give logs of one simulator with one configuration",
            )


def _difference(one: ReadLog, other: ReadLog) -> tuple[str, str, str] | None:
    """What differs first, and its value in each."""
    ours, theirs = one.run.output, other.run.output
    facts: list[tuple[str, str, str]] = [
        ("the program", ours.tool, theirs.tool),
        ("the version of GPGPU-Sim", ours.version, theirs.version),
    ]
    for program in sorted(ours.commits.keys() & theirs.commits.keys()):
        facts.append((f"the commit of {program}", ours.commits[program], theirs.commits[program]))
    for name in sorted((ours.options.keys() | theirs.options.keys()) - _NOT_OF_THE_GPU):
        facts.append((f"-{name}", ours.options.get(name, "unknown"), theirs.options.get(name, "unknown")))
    return next((fact for fact in facts if fact[1] != fact[2]), None)
