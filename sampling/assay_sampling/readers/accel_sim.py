"""Reader of the standard output of Accel-Sim and GPGPU-Sim: a simulator's run as a recording.

``launch`` is the launch that was traced (``-kernel id`` - 1), so that the recording can be compared with one
of silicon; where the log does not echo it, the uid of the simulation - 1. ``report_id`` is the uid. Launches
whose statistics are missing or not whole are left out, with a note. Launches that the simulator ran at the
same time and printed together have shapes and no counters.

Memory: one batch, the names, and 100 bytes a launch for the identities that were seen.

Source: docs/simulator-files.md, "Standard output" and "Counters".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assay_sampling.counters.simulated import simulated_counters
from assay_sampling.errors import InputError, NoLaunchesError
from assay_sampling.launches.table import Device, LaunchBatch, launch_schema, make_batch
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.readers.base import (
    NameTracker,
    OpenRecording,
    ReadOptions,
    check_offset,
    foreign_metadata,
    refuse_synthetic_mark,
)
from assay_sampling.simulators.accel_sim.config import SimulatorConfig
from assay_sampling.simulators.accel_sim.output import SimulatorOutput
from assay_sampling.simulators.accel_sim.statistics import LaunchHeader, SimulatedLaunch

FORMAT = "accel-sim-output"
_MARKS = re.compile(
    rb"^(?:Accel-Sim \[build |[ \t]*\*\*\* GPGPU-Sim Simulator Version |GPGPU-Sim(?: PTX| uArch)?: |"
    rb"-gpgpu_\w+ |gpu_sim_cycle = )",
    re.MULTILINE,
)
_CYCLES, _ACTIVE = "cycles_simulated", "cycles_simulated_active"


class AccelSimReader:
    """Recognises a simulator's banner, options or messages. Comes before the readers of pages in text."""

    format = FORMAT

    def recognises(self, path: Path, head: bytes) -> bool:
        return bool(_MARKS.search(head))

    def open(self, path: Path, options: ReadOptions) -> AccelSimRecording:
        check_offset(path, options)
        refuse_synthetic_mark(path, options)
        return AccelSimRecording(path, options)


class AccelSimRecording(OpenRecording):
    """A simulator's log; see the module. Opening it reads to the end of its first whole launch."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._offset = options.launch_offset
        output = SimulatorOutput(path, every_counter=True)
        with closing(output.launches()) as launches:
            if next((launch for launch in launches if launch.complete), None) is None:
                raise _no_launches(output)
        self._config = output.config
        metadata = foreign_metadata(
            options,
            level="detailed",
            format_=FORMAT,
            tool=output.tool,
            tool_version=output.version,
            devices=(_device(output.config),),
            origin="simulated",
        )
        schema = launch_schema(metadata, [counter.column() for counter in simulated_counters().values()])
        super().__init__(path, FORMAT, schema)

    def _read(self, max_launches: int) -> Iterator[LaunchBatch]:
        output = SimulatorOutput(self.path, every_counter=True)
        rows = _Rows(self.path, self._config, self._offset)
        for launch in output.launches():
            rows.add(launch)
            if len(rows) >= max_launches:
                yield self._batch(rows)
        if len(rows):
            yield self._batch(rows)
        self.notes.extend([*output.notes, *rows.notes()])

    def _batch(self, rows: _Rows) -> LaunchBatch:
        columns, self._lines, names = rows.take()
        return LaunchBatch(make_batch(self.schema, columns), names)


def _device(config: SimulatorConfig) -> Device:
    return Device(0, config.gpu_name(), compute_capability=config.compute_capability, sm_count=config.sms)


def _no_launches(output: SimulatorOutput) -> NoLaunchesError:
    texts = "; ".join(note.text for note in output.notes)
    return NoLaunchesError(
        output.path,
        "it is a simulator's log without the statistics of a whole launch" + (f" ({texts})" if texts else ""),
        "look at the end of the log for what stopped the simulation, and simulate again",
    )


@dataclass
class _Doubtful:
    """Launches to be named in a note: how many, and the first."""

    launches: int = 0
    first: int = 0

    def add(self, launch: int) -> None:
        self.first = launch if not self.launches else self.first
        self.launches += 1


@dataclass
class _Rows:
    """Launches of a log on their way into a batch, as columns; the notes on all that were added."""

    path: Path
    config: SimulatorConfig
    offset: int | None
    _columns: dict[str, list[Any]] = field(default_factory=dict)
    _lines: list[int] = field(default_factory=list)
    _names: NameTracker = field(default_factory=NameTracker)
    _numbers: set[int] = field(default_factory=set)
    _notes: list[Note] = field(default_factory=list)
    _beside: _Doubtful = field(default_factory=_Doubtful)
    _below_latency: _Doubtful = field(default_factory=_Doubtful)

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, launch: SimulatedLaunch) -> None:
        """One block of statistics: a launch, or several that were printed together."""
        if not launch.complete:
            self._notes.append(make_note("launch_not_whole", launch=launch.uid, line=launch.line))
            return
        for uid, header in zip(launch.uids, launch.headers, strict=True):
            number = self._number(uid, header, launch.line)
            row = self._shape(launch, header, uid)
            counted = self._counters(launch, number) if len(launch.uids) == 1 else {}
            row |= {name: counted.get(name) for name in simulated_counters()}
            row |= {"process": 0, "launch": number, "report_id": uid, "device": 0, "stream": header.stream}
            for name, value in row.items():
                self._columns.setdefault(name, []).append(value)
            self._lines.append(launch.line)

    def _number(self, uid: int, header: LaunchHeader, line: int) -> int:
        if self.offset is not None:
            number = self.offset + len(self._numbers)
        else:
            number = (uid if header.traced_id is None else header.traced_id) - 1
        if number < 0:
            raise InputError(
                self.path, "kernel ids begin at 1, and this one is 0", _NUMBER, line=line, field="kernel id"
            )
        if number in self._numbers:
            raise InputError(
                self.path, f"it simulates the traced launch {number + 1} twice", _NUMBER, line=line
            )
        self._numbers.add(number)
        return number

    def _shape(self, launch: SimulatedLaunch, header: LaunchHeader, uid: int) -> dict[str, Any]:
        if header.grid is None or header.block is None:
            raise InputError(
                self.path,
                f"it does not echo the grid and the block of launch {uid}",
                "keep the whole standard output, with the lines that begin with '-grid dim' and '-block dim'",
                line=launch.line,
            )
        kernel = launch.kernel if len(launch.uids) == 1 else header.name
        return {
            "kernel_id": self._names.intern(kernel),
            **{f"grid_{axis}": size for axis, size in zip("xyz", header.grid, strict=True)},
            **{f"block_{axis}": size for axis, size in zip("xyz", header.block, strict=True)},
            "registers_per_thread": header.registers,
            "shared_memory_bytes": header.shared_bytes,
        }

    def _counters(self, launch: SimulatedLaunch, number: int) -> dict[str, float | None]:
        warps = launch.counters["instructions"]
        # A value that was printed for an earlier launch may be another kernel's.
        resident = None if launch.ctas_per_sm_from == "previous" else launch.ctas_per_sm
        at_once = (resident or 0) * (self.config.sms or 0)
        return {
            **launch.counters,
            _CYCLES: launch.cycles,
            _ACTIVE: self._active_cycles(launch, number),
            "thread_instructions": launch.instructions,
            "threads_per_instruction": launch.instructions / warps if warps else None,
            "thread_blocks": launch.total_ctas,
            "resident_blocks_per_sm": resident,
            "waves_per_sm": (launch.total_ctas or 0) / at_once if at_once else None,
        }

    def _active_cycles(self, launch: SimulatedLaunch, number: int) -> int | None:
        latency = self.config.launch_latency_cycles
        if latency is None:
            return None
        if not launch.headers[0].alone:
            self._beside.add(number)
            return None
        if launch.cycles < latency:
            self._below_latency.add(number)
            return None
        return launch.cycles - latency

    def take(self) -> tuple[dict[str, list[Any]], np.ndarray, dict[int, str]]:
        """The columns so far, the line of each launch, shape (n,), and new names; begins anew."""
        contents = self._columns, np.array(self._lines, np.int64), self._names.take_new()
        self._columns, self._lines = {}, []
        return contents

    def notes(self) -> Iterator[Note]:
        """The notes on all launches that were added."""
        yield from self._notes
        if self.config.launch_latency_cycles is None:
            yield make_note("launch_latency_unknown")
        doubtful = {"launches_side_by_side": self._beside, "cycles_below_latency": self._below_latency}
        for code, doubt in doubtful.items():
            if doubt.launches:
                yield make_note(code, launches=doubt.launches, first=doubt.first)


_NUMBER = "number the launches in the order of the log with: --launch-offset 0"
