"""Streams the interval log of Accel-Sim and GPGPU-Sim (AerialVision's visualizer log) launch by launch.

The simulator samples when the cycle of the launch is a multiple of the interval. So a launch shorter than
that has no sample, and what happens after the last multiple is counted in the first sample of the next launch
that has one. Instructions are cumulative within the launch, blocks and L2 events of the interval alone. Only
the log itself tells the number of memory channels. Source: docs/simulator-files.md, "Interval log".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from assay_sampling.errors import CutOffError, InputError
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.simulators.accel_sim.lines import LogLine, integer, matching_lines, starting_with

_LINES = starting_with(
    r"ctas_completed:|Ltwo(?:write|read)(?:miss|hit):|dramutil:|global(?:cycle|insn|totinsn)count:"
)
_SCALARS = {
    b"ctas_completed": "ctas",
    b"Ltwowritemiss": "l2_write_misses",
    b"Ltwowritehit": "l2_write_hits",
    b"Ltworeadmiss": "l2_read_misses",
    b"Ltworeadhit": "l2_read_hits",
    b"globalcyclecount": "cycles",
    b"globalinsncount": "instructions",
    b"globaltotinsncount": "instructions_before",
}
_L2 = ("l2_read_hits", "l2_read_misses", "l2_write_hits", "l2_write_misses")
_MARKS = re.compile(rb"(?:^|\n)(?:globalcyclecount|ctas_completed|shaderinsncount|ShdrCTACount):")
_AGAIN = "copy the log again from where it was written"


@dataclass(frozen=True)
class IntervalSeries:
    """The samples of one launch, columns of shape (s,), in order of time.

    ``cycles`` and ``instructions`` are counted from the start of the launch; ``ctas`` (blocks completed),
    ``l2_accesses`` and ``l2_misses`` are of the interval before the sample; ``dram_percent`` is the use of
    the memory channels in that interval, the mean over the channels. The last three are NaN where the log
    does not print them.

    The first sample also counts what earlier launches did after their last sample. Where no instruction was
    executed in it, all of it is theirs: it is zero here and its completed blocks are ``tail_ctas``.
    Otherwise, for any launch but the first, ``first_is_mixed`` is set: ``ctas[0]`` is 0 and ``tail_ctas``
    holds the sum of both until :meth:`with_tail` divides it.

    ``instructions_before`` are those of all earlier launches; None where the log does not print them.
    """

    cycles: np.ndarray
    instructions: np.ndarray
    ctas: np.ndarray
    l2_accesses: np.ndarray
    l2_misses: np.ndarray
    dram_percent: np.ndarray
    channels: int
    instructions_before: int | None
    tail_ctas: int
    first_is_mixed: bool
    line: int

    def __len__(self) -> int:
        return len(self.cycles)

    def with_tail(self, of_launches_before: int) -> IntervalSeries:
        """This series if ``of_launches_before`` blocks of the first sample belong to earlier launches."""
        if not self.first_is_mixed:
            return self
        own = max(self.tail_ctas - of_launches_before, 0)
        ctas = self.ctas.copy()
        ctas[0] = own
        changed = {"ctas": ctas, "tail_ctas": self.tail_ctas - own, "first_is_mixed": False}
        return IntervalSeries(**{**self.__dict__, **changed})


@dataclass
class _Block:
    """One sample as printed."""

    line: int
    values: dict[str, int] = field(default_factory=dict)
    channels: dict[int, int] = field(default_factory=dict)


class IntervalLog:
    """An interval log. :meth:`series` streams it; afterwards ``notes`` say what was left out.

    ``interval_cycles`` is known from the first sample on.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.interval_cycles: int | None = None
        self.notes: list[Note] = []
        self._cut: CutOffError | None = None

    def series(self) -> Iterator[IntervalSeries]:
        """The samples of every launch that has any, in the order of the launches.

        Raises InputError for a file that is not an interval log and for texts in place of numbers,
        CutOffError for a compressed file that is cut off before its first sample.
        """
        blocks: list[_Block] = []
        first = True
        for block in self._samples():
            if blocks and _restarts(blocks[-1], block):
                yield self._gather(blocks, first)
                blocks, first = [], False
            blocks.append(block)
        if not blocks and self._cut is not None:
            raise self._cut
        if not blocks:
            raise InputError(
                self.path, "it is not an interval log of Accel-Sim or GPGPU-Sim, or has no sample", _GIVE_LOG
            )
        yield self._gather(blocks, first)

    def _note_cut(self, error: CutOffError) -> None:
        self._cut = error
        self.notes.append(make_note("intervals_cut_in_compression"))

    def _samples(self) -> Iterator[_Block]:
        """Blocks of lines. The names come in the same order in each, so the first one starts a block."""
        start: tuple[bytes, bytes] | None = None
        block: _Block | None = None
        for line in matching_lines(self.path, _LINES, self._note_cut):
            if not line.whole:
                break
            name = line.name[:-1]
            key = (name, line.rest.split(b" ", 1)[0] if name == b"dramutil" else b"")
            start = start or key
            if block is None or key == start:
                if block is not None:
                    yield self._whole(block)
                block = _Block(line.number)
            self._take(line, name, block)
        if block is not None:
            if {"cycles", "instructions", "ctas"} <= block.values.keys():
                yield block
            else:
                self.notes.append(make_note("log_cut_in_sample", line=block.line))

    def _take(self, line: LogLine, name: bytes, block: _Block) -> None:
        if name == b"dramutil":
            channel, _, percent = line.rest.partition(b" ")
            number = integer(self.path, line, channel, "dramutil")
            block.channels[number] = integer(self.path, line, percent, "dramutil")
        else:
            block.values[_SCALARS[name]] = integer(self.path, line, line.rest, name.decode())

    def _whole(self, block: _Block) -> _Block:
        for name in ("cycles", "instructions", "ctas"):
            if name not in block.values:
                raise InputError(
                    self.path, f"the sample that starts here has no {name}", _AGAIN, line=block.line
                )
        return block

    def _gather(self, blocks: list[_Block], first: bool) -> IntervalSeries:
        cycles = _column(blocks, "cycles")
        instructions = _column(blocks, "instructions")
        if self.interval_cycles is None:
            self.interval_cycles = int(cycles[0])
        if (np.diff(instructions) < 0).any():
            row = int(np.argmax(np.diff(instructions) < 0)) + 1
            raise InputError(
                self.path, "instructions go backwards within a launch", _AGAIN, line=blocks[row].line
            )
        ctas = _column(blocks, "ctas")
        accesses = np.sum([_column(blocks, name) for name in _L2], axis=0)
        misses = _column(blocks, "l2_read_misses") + _column(blocks, "l2_write_misses")
        percent = np.array(
            [sum(b.channels.values()) / len(b.channels) if b.channels else np.nan for b in blocks]
        )
        nothing_before = first and not blocks[0].values.get("instructions_before")
        nothing_own = instructions[0] == 0
        tail = 0 if nothing_before else int(ctas[0])
        if not nothing_before:
            ctas[0] = 0
            if nothing_own:
                for column in (accesses, misses, percent):
                    column[0] = np.where(np.isnan(column[0]), np.nan, 0.0)
        return IntervalSeries(
            cycles=cycles,
            instructions=instructions,
            ctas=ctas,
            l2_accesses=accesses,
            l2_misses=misses,
            dram_percent=percent,
            channels=len(blocks[0].channels),
            instructions_before=blocks[0].values.get("instructions_before"),
            tail_ctas=tail,
            first_is_mixed=not nothing_before and not nothing_own,
            line=blocks[0].line,
        )


_GIVE_LOG = "give the log that -visualizer_enabled 1 writes (gpgpusim_visualizer__*.log.gz)"


def _restarts(before: _Block, block: _Block) -> bool:
    """Whether ``block`` belongs to a later launch: its cycles start again, or launches ended in between."""
    if block.values["cycles"] <= before.values["cycles"]:
        return True
    return block.values.get("instructions_before") != before.values.get("instructions_before")


def _column(blocks: list[_Block], name: str) -> np.ndarray:
    return np.array([block.values.get(name, np.nan) for block in blocks], np.float64)


def looks_like_intervals(head: bytes) -> bool:
    """Whether the first bytes of a file (decompressed) are those of an interval log."""
    return bool(_MARKS.search(head))
