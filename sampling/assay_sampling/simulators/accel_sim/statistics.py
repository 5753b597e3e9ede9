"""Turns the statistics that a simulator prints at a launch into counters of that launch alone.

``gpu_sim_*`` are of one launch, every other counter is cumulative: over the run, or over the launches of one
stream. Source: docs/simulator-files.md, "Standard output" and "Counters".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from assay_sampling.counters.simulated import SimulatedCounter, running_totals
from assay_sampling.errors import InputError
from assay_sampling.simulators.accel_sim.config import SimulatorConfig

SPLIT = "give one log a simulation: cut the file between its simulations"


@dataclass(frozen=True)
class SimulatedLaunch:
    """One block of statistics: a launch, or several that ended together (``uids`` then names them all).

    ``uid`` counts launches of this simulation from 1, ``traced_id`` is the 1-based id of the traced process
    (None where the log does not echo it). ``cycles`` include the launch latency. The counters are of this
    launch alone, None where the log does not print them; channels are arrays of shape (c,).
    ``ctas_per_sm`` are the blocks that an SM holds, None where unknown; ``ctas_per_sm_from`` says how:
    "printed" for this launch, "computed" from options and shape, "previous": printed for an earlier launch.
    ``complete`` is False where the run ended within the launch; ``line`` is where its statistics start, 0 if
    it was ended without any.
    ``counters`` are those that were read of :mod:`assay_sampling.counters.simulated`; ``headers`` what the
    log echoes of each of ``uids``.
    """

    uid: int
    uids: tuple[int, ...]
    traced_id: int | None
    kernel: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    cycles: int
    instructions: int
    instructions_before: int
    issued_ctas: int | None
    ctas_per_sm: int | None
    ctas_per_sm_from: str | None
    l2_accesses: int | None
    l2_misses: int | None
    dram_reads: int | None
    dram_writes: int | None
    dram_reads_by_channel: np.ndarray | None
    dram_writes_by_channel: np.ndarray | None
    simulation_seconds: int | None
    complete: bool
    line: int
    counters: Mapping[str, int | None]
    headers: tuple[LaunchHeader, ...]

    @property
    def total_ctas(self) -> int | None:
        """Blocks of the whole launch: of its grid if the log echoes it, else those that were issued."""
        if self.grid is not None and len(self.uids) == 1:
            return self.grid[0] * self.grid[1] * self.grid[2]
        return self.issued_ctas if self.complete else None


@dataclass
class LaunchHeader:
    """The facts that a log gives of a launch before its statistics; ``alone``: no other ran beside it."""

    name: str = ""
    traced_id: int | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    ctas_per_sm: int | None = None
    stream: int | None = None
    alone: bool = True


@dataclass
class StatisticsBlock:
    """A block of statistics as printed."""

    line: int
    kernel: str
    uids: tuple[int, ...] = ()
    stream: bytes | None = None  # as printed: some programs have addresses there
    cycles: int | None = None
    instructions: int | None = None
    total_instructions: int | None = None
    totals: dict[str, int] = field(default_factory=dict)
    channels: dict[str, dict[int, int]] = field(default_factory=dict)
    seconds: int | None = None
    cut: bool = False


class Differences:
    """Turns blocks of statistics, in the order of the log, into launches."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = StatisticsBlock(0, "")
        # By stream, None for totals over all of them.
        self._totals: dict[bytes | None, dict[str, int]] = {}
        self._instructions_before = 0
        self.launch_count = 0

    def launch(
        self,
        block: StatisticsBlock,
        headers: list[LaunchHeader],
        uids: tuple[int, ...],
        config: SimulatorConfig,
        resident_before: int | None,
    ) -> SimulatedLaunch:
        """The launch of a block.

        Args:
            block: its statistics, with cycles and instructions.
            headers: what was echoed of each of the launches that ended in it.
            uids: their uids, as many.
            config: the simulated GPU.
            resident_before: the blocks an SM holds, as last printed, perhaps for another launch.

        Raises InputError where a counter goes backwards.
        """
        assert block.cycles is not None and block.instructions is not None
        header = headers[0]
        issued = self._since(block, "issued_ctas", None)
        resident, source = _resident_ctas(header, config, resident_before)
        counters = {each.name: self._counter(block, each) for each in running_totals()}
        launch = SimulatedLaunch(
            uid=uids[0],
            uids=uids,
            traced_id=header.traced_id,
            kernel=block.kernel or header.name,
            grid=header.grid,
            block=header.block,
            cycles=block.cycles,
            instructions=block.instructions,
            instructions_before=self._instructions_before,
            issued_ctas=issued,
            ctas_per_sm=resident,
            ctas_per_sm_from=source,
            l2_accesses=counters["l2_accesses"],
            l2_misses=counters["l2_misses"],
            dram_reads=counters["dram_reads"],
            dram_writes=counters["dram_writes"],
            dram_reads_by_channel=self._channels(block, "dram_reads"),
            dram_writes_by_channel=self._channels(block, "dram_writes"),
            simulation_seconds=None if block.seconds is None else block.seconds - (self._before.seconds or 0),
            complete=not (block.cut or _lacks_blocks(header, issued, len(uids))),
            line=block.line,
            counters=counters,
            headers=tuple(headers),
        )
        total = block.total_instructions
        self._instructions_before = self._instructions_before + block.instructions if total is None else total
        self._before = block
        for stream in {None, block.stream}:
            self._totals.setdefault(stream, {}).update(block.totals)
        self.launch_count += 1
        return launch

    def stopped(
        self,
        header: LaunchHeader,
        uid: int,
        config: SimulatorConfig,
        resident_before: int | None,
        *,
        cycles: int,
        instructions: int,
    ) -> SimulatedLaunch:
        """The launch within which the run was ended, without statistics.

        ``cycles`` and thread ``instructions`` are those that it had executed; the rest is as in
        :meth:`launch`.
        """
        resident, source = _resident_ctas(header, config, resident_before)
        return SimulatedLaunch(
            uid=uid,
            uids=(uid,),
            traced_id=header.traced_id,
            kernel=header.name,
            grid=header.grid,
            block=header.block,
            cycles=cycles,
            instructions=instructions,
            instructions_before=self._instructions_before,
            issued_ctas=None,
            ctas_per_sm=resident,
            ctas_per_sm_from=source,
            l2_accesses=None,
            l2_misses=None,
            dram_reads=None,
            dram_writes=None,
            dram_reads_by_channel=None,
            dram_writes_by_channel=None,
            simulation_seconds=None,
            complete=False,
            line=0,
            counters={each.name: None for each in running_totals()},
            headers=(header,),
        )

    def _counter(self, block: StatisticsBlock, counter: SimulatedCounter) -> int | None:
        difference = self._since(block, counter.name, block.stream if counter.by_stream else None)
        return 0 if difference is None and counter.zero_beside in block.totals else difference

    def _since(self, block: StatisticsBlock, name: str, stream: bytes | None) -> int | None:
        value = block.totals.get(name)
        if value is None:
            return None
        difference = value - self._totals.get(stream, {}).get(name, 0)
        if difference < 0:
            raise InputError(
                self._path,
                f"the cumulative counter {name!r} goes backwards, as in a file of several simulations",
                SPLIT,
                line=block.line,
            )
        return difference

    def _channels(self, block: StatisticsBlock, name: str) -> np.ndarray | None:
        now, before = block.channels.get(name), self._before.channels.get(name, {})
        if not now:
            return None
        return np.array([now.get(i, 0) - before.get(i, 0) for i in range(max(now) + 1)], np.int64)


def _resident_ctas(
    header: LaunchHeader, config: SimulatorConfig, resident_before: int | None
) -> tuple[int | None, str | None]:
    if header.ctas_per_sm is not None:
        return header.ctas_per_sm, "printed"
    if header.block is not None and header.registers is not None and header.shared_bytes is not None:
        x, y, z = header.block
        computed = config.resident_ctas(x * y * z, header.registers, header.shared_bytes)
        if computed:
            return computed, "computed"
    return resident_before, None if resident_before is None else "previous"


def _lacks_blocks(header: LaunchHeader, issued: int | None, launches: int) -> bool:
    """Whether fewer blocks were issued than the grid has: the run ended within the launch."""
    if header.grid is None or issued is None or launches > 1:
        return False
    x, y, z = header.grid
    return issued < x * y * z
