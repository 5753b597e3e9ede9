"""Streams the standard output of Accel-Sim and GPGPU-Sim launch by launch.

``gpu_sim_*`` are of one launch; every other counter is cumulative over the run and is differenced here. The
uid in the log counts launches of this simulation; the traced id is in the echoed trace header. The simulator
prints ``CTA/core`` only when it thinks that the kernel changed, which it decides by a memory address: the
value printed before may belong to another kernel. So where the log echoes the options and the launch's shape,
the resident blocks are computed as the simulator computes them. Source: docs/simulator-files.md, "Standard
output".
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from assay_sampling.counters.simulated import running_totals
from assay_sampling.errors import CutOffError, InputError
from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.simulators.accel_sim.config import SimulatorConfig
from assay_sampling.simulators.accel_sim.lines import LogLine, integer, matching_lines, starting_with
from assay_sampling.simulators.accel_sim.statistics import (
    SPLIT,
    Differences,
    LaunchHeader,
    SimulatedLaunch,
    StatisticsBlock,
)

_LINES = (
    rf"{SYNTHETIC_MARK}|Accel-Sim \[build |[ \t]*\*\*\* GPGPU-Sim Simulator Version |"
    r"-gpgpu_[a-zA-Z0-9_:]+ |-(?:kernel name|kernel id|grid dim|block dim|shmem|nregs) = |"
    r"launching kernel (?:name|command) ?: ?|GPGPU-Sim PTX: pushing kernel |GPGPU-Sim uArch: CTA/core = |"
    r"kernel_name = |kernel_launch_uid = |kernel_stream_id = |"
    r"gpu_(?:sim_cycle|sim_insn|tot_sim_cycle|tot_sim_insn|tot_issued_cta) = |"
    r"L2_total_cache_(?:accesses|misses) = |number of total (?:read|write) accesses:|dram\[\d+\]: |"
    r"total dram (?:reads|writes) = |gpgpu_simulation_time = |"
    r"GPGPU-Sim: \*\*\* exit detected|GPGPU-Sim: \*\* break due to"
)
_COUNTERS = {counter.statistic.encode(): counter.name for counter in running_totals()}
# The first characters of all of these lines: most lines of a log begin otherwise.
_FIRST = r"-*AGL gdklnt\t"
_FEW_LINES = starting_with(_LINES, first=_FIRST)
_ALL_LINES = starting_with(
    rf"{_LINES}|[ \t]*(?:{'|'.join(re.escape(name.decode()) for name in _COUNTERS)})[ \t]*= ", first=_FIRST
)
_TOTALS = {b"gpu_tot_sim_cycle": "total_cycles", b"gpu_tot_issued_cta": "issued_ctas", **_COUNTERS}
# More than any GPU has; an array of so many is made for every launch.
MOST_CHANNELS = 4096
# A run that a limit on blocks ended does not say so: its last launch may have been ended.
_SILENT_STOPS = frozenset({"gpgpu_max_cta", "gpgpu_max_completed_cta"})
_MARKS = re.compile(rb"GPGPU-Sim|Accel-Sim \[build|gpu_sim_cycle = ")


class SimulatorOutput:
    """A simulator's log. :meth:`launches` streams it; ``ending`` and ``notes`` are known afterwards.

    ``config`` holds all that the log echoes as soon as the first launch is given. ``ending`` is "exit" (the
    simulator ended by itself), "early stop" or "cut off"; ``cut`` is the error of a compressed file that is
    cut off, which is read as far as it goes. ``tool`` is the program, ``version`` that of GPGPU-Sim,
    ``commits`` those that each was built from; "" and empty if the log does not say. With ``every_counter``
    launches have all counters of :mod:`assay_sampling.counters.simulated`, else those that projection needs.
    Memory: 60 bytes a launch.
    """

    def __init__(self, path: str | Path, *, every_counter: bool = False) -> None:
        self.path = Path(path)
        self.config = SimulatorConfig()
        self.tool, self.version = "GPGPU-Sim", ""
        self.commits: dict[str, str] = {}
        self.ending = "cut off"
        self.cut: CutOffError | None = None
        self.notes: list[Note] = []
        self._options: dict[str, str] = {}
        self._header = LaunchHeader()
        self._headers: dict[int, LaunchHeader] = {}
        # Headers that were echoed and not launched yet. The simulator reads several ahead where streams run
        # at the same time, and gives each its uid as it reads it.
        self._read_ahead: dict[int, LaunchHeader] = {}
        self._headers_read = 0
        self._last_uid = 0
        self._seen_uids: set[int] = set()
        self._lines = _ALL_LINES if every_counter else _FEW_LINES
        self._table: str | None = None
        self._statistics: StatisticsBlock | None = None
        self._ctas_per_sm: int | None = None
        self._differences = Differences(self.path)
        self._synthetic = False

    @property
    def options(self) -> Mapping[str, str]:
        """The options that the log echoes, named without their leading dash."""
        return self._options

    def launches(self) -> Generator[SimulatedLaunch, None, None]:
        """Every launch in the order in which the launches ended, read once from start to end.

        Raises InputError for a file that is not a simulator's log, for texts in place of numbers, and for
        counters that go backwards (several simulations in one file). A file that is cut off gives the
        launches before the cut and a note; one that is cut off before anything of a log raises CutOffError.
        """
        has_lines = False
        for line in matching_lines(self.path, self._lines, self._note_cut):
            has_lines = True
            if not line.whole:
                break  # it may end within a number
            name = line.name.strip(b" \t:=")
            if line.name == SYNTHETIC_MARK.encode():
                self._synthetic = True
            elif name.startswith((b"***", b"Accel-Sim")):
                self._banner(line, name)
            else:
                yield from self._take(line, name)
        if not has_lines and self.cut is not None:
            raise self.cut
        if not has_lines:
            raise InputError(self.path, "it is not a log of Accel-Sim or GPGPU-Sim", _GIVE_OUTPUT)
        yield from self._close(last=True)
        self._note_ending()

    def _take(self, line: LogLine, name: bytes) -> Iterator[SimulatedLaunch]:
        if line.name.startswith(b"-"):
            if not line.name.startswith(b"-gpgpu_"):
                yield from self._close()
            self._echo(line, name[1:].decode())
        elif name.startswith((b"launching", b"GPGPU-Sim PTX")):
            yield from self._close()
            self._launch(line)
        elif name == b"kernel_name":
            yield from self._close()
            self._statistics = StatisticsBlock(line.number, line.rest.decode(errors="replace"))
        elif name.endswith(b"CTA/core"):
            self._resident(line)
        elif line.name.startswith(b"GPGPU-Sim: ***"):
            self.ending = "exit" if self.ending == "cut off" else self.ending
        elif line.name.startswith(b"GPGPU-Sim: ** break"):
            self.ending = "early stop"
            if self._statistics is not None:
                self._statistics.cut = True
        elif self._statistics is not None:
            self._count(line, name, self._statistics)

    def _banner(self, line: LogLine, name: bytes) -> None:
        """What the simulator says of itself when it starts; raises InputError where it starts again."""
        if self._seen_uids or self._statistics is not None:
            raise InputError(self.path, "a second simulation begins here", SPLIT, line=line.number)
        if name.startswith(b"Accel-Sim"):
            self.tool = "Accel-Sim"
        else:
            self.version = (line.rest.split(maxsplit=1) or [b""])[0].decode(errors="replace")
        if commit := re.search(rb"commit-([0-9a-f]{7,40})", line.rest):
            of = "Accel-Sim" if name.startswith(b"Accel-Sim") else "GPGPU-Sim"
            self.commits[of] = commit[1].decode()

    def _echo(self, line: LogLine, name: str) -> None:
        """An option of the simulator, or a line of a trace's header."""
        if name.startswith("gpgpu_"):
            self._options.setdefault(name, line.rest.partition(b"#")[0].strip().decode(errors="replace"))
            return
        if name == "kernel name":  # the first line of a header
            self._header = LaunchHeader(name=line.rest.decode(errors="replace"))
            self._headers_read += 1
            self._read_ahead[self._headers_read] = self._header
        elif name == "kernel id":
            self._header.traced_id = integer(self.path, line, line.rest, name)
        elif name in ("grid dim", "block dim"):
            setattr(self._header, name.split(maxsplit=1)[0], self._shape(line, line.rest, name))
        elif name == "shmem":
            self._header.shared_bytes = integer(self.path, line, line.rest, name)
        elif name == "nregs":
            self._header.registers = integer(self.path, line, line.rest, name)

    def _shape(self, line: LogLine, text: bytes, field_name: str) -> tuple[int, int, int]:
        axes = text.strip(b"() ").split(b",")
        if len(axes) != 3:
            raise InputError(
                self.path, "it is not of the form (x,y,z)", _AGAIN, line=line.number, field=field_name
            )
        x, y, z = (integer(self.path, line, axis, field_name) for axis in axes)
        return x, y, z

    def _launch(self, line: LogLine) -> None:
        """A launch starts: it takes the header before it, and its uid from the line or by counting."""
        if line.name.startswith(b"GPGPU-Sim PTX"):
            shape = re.search(rb"gridDim= ?\((.*?)\) blockDim ?= ?\((.*?)\)", line.rest)
            name = line.rest.split(b"'")[1].decode(errors="replace") if b"'" in line.rest else ""
            self._header = LaunchHeader(name=name)
            if shape:
                self._header.grid = self._shape(line, shape[1], "gridDim")
                self._header.block = self._shape(line, shape[2], "blockDim")
        match = re.search(rb" uid: (\d+)", line.rest)
        uid = integer(self.path, line, match[1], "uid") if match else self._last_uid + 1
        if uid in self._seen_uids:
            raise InputError(
                self.path, f"launch {uid} comes after launch {self._last_uid}", SPLIT, line=line.number
            )
        self._last_uid = uid
        self._seen_uids.add(uid)
        header = self._header_of(uid, line)
        if match := re.search(rb" cuda_stream_id: (\d{1,18})(?!\d)", line.rest):
            header.stream = int(match[1])
        self._headers[uid] = header
        if len(self._headers) > 1:
            for running in self._headers.values():
                running.alone = False

    def _header_of(self, uid: int, line: LogLine) -> LaunchHeader:
        """The header of a launch: the one that was read as the uid-th, else the one echoed last."""
        header = self._read_ahead.pop(uid, None)
        if header is not None and line.rest.startswith(header.name.encode()):
            return header
        self._read_ahead.clear()  # uids do not count headers in this log
        return self._header

    def _resident(self, line: LogLine) -> None:
        self._ctas_per_sm = integer(self.path, line, line.rest.partition(b",")[0], "CTA/core")
        last = self._headers.get(self._last_uid)
        if last is not None:  # else the last launch has ended, and an earlier one still runs
            last.ctas_per_sm = self._ctas_per_sm

    def _count(self, line: LogLine, name: bytes, block: StatisticsBlock) -> None:
        """One line of a block of statistics."""
        if name.startswith(b"dram["):
            if self._table is not None:
                channel = integer(self.path, line, name[5:-1], "memory channels", MOST_CHANNELS - 1)
                banks = sum(integer(self.path, line, text, name.decode()) for text in line.rest.split())
                block.channels.setdefault(self._table, {})[channel] = banks
            return
        self._table = None
        if name.startswith(b"number of total"):
            self._table = "dram_reads" if b"read" in name else "dram_writes"
        elif name == b"kernel_launch_uid":
            block.uids = tuple(
                integer(self.path, line, text, "kernel_launch_uid") for text in line.rest.split()
            )
        elif name == b"kernel_stream_id":
            block.stream = line.rest
        elif name == b"gpgpu_simulation_time":
            seconds = re.search(rb"\((\d{1,15}) sec\)", line.rest)
            block.seconds = int(seconds[1]) if seconds else None
        else:
            value = integer(self.path, line, line.rest, name.decode())
            if name == b"gpu_sim_cycle":
                block.cycles = value
            elif name == b"gpu_sim_insn":
                block.instructions = value
            elif name == b"gpu_tot_sim_insn":
                block.total_instructions = value
            else:
                block.totals[_TOTALS[name]] = value

    def _close(self, *, last: bool = False) -> Iterator[SimulatedLaunch]:
        """Give the launch whose statistics have ended, if any."""
        block, self._statistics = self._statistics, None
        self._table = None
        if not self._differences.launch_count and (block is not None or not self._headers):
            self.config = SimulatorConfig.of_options(self._options)
        if block is None:
            return
        if block.cycles is None or block.instructions is None:
            if not last:
                raise InputError(
                    self.path, "its statistics hold no cycles or no instructions", _AGAIN, line=block.line
                )
            self.notes.append(make_note("log_cut_in_statistics", line=block.line))
            return
        if last and self.ending == "cut off" and block.seconds is None:
            self.notes.append(make_note("log_cut_in_statistics", line=block.line))
            return
        uids = block.uids or (self._last_uid or self._differences.launch_count + 1,)
        if len(uids) > 1:
            self.notes.append(make_note("launches_at_once", launches=tuple(uids)))
        if last and not _SILENT_STOPS.isdisjoint(self.config.early_stops):
            block.cut = True
        headers = [self._headers.pop(uid, LaunchHeader()) for uid in uids]
        yield self._differences.launch(block, headers, uids, self.config, self._ctas_per_sm)

    def _note_cut(self, error: CutOffError) -> None:
        self.cut = error
        self.notes.append(make_note("log_cut_in_compression"))

    def _note_ending(self) -> None:
        for uid, header in self._headers.items():
            self.notes.append(make_note("launch_without_statistics", launch=uid, kernel=header.name or ""))
        if self.ending == "cut off" and not self.notes:
            self.notes.append(make_note("log_may_be_cut"))
        if self._synthetic:
            self.notes.append(make_note("log_synthetic"))

    def stopped_launch(self, cycles: int, instructions: int) -> SimulatedLaunch | None:
        """The launch that ran alone when the run was ended, after :meth:`launches` has ended, with the cycles
        and thread instructions that it had executed by then; None if there is none.
        """
        if len(self._headers) != 1:
            return None
        ((uid, header),) = self._headers.items()
        return self._differences.stopped(
            header, uid, self.config, self._ctas_per_sm, cycles=cycles, instructions=instructions
        )

    def unfinished(self) -> list[dict[str, Any]]:
        """Launches that were started but have no statistics, after :meth:`launches` has ended."""
        return [
            {"uid": uid, "traced_id": header.traced_id, "kernel": header.name, "grid": header.grid}
            for uid, header in self._headers.items()
        ]


_AGAIN = "copy the log again from where it was written"
_GIVE_OUTPUT = "give the standard output of the simulator, plain or compressed"


def looks_like_output(head: bytes) -> bool:
    """Whether the first bytes of a file (decompressed) are those of a simulator's standard output."""
    return bool(_MARKS.search(head))


def read_output(path: str | Path) -> tuple[SimulatorOutput, list[SimulatedLaunch]]:
    """A log and all its launches."""
    output = SimulatorOutput(path)
    return output, list(output.launches())
