"""When each thread block started and ended, from the standard output of Accel-Sim.

The simulator prints it with these options:

    -trace_enabled 1 -trace_components LIVENESS -trace_sampling_core -1

    thread block = 200,0,0
    GPGPU-Sim Cycle 5003: LIVENESS - Core 40 - GPGPU-Sim uArch: cta: 2, ... initialized @(5003,0), ...
    GPGPU-Sim Cycle 9877: LIVENESS - Core 40 - GPGPU-Sim uArch: Finished CTA #2 (9877,0), 7 CTAs running

``cta`` is a slot of that core, not the block's id, which is in the line before; core and slot together
identify the block that finished. The first number in brackets is the cycle of the launch.

Source: docs/projection-format.md; the "LIVENESS" trace of GPGPU-Sim's ``shader.cc``.
"""

from __future__ import annotations

import re
from array import array
from pathlib import Path

import numpy as np

from assay_sampling.errors import InputError, RefusedError
from assay_sampling.simulators.accel_sim.lines import LogLine, integer, matching_lines, starting_with

_LINES = starting_with(
    r"thread block = |"
    r"GPGPU-Sim Cycle \d+: LIVENESS - Core \d+ - GPGPU-Sim uArch: (?:cta:|Finished CTA #)"
)
_CORE = re.compile(rb"Core (\d+) ")
_START = re.compile(rb"(\d+), .*initialized @\((\d+),\d+\), kernel_uid:(\d+)")
_END = re.compile(rb"(\d+) \((\d+),\d+\)")
_POSITION = re.compile(rb"(\d+),(\d+),(\d+)")
_AGAIN = "copy the log again from where it was written"
_NOT_ENDED = -1
HOW_TO_RECORD = (
    "simulate with -trace_enabled 1 -trace_components LIVENESS -trace_sampling_core -1 "
    "-liveness_message_freq 1000000"
)


class BlockTimes:
    """Start and end of the thread blocks of one launch, in order of their starts."""

    def __init__(self) -> None:
        self._values = array("q")  # x, y, z, start, end

    def start(self, position: tuple[int, int, int], cycle: int) -> int:
        """Add a block; returns its row."""
        self._values.extend((*position, cycle, _NOT_ENDED))
        return len(self._values) // 5 - 1

    def end(self, row: int, cycle: int) -> None:
        self._values[5 * row + 4] = cycle

    def by_index(self, grid: tuple[int, int, int], subject: str) -> tuple[np.ndarray, np.ndarray]:
        """Start and end cycle of each block, shape (blocks,), by x + grid_x (y + grid_y z).

        Raises RefusedError, naming ``subject``, unless each block of the grid started and ended once.
        """
        table = np.frombuffer(self._values, np.int64).reshape(-1, 5)
        x, y, z, start, end = table.T
        blocks = grid[0] * grid[1] * grid[2]
        index = x + grid[0] * (y + grid[1] * z)
        outside = (x >= grid[0]) | (y >= grid[1]) | (z >= grid[2])
        if len(table) != blocks or bool(outside.any()) or len(np.unique(index)) != blocks:
            raise RefusedError(
                subject,
                f"the log has starts of {len(table):,} thread blocks, but its grid has {blocks:,}",
                "give the trace of the launch that was simulated",
            )
        if bool((end == _NOT_ENDED).any()):
            missing = int((end == _NOT_ENDED).sum())
            raise RefusedError(subject, f"{missing:,} of its thread blocks did not end", HOW_TO_RECORD)
        order = np.argsort(index)
        return start[order].astype(np.float64), end[order].astype(np.float64)


def read_block_times(path: Path) -> dict[int, BlockTimes]:
    """The times of the thread blocks of each launch, by the launch's uid in this simulation.

    Raises InputError for a log without them, or where a line is damaged.
    """
    launches: dict[int, BlockTimes] = {}
    running: dict[tuple[int, int], tuple[BlockTimes, int]] = {}
    position: tuple[int, int, int] | None = None
    for line in matching_lines(path, _LINES):
        if not line.whole:
            break
        if line.name.startswith(b"thread block"):
            x, y, z = _numbers(path, line, _POSITION, "thread block")
            position = x, y, z
        elif line.name.endswith(b"cta:"):
            slot, cycle, uid = _numbers(path, line, _START, "initialized")
            if position is None:
                raise InputError(
                    path, "a thread block starts that no earlier line names", _AGAIN, line=line.number
                )
            times = launches.setdefault(uid, BlockTimes())
            running[_core(line), slot] = times, times.start(position, cycle)
            position = None
        else:
            slot, cycle = _numbers(path, line, _END, "Finished CTA")
            started = running.pop((_core(line), slot), None)
            if started is None:
                raise InputError(path, "a thread block ends that never started", _AGAIN, line=line.number)
            started[0].end(started[1], cycle)
    if not launches:
        raise InputError(path, "it does not say when thread blocks start and end", HOW_TO_RECORD)
    return launches


def _core(line: LogLine) -> int:
    match = _CORE.search(line.name)
    return int(match[1]) if match else -1


def _numbers(path: Path, line: LogLine, pattern: re.Pattern[bytes], field: str) -> list[int]:
    match = pattern.match(line.rest)
    if match is None:
        raise InputError(path, "the line is damaged", _AGAIN, line=line.number, field=field)
    return [integer(path, line, text, field) for text in match.groups()]
