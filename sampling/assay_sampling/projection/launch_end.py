"""The time that a launch loses at its end, when no block is left to start and slots of the GPU stay empty.

Source: docs/methods/projection.md, "The end of a launch". Both constants were chosen with the rule ``waves``.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

# Blocks of one length end the last wave one after another: it takes a fifth longer than its instructions.
LAST_WAVE_SHARE = 0.2
# A warp alone runs at most this many times as fast as in a full GPU.
FASTEST_WARP = 4.0


def end_share(warp_instructions: np.ndarray, block_warps: np.ndarray, wave_ctas: int) -> float:
    """How much longer a launch takes than its instructions take at the throughput it has while blocks are
    left to start, as a share of that time: for the slots that its own blocks leave empty, and at least for
    a last wave of blocks that are all alike.

    Args:
        warp_instructions: of each warp, shape (w,), block after block in the order of their start.
        block_warps: how many warps each of the b blocks has, shape (b,).
        wave_ctas: blocks that run at once.
    """
    executed = int(warp_instructions.sum())
    if not executed:
        return 0.0
    last_wave = int(warp_instructions[len(warp_instructions) - int(block_warps[-wave_ctas:].sum()) :].sum())
    return max(
        _unfilled_share(warp_instructions, block_warps, wave_ctas), LAST_WAVE_SHARE * last_wave / executed
    )


def _unfilled_share(warp_instructions: np.ndarray, block_warps: np.ndarray, wave_ctas: int) -> float:
    """Blocks start in their order, each in the first free slot. All running warps advance alike: together at
    the throughput of a full GPU, but none faster than ``FASTEST_WARP`` times its share of that."""
    slots = _Slots(int(wave_ctas * block_warps.max()))
    blocks = [each.tolist() for each in np.split(warp_instructions, np.cumsum(block_warps)[:-1])]
    waiting = blocks[wave_ctas:]
    for block in blocks[:wave_ctas]:
        slots.start(block)
    for block in waiting:
        slots.run_until_block_ends()
        slots.start(block)
    throughput = slots.executed / slots.time if slots.time else 1.0
    while slots.running_warps:
        slots.run_until_block_ends()
    return slots.time * throughput / slots.executed - 1.0


class _Slots:
    """Running blocks. The unit of time is that of one warp instruction in a full GPU, which holds
    ``full_warps``; ``progress`` is how many instructions each warp has executed that runs since the start.
    """

    def __init__(self, full_warps: int) -> None:
        self._fastest = FASTEST_WARP / full_warps
        self._ends: list[tuple[int, int]] = []
        self._warps_left: list[int] = []
        self._progress = 0
        self.time = 0.0
        self.executed = 0

    @property
    def running_warps(self) -> int:
        return len(self._ends)

    def start(self, block: list[int]) -> None:
        """Start a block of warps of so many instructions."""
        self._warps_left.append(len(block))
        for instructions in block:
            heappush(self._ends, (self._progress + instructions, len(self._warps_left) - 1))

    def run_until_block_ends(self) -> None:
        """Advance to the end of the running block that ends first."""
        while self._ends:
            end, block = self._ends[0]
            steps, warps = end - self._progress, len(self._ends)
            self.time += steps / min(self._fastest, 1.0 / warps)
            self.executed += steps * warps
            self._progress = end
            heappop(self._ends)
            self._warps_left[block] -= 1
            if not self._warps_left[block]:
                return
