"""Launches simulated apart, each in a process of its own: its list, and what is replayed to warm its caches.

A launch of its own finds cold caches. What is replayed are the memory instructions of the launch before it,
all of them or those of its last blocks: what the caches still hold when it ends. Copies to the device stay
where they follow one of the listed launches' predecessors directly; earlier ones belong to launches that
are not simulated.

Source: docs/methods/cold-start.md; docs/how-to/simulate.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from assay_sampling.documents.designs import WarmUp
from assay_sampling.errors import MisalignedError
from assay_sampling.handover.accel_sim import checked_traces, remedy_of_unwarmed
from assay_sampling.handover.target import Inputs, of_one_process
from assay_sampling.notes.registry import Note
from assay_sampling.scoring.matching import DIFFERENCES_SHOWN
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.simulators.accel_sim.config import SimulatorConfig
from assay_sampling.simulators.accel_sim.kernels_list import KernelsList, MemoryCopy
from assay_sampling.simulators.accel_sim.trace_folder import TraceFolder
from assay_sampling.simulators.accel_sim.trace_text import read_header
from assay_sampling.simulators.accel_sim.warm_up import memory_only_path, memory_only_trace

# Of a tail a wave and a half are replayed, measured on `solver`: with one a large L2 stays half cold, and two
# cost a tenth more than they bring. At least so many blocks.
_TAIL_WAVES = 1.5
LEAST_TAIL_BLOCKS = 160


@dataclass(frozen=True)
class Replay:
    """The trace whose memory instructions are replayed, and how many blocks at its end; None: all."""

    trace: Path
    last_blocks: int | None

    @property
    def name(self) -> str:
        """The file name of the trace of memory instructions."""
        return memory_only_path(self.trace).name

    def pieces(self) -> Iterator[bytes]:
        """Its text; raises InputError for a trace that cannot be read."""
        return memory_only_trace(self.trace, self.last_blocks)


@dataclass(frozen=True)
class IsolatedLaunch:
    """A representative to be simulated apart.

    ``launch`` is its 0-based number, ``blocks`` how many thread blocks its process runs, of which
    ``replayed_blocks`` warm caches; ``lines`` is its list, which names traces in its own folder.
    ``traced_id`` is the 1-based id that its trace has.
    """

    launch: int
    traced_id: int
    trace: Path
    blocks: int
    lines: tuple[str, ...]
    replay: Replay | None = None
    replayed_blocks: int = 0

    @property
    def trace_bytes(self) -> int:
        """The size of what is simulated, by which launches are ordered."""
        replayed = 0 if self.replay is None else self.replay.trace.stat().st_size // 4
        return self.trace.stat().st_size + replayed


def isolated_launches(
    saved: SavedSelection, inputs: Inputs, warm_up: WarmUp
) -> tuple[list[IsolatedLaunch], tuple[Note, ...]]:
    """The representatives of a selection by launch, in its order, and notes on how traces were compared.

    Raises RefusedError for launches of several processes or traces of several tracers, MisalignedError for
    traces of another workload, and where one is missing.
    """
    launches = of_one_process(saved, inputs)
    folder, notes = checked_traces(saved, inputs, launches)
    if warm_up != "none":
        _refuse_missing(folder, inputs, launches.tolist())
    return [_isolated(folder, launch, warm_up) for launch in launches.tolist()], notes


def _isolated(folder: TraceFolder, launch: int, warm_up: WarmUp) -> IsolatedLaunch:
    trace, blocks = folder.by_id[launch + 1], folder.header(launch + 1).blocks
    traced_id = folder.traced_id(launch + 1)
    own = [*(copy.line for copy in copies_before(folder.kernels, trace)), trace.name]
    if warm_up == "none" or launch == 0:
        return IsolatedLaunch(launch, traced_id, trace, blocks, tuple(own))
    before, its_blocks = folder.by_id[launch], folder.header(launch).blocks
    replay = Replay(before, None if warm_up == "whole" else LEAST_TAIL_BLOCKS)
    lines = [*(copy.line for copy in copies_before(folder.kernels, before)), replay.name, *own]
    replayed = its_blocks if replay.last_blocks is None else min(its_blocks, replay.last_blocks)
    return IsolatedLaunch(launch, traced_id, trace, blocks + replayed, tuple(lines), replay, replayed)


def with_tail_of(launch: IsolatedLaunch, gpu: SimulatorConfig) -> IsolatedLaunch:
    """The launch with as long a tail as a GPU needs: half as many blocks again as it runs at once. Unchanged
    where no tail is replayed, or the GPU's size is not known.

    Raises InputError for a trace that cannot be read.
    """
    replay = launch.replay
    if replay is None or replay.last_blocks is None:
        return launch
    header = read_header(replay.trace)
    threads = header.block[0] * header.block[1] * header.block[2]
    of_sm = gpu.resident_ctas(threads, header.registers_per_thread, header.shared_memory_bytes)
    tail = int(_TAIL_WAVES * (of_sm or 0) * (gpu.sms or 0))
    replayed = min(header.blocks, max(LEAST_TAIL_BLOCKS, tail))
    return replace(
        launch,
        replay=Replay(replay.trace, replayed),
        replayed_blocks=replayed,
        blocks=launch.blocks - launch.replayed_blocks + replayed,
    )


def copies_before(kernels: KernelsList, trace: Path) -> list[MemoryCopy]:
    """The copies between a launch and the one before it in the list."""
    copies: list[MemoryCopy] = []
    for entry in kernels.entries:
        if entry == trace:
            break
        copies = [*copies, entry] if isinstance(entry, MemoryCopy) else []
    return copies


def _refuse_missing(folder: TraceFolder, inputs: Inputs, launches: list[int]) -> None:
    """Raise MisalignedError where the launch before a representative has no trace."""
    missing = [launch for launch in sorted(launches) if launch > 0 and launch not in folder.by_id]
    if missing:
        raise MisalignedError(
            f"{folder.kernels.path} and --warm-up",
            f"{len(missing)} of the launches to replay have no trace",
            remedy_of_unwarmed(folder, inputs, "1, or give --warm-up none"),
            tuple(f"launch {number:,} has no trace" for number in missing[:DIFFERENCES_SHOWN]),
        )
