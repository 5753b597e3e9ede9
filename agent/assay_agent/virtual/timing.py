"""The roofline: what launches demand of a GPU, and how long it takes over them (docs/virtual-gpu.md).

    duration = launch cost + cold code + max(compute, L2, DRAM)

Each of the three is exact arithmetic on the figures of :mod:`assay_agent.virtual.architectures`; noise is
added elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay_agent.virtual.architectures import Architecture
from assay_agent.virtual.memory import Touched, walk
from assay_agent.virtual.sequence import Sequence
from assay_agent.virtual.workload import ASYNC_COPY_BYTES, Kernel, Workload
from assay_sampling.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SECTOR_BYTES = 32
COLD_CODE_NS = 500.0
DRAM_SUSTAINED_SHARE = 0.88
SM_L2_BYTES_PER_CYCLE = 64.0
WARP_BYTES_IN_FLIGHT = 512.0
COPY_FACTOR_IN_FLIGHT = 4.0
_REGISTERS_PER_UNIT = 256
_WARPS_PER_UNIT = 4


def blocks_per_sm(gpu: Architecture, kernel: Kernel) -> int:
    """Blocks of a kernel that an SM holds at once: the least of four limits; 0 where one does not fit.

    Registers are given out in units of 256 a warp, to warps in fours; source: CUDA's occupancy calculator.
    """
    warps = warps_per_block(kernel)
    registers = -(-kernel.registers * 32 // _REGISTERS_PER_UNIT) * _REGISTERS_PER_UNIT
    warps_by_registers = gpu.registers_per_sm // registers // _WARPS_PER_UNIT * _WARPS_PER_UNIT
    shared = kernel.static_shared_bytes + kernel.dynamic_shared_bytes
    if shared > gpu.shared_bytes_per_block:
        return 0
    shared += gpu.shared_bytes_reserved
    by_shared = gpu.shared_bytes_per_sm // shared if shared else gpu.blocks_per_sm
    return min(gpu.blocks_per_sm, gpu.warps_per_sm // warps, warps_by_registers // warps, by_shared)


def warps_per_block(kernel: Kernel) -> int:
    """Warps of a block; the last may be filled in part."""
    return -(-kernel.block[0] * kernel.block[1] * kernel.block[2] // 32)


@dataclass(frozen=True)
class Demand:
    """What launches ask for on one architecture, each array of shape (n,); bytes as seen by L2 and DRAM."""

    blocks: Floats
    warps_per_block: Floats
    blocks_per_sm: Floats
    warp_instructions_per_cycle: Floats
    instructions_per_warp: Floats
    counts: dict[str, Floats]
    l1_hit_sectors: Floats
    l1_sectors: Floats
    l2_bytes: Floats
    dram_read_bytes: Floats
    dram_write_bytes: Floats
    cold_code: NDArray[np.bool_]


_COUNTED = (
    "instructions", "global_loads", "generic_loads", "global_stores", "global_atomics", "local_loads",
    "local_stores", "shared_loads", "shared_stores", "async_copies", "tensor_copies",
)  # fmt: skip


def demand_of(gpu: Architecture, workload: Workload, sequence: Sequence, *, flushed: bool) -> Demand:
    """What each launch demands, from the first launch of the process on (the cache carries over).

    Raises InputError for a kernel of which not one block fits into an SM.
    """
    kernels, kernel = sequence.kernels, sequence.kernel
    fitting = _fitting_blocks(gpu, workload, sequence)

    def of_kernels(name: str) -> Floats:
        return np.array([getattr(k, name) for k in kernels], np.float64)[kernel]

    blocks = sequence.grid.prod(axis=1).astype(np.float64)
    warps_each = np.array([warps_per_block(k) for k in kernels], np.float64)[kernel]
    warps = blocks * warps_each
    counts = {name: np.rint(warps * sequence.work * of_kernels(name)) for name in _COUNTED}
    per_load, per_store = of_kernels("sectors_per_load"), of_kernels("sectors_per_store")
    counts["global_load_sectors"] = np.rint((counts["global_loads"] + counts["generic_loads"]) * per_load)
    counts["global_store_sectors"] = np.rint(counts["global_stores"] * per_store)
    counts["local_load_sectors"] = counts["local_loads"] * 4.0
    counts["local_store_sectors"] = counts["local_stores"] * 4.0
    cached = counts["global_load_sectors"] + counts["local_load_sectors"]
    stored = counts["global_store_sectors"] + counts["local_store_sectors"]
    hits = np.rint(cached * of_kernels("l1_hit_percent") / 100.0)
    copied = counts["async_copies"] * ASYNC_COPY_BYTES + counts["tensor_copies"] * of_kernels(
        "tensor_copy_bytes"
    )
    read = (cached - hits) * SECTOR_BYTES + copied
    atomic = np.rint(counts["global_atomics"] * of_kernels("active_threads")) * SECTOR_BYTES
    written = stored * SECTOR_BYTES + atomic
    dram_read, dram_write = _device_memory(gpu, workload, sequence, read, written, flushed=flushed)
    cold = np.zeros(len(kernel), np.bool_)
    cold[np.unique(kernel, return_index=True)[1]] = True
    return Demand(
        blocks=blocks,
        warps_per_block=warps_each,
        blocks_per_sm=fitting,
        warp_instructions_per_cycle=of_kernels("warp_instructions_per_cycle"),
        instructions_per_warp=of_kernels("instructions") * sequence.work,
        counts=counts,
        l1_hit_sectors=hits,
        l1_sectors=cached + stored,
        l2_bytes=read + written,
        dram_read_bytes=dram_read,
        dram_write_bytes=dram_write,
        cold_code=cold | flushed,
    )


def _fitting_blocks(gpu: Architecture, workload: Workload, sequence: Sequence) -> Floats:
    fitting = np.array([blocks_per_sm(gpu, k) for k in sequence.kernels], np.float64)
    for misfit in np.unique(sequence.kernel[fitting[sequence.kernel] == 0]).tolist():
        raise InputError(
            workload.path,
            f"no block of it fits into an SM of a {gpu.kind}",
            "use fewer registers, threads or bytes of shared memory, or give a variant",
            field=f"kernels.{list(workload.kernels)[misfit]}",
        )
    return fitting[sequence.kernel]


def _device_memory(
    gpu: Architecture, workload: Workload, sequence: Sequence, read: Floats, written: Floats, *, flushed: bool
) -> tuple[Floats, Floats]:
    """Bytes that device memory delivers and takes, shape (n,) each.

    A launch touches no more of its buffers than it asks of L2. What it asks for again hits, but for the
    share by which its buffers exceed L2. Traffic of a kernel that names no buffers streams past L2.
    """
    positions = {name: position for position, name in enumerate(workload.buffers)}
    sizes = np.array([*workload.buffers.values(), 0], np.float64)
    n = len(sequence)
    touched: list[Touched] = [((), [], [])] * n
    streams_in, streams_out = read.copy(), written.copy()
    unique_read, footprint = np.zeros(n), np.zeros(n)
    for number, kernel in enumerate(sequence.kernels):
        rows = np.flatnonzero(sequence.kernel == number)
        buffers = tuple(positions[name] for name in {**kernel.reads, **kernel.writes})
        reads, writes = (
            _shares(sizes, positions, buffers, shares, asked[rows])
            for shares, asked in ((kernel.reads, read), (kernel.writes, written))
        )
        for row, row_reads, row_writes in zip(rows.tolist(), reads.tolist(), writes.tolist(), strict=True):
            touched[row] = (buffers, row_reads, row_writes)
        unique_read[rows] = reads.sum(axis=1)
        footprint[rows] = np.maximum(reads, writes).sum(axis=1)
        streams_in[rows] *= not kernel.reads
        streams_out[rows] *= not kernel.writes
    missed, written_back = walk(touched, gpu.l2_bytes, flushed=flushed)
    exceeding = 1.0 - np.minimum(1.0, gpu.l2_bytes / np.maximum(footprint, 1.0))
    again = np.rint(np.maximum(0.0, read - streams_in - unique_read) * exceeding)
    return missed + again + streams_in, written_back + streams_out


def _shares(
    sizes: Floats,
    positions: dict[str, int],
    buffers: tuple[int, ...],
    shares: dict[str, float],
    asked: Floats,
) -> Ints:
    """Bytes of each buffer that launches touch which ask L2 for ``asked`` bytes (m,); shape (m, buffers)."""
    wanted = np.zeros(len(buffers))
    for name, share in shares.items():
        wanted[buffers.index(positions[name])] = share * sizes[positions[name]]
    part = np.minimum(1.0, asked / max(1.0, sum(wanted.tolist())))
    return np.asarray(wanted * part[:, None]).astype(np.int64)


@dataclass(frozen=True)
class Timing:
    """Times without noise and what follows from them, each of shape (n,)."""

    duration_ns: Floats
    compute_cycles: Floats
    waves: Floats
    busy_share: Floats
    occupancy: Floats


def time_of(gpu: Architecture, demand: Demand, sm_count: int, clock_hz: Floats) -> Timing:
    """How long each launch takes on ``sm_count`` SMs at a clock (shape (n,)).

    A full wave gives each SM ``blocks_per_sm`` blocks; the last wave spreads what is left evenly, so that
    its busiest SM has ceil(left / SMs) blocks. An SM with w warps issues min(issue slots, w x a warp's own
    rate) instructions a cycle. L2 and DRAM are shared by all SMs, yet only as many bytes are in flight as
    the resident warps ask for (Little's law; copies that need no registers ask for more), and an SM takes
    64 bytes a cycle from L2.
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
    """Cycles that an SM takes over so many blocks at once."""
    warps = blocks * demand.warps_per_block
    rate = np.minimum(gpu.issue_per_cycle, warps * demand.warp_instructions_per_cycle)
    return warps * demand.instructions_per_warp / rate
