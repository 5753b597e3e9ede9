"""TBPoint within a launch, replayed on the times of its thread blocks in a full simulation.

It tells what the state machine of :mod:`assay_sampling.projection.tbpoint.sampling` would have saved, and
how wrong it would have been. While blocks are skipped the simulator's clock stops: that stretch of the
recorded time is cut out. The blocks in flight where the recorded time continues stand for those in flight
where it stopped. If a region is skipped to the end of the launch, the blocks still in flight drain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.projection.tbpoint.sampling import DEFAULT_WARM_UP_DIFFERENCE, RegionSampler


@dataclass(frozen=True)
class LaunchSample:
    """Savings and costs of sampling one launch; cycles run from its first dispatch to its last retirement.

    ``projected_cycles`` = ``simulated_cycles`` + those of the skipped blocks. ``skipped_blocks`` holds their
    ids in order, ``skipped_instructions_share`` the share of the launch's instructions that they execute, 0
    to 1.
    """

    launch_cycles: float
    simulated_cycles: float
    projected_cycles: float
    skipped_blocks: np.ndarray
    skipped_instructions_share: float

    @property
    def signed_error_percent(self) -> float:
        return 100.0 * (self.projected_cycles - self.launch_cycles) / self.launch_cycles

    @property
    def speedup(self) -> float:
        return self.launch_cycles / self.simulated_cycles


def sample_launch(
    start_cycle: np.ndarray,
    end_cycle: np.ndarray,
    instructions: np.ndarray,
    region_of_block: np.ndarray,
    *,
    executed: tuple[np.ndarray, np.ndarray] | None = None,
    warm_up_difference: float = DEFAULT_WARM_UP_DIFFERENCE,
) -> LaunchSample:
    """Replay a launch of b blocks.

    Args:
        start_cycle, end_cycle, instructions, region_of_block: of each block by its id, shape (b,).
        executed: cycles, ascending, and the instructions that the whole GPU had executed by then, both of
            shape (s,), as a simulator prints them; None assumes that a block executes at a constant rate.
        warm_up_difference: of :class:`assay_sampling.projection.tbpoint.sampling.RegionSampler`.

    Raises ParameterError for arrays of different length, RefusedError for a launch without blocks or
    instructions, or a block that does not end after it starts.
    """
    starts, ends, work = (np.asarray(each, np.float64) for each in (start_cycle, end_cycle, instructions))
    _check(starts, ends, work, region_of_block)
    events = _Events.of(starts, ends, work, executed)
    replay = _Replay(RegionSampler(region_of_block, warm_up_difference))
    for block, starting, cycle, progress in events.rows():
        replay.follow(block, starting, cycle, progress)
    return replay.result(starts, ends, work)


def _check(starts: np.ndarray, ends: np.ndarray, work: np.ndarray, region_of_block: np.ndarray) -> None:
    lengths = {len(starts), len(ends), len(work), len(region_of_block)}
    if len(lengths) > 1:
        raise ParameterError("launch", f"its columns have different lengths: {sorted(lengths)}")
    if not len(starts):
        raise RefusedError("launch", "it has no thread blocks")
    if not bool((ends > starts).all()):
        block = int(np.argmin(ends > starts))
        raise RefusedError("launch", f"block {block} does not end after it starts", "record it again")
    if not (float(work.min()) >= 0 and 0 < float(work.sum()) < np.inf):
        raise RefusedError("launch", "its blocks have no instructions", "count again")


@dataclass(frozen=True)
class _Events:
    """Dispatches and retirements in order, and the instructions executed by then, shape (2 b,)."""

    block: np.ndarray
    starting: np.ndarray
    cycle: np.ndarray
    executed: np.ndarray

    @classmethod
    def of(
        cls,
        starts: np.ndarray,
        ends: np.ndarray,
        work: np.ndarray,
        executed: tuple[np.ndarray, np.ndarray] | None,
    ) -> _Events:
        blocks = len(starts)
        cycle = np.concatenate([starts, ends])
        starting = np.arange(2 * blocks) < blocks
        block = np.tile(np.arange(blocks), 2)
        # A block can only be dispatched where another has made room, so retirements come first.
        order = np.lexsort((block, starting, cycle))
        cycle = cycle[order]
        if executed is not None:
            progress = np.interp(cycle, *executed)
        else:
            rate = work / (ends - starts)
            flow = np.cumsum(np.concatenate([rate, -rate])[order])
            progress = np.concatenate([[0.0], np.cumsum(flow[:-1] * np.diff(cycle))])
        return cls(block[order], starting[order], cycle, progress)

    def rows(self) -> zip[tuple[int, bool, float, float]]:
        columns = (self.block, self.starting, self.cycle, self.executed)
        return zip(*(column.tolist() for column in columns), strict=True)


@dataclass
class _Replay:
    """Turns the events of the recording into those of a simulation that skips blocks.

    ``stands_for`` names, for a skipped block, the simulated one whose place in flight it holds; ``stopped``
    are those that retired in the recording while the simulator's clock stood still; ``absent`` are skipped
    blocks in places that were free when it stopped.
    """

    sampler: RegionSampler
    stands_for: dict[int, int] = field(default_factory=dict)
    stopped: list[int] = field(default_factory=list)
    paused_at: float | None = None
    cut_cycles: float = 0.0
    absent: set[int] = field(default_factory=set)

    def follow(self, block: int, starting: bool, cycle: float, executed: float) -> None:
        if starting:
            self._start(block, cycle, executed)
        else:
            self._end(block, cycle, executed)

    def _start(self, block: int, cycle: float, executed: float) -> None:
        if self.sampler.dispatch(block, cycle, executed):
            if self.paused_at is not None:
                self.cut_cycles += cycle - self.paused_at
                self.paused_at = None
                # A block whose place no skipped block took has retired when the clock continues.
                for each in self.stopped:
                    self.sampler.retire(each, cycle, executed)
                self.stopped.clear()
            return
        if self.paused_at is None:
            self.paused_at = cycle
        if self.stopped:
            self.stands_for[block] = self.stopped.pop(0)
        else:
            self.absent.add(block)

    def _end(self, block: int, cycle: float, executed: float) -> None:
        simulated = self.stands_for.pop(block, block)
        if simulated in self.absent:
            return
        if self.paused_at is not None:
            self.stopped.append(simulated)
        else:
            self.sampler.retire(simulated, cycle, executed)

    def result(self, starts: np.ndarray, ends: np.ndarray, work: np.ndarray) -> LaunchSample:
        skipped = np.array(self.sampler.skipped, np.intp)
        ran = np.ones(len(ends), bool)
        # If the launch is skipped to its end, no block stands for those in flight: they drain as recorded.
        ran[skipped if self.paused_at is not None else list(self.absent)] = False
        simulated = float(ends[ran].max() - starts.min()) - self.cut_cycles
        of_skipped = float((work[skipped] / np.array(self.sampler.skipped_ipc, np.float64)).sum())
        return LaunchSample(
            launch_cycles=float(ends.max() - starts.min()),
            simulated_cycles=simulated,
            projected_cycles=simulated + of_skipped,
            skipped_blocks=np.sort(skipped),
            skipped_instructions_share=float(work[skipped].sum() / work.sum()),
        )
