"""The roofline: how long a GPU takes for the demand of launches (docs/virtual-gpu.md).

    duration = launch cost + cold code + max(compute, L2, DRAM)

Each term is exact arithmetic on the figures of :mod:`assay_virtual.architectures`; noise is added
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay_virtual.architectures import Architecture
from assay_virtual.model.demand import Demand

Floats = NDArray[np.float64]

COLD_CODE_NS = 500.0
DRAM_SUSTAINED_SHARE = 0.88
SM_L2_BYTES_PER_CYCLE = 64.0
WARP_BYTES_IN_FLIGHT = 512.0
COPY_FACTOR_IN_FLIGHT = 4.0


@dataclass(frozen=True)
class Timing:
    """Times without noise and values derived from them, each of shape (n,)."""

    duration_ns: Floats
    compute_cycles: Floats
    waves: Floats
    busy_share: Floats
    occupancy: Floats


def time_of(gpu: Architecture, demand: Demand, sm_count: int, clock_hz: Floats) -> Timing:
    """How long each launch takes on ``sm_count`` SMs at a clock (shape (n,)).

    A full wave gives each SM ``blocks_per_sm`` blocks; the last wave spreads what is left evenly, so that
    its busiest SM has ceil(left / SMs) blocks. An SM with w warps issues min(issue slots, w x a warp's own
    rate) instructions per cycle. All SMs share L2 and DRAM, but only as many bytes are in flight as the
    resident warps request (Little's law; copies that need no registers request more), and an SM takes 64
    bytes per cycle from L2.
    """
    capacity = demand.blocks_per_sm * sm_count
    full_waves = np.floor(demand.blocks / capacity)
    left = demand.blocks - full_waves * capacity
    last_blocks = np.ceil(left / sm_count)
    wave_cycles = _block_cycles(gpu, demand, demand.blocks_per_sm)
    last_cycles = np.where(left > 0, _block_cycles(gpu, demand, np.maximum(last_blocks, 1.0)), 0.0)
    compute_cycles = full_waves * wave_cycles + last_cycles
    warps = np.minimum(demand.blocks, capacity) * demand.warps_per_block
    copies = demand.counts["async_copies"] + demand.counts["tensor_copies"]
    in_flight = warps * WARP_BYTES_IN_FLIGHT * np.where(copies > 0, COPY_FACTOR_IN_FLIGHT, 1.0)
    busy_sms = np.minimum(demand.blocks, sm_count)
    l2_bytes_per_cycle = np.minimum(
        np.minimum(gpu.l2_bytes_per_cycle, busy_sms * SM_L2_BYTES_PER_CYCLE),
        in_flight / gpu.l2_latency_cycles,
    )
    dram_bytes_per_ns = np.minimum(
        gpu.dram_bytes_per_second * DRAM_SUSTAINED_SHARE * 1e-9, in_flight / gpu.dram_latency_ns
    )
    cycle_ns = 1e9 / clock_hz
    body_ns = np.maximum(
        np.maximum(compute_cycles, demand.l2_bytes / l2_bytes_per_cycle) * cycle_ns,
        (demand.dram_read_bytes + demand.dram_write_bytes) / dram_bytes_per_ns,
    )
    last_share = last_cycles / compute_cycles
    last_busy = np.minimum(left, sm_count) / sm_count
    resident = (1.0 - last_share) * demand.blocks_per_sm + last_share * left / np.maximum(
        1.0, np.minimum(left, sm_count)
    )
    return Timing(
        duration_ns=gpu.launch_ns + np.where(demand.cold_code, COLD_CODE_NS, 0.0) + body_ns,
        compute_cycles=compute_cycles,
        waves=demand.blocks / capacity,
        busy_share=body_ns / (gpu.launch_ns + body_ns) * ((1.0 - last_share) + last_share * last_busy),
        occupancy=resident * demand.warps_per_block / gpu.warps_per_sm,
    )


def _block_cycles(gpu: Architecture, demand: Demand, blocks: Floats) -> Floats:
    """Cycles that an SM takes for that many blocks at once."""
    warps = blocks * demand.warps_per_block
    rate = np.minimum(gpu.issue_per_cycle, warps * demand.warp_instructions_per_cycle)
    return warps * demand.instructions_per_warp / rate
