"""TBPoint within a launch: which thread blocks to simulate or skip, and the launch's projected cycles.

A simulator reports when it wants to dispatch a block and when one retires; the sampler answers whether to
simulate it. A sampling unit lasts from the dispatch to the retirement of one specified block: initially the
first, then the next one dispatched after it has retired. A region is entered once all resident blocks
belong to it. Its units warm up until two successive ones differ by less than 10 % in instructions per cycle
(IPC); from then on its blocks are skipped, until a block of another region is dispatched.

    launch cycles = simulated cycles + sum over skipped blocks of instructions / IPC of the region's last unit

Source: TBPoint (Huang et al., IPDPS 2014), section IV-B2, table IV.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from assay_sampling.projection.tbpoint.regions import NO_REGION

DEFAULT_WARM_UP_DIFFERENCE = 0.1


@dataclass
class RegionSampler:
    """The state machine, driven by the events of one launch in their order.

    Args:
        region_of_block: region of each block, shape (blocks,), NO_REGION outside all regions.
        warm_up_difference: relative to the earlier of two units; below it their IPC counts as stable.

    ``skipped`` lists the skipped blocks and ``skipped_ipc`` the IPC that stands for each of them.
    """

    region_of_block: np.ndarray
    warm_up_difference: float = DEFAULT_WARM_UP_DIFFERENCE
    skipped: list[int] = field(default_factory=list)
    skipped_ipc: list[float] = field(default_factory=list)
    _resident: dict[int, int] = field(default_factory=dict)
    _region: int = NO_REGION
    _previous_ipc: float | None = None
    _fast_forward_ipc: float | None = None
    _specified: int | None = None
    _unit_region: int = NO_REGION
    _unit_start: tuple[float, float] = (0.0, 0.0)

    def dispatch(self, block: int, cycle: float, executed: float) -> bool:
        """Whether a block that is about to be dispatched must be simulated.

        ``executed`` is the number of instructions that the whole GPU has executed up to ``cycle``.
        """
        region = int(self.region_of_block[block])
        if self._fast_forward_ipc is not None:
            if region == self._region:
                self.skipped.append(block)
                self.skipped_ipc.append(self._fast_forward_ipc)
                return False
            self._fast_forward_ipc = None
        self._resident[region] = self._resident.get(region, 0) + 1
        self._follow_region(region)
        if self._specified is None:
            self._specified = block
            self._unit_region = self._region
            self._unit_start = (cycle, executed)
        return True

    def retire(self, block: int, cycle: float, executed: float) -> None:
        """A simulated block has retired."""
        region = int(self.region_of_block[block])
        self._resident[region] -= 1
        if not self._resident[region]:
            del self._resident[region]
        if block == self._specified:
            self._specified = None
            self._end_unit(cycle, executed)

    def _follow_region(self, dispatched: int) -> None:
        """Leave the region at a block of another one; enter one when all resident blocks belong to it."""
        inside = dispatched if len(self._resident) == 1 else NO_REGION
        if inside != self._region:
            self._region, self._previous_ipc = inside, None

    def _end_unit(self, cycle: float, executed: float) -> None:
        start, before = self._unit_start
        inside = self._region != NO_REGION and self._unit_region == self._region
        if not inside or cycle <= start:
            return
        ipc, previous = (executed - before) / (cycle - start), self._previous_ipc
        self._previous_ipc = ipc
        if previous is not None and ipc > 0 and abs(ipc - previous) < self.warm_up_difference * previous:
            self._fast_forward_ipc = ipc
