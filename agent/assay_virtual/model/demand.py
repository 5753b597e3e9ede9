"""The demand of launches on a GPU: blocks and warps, instructions, bytes from L2 and device memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay_sampling.errors import InputError
from assay_virtual.architectures import Architecture
from assay_virtual.model.memory import Touched, walk
from assay_virtual.model.sequence import Sequence
from assay_virtual.workloads.workload import ASYNC_COPY_BYTES, Kernel, Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SECTOR_BYTES = 32
_REGISTERS_PER_UNIT = 256
_WARPS_PER_UNIT = 4


def blocks_per_sm(gpu: Architecture, kernel: Kernel) -> int:
    """Blocks of a kernel that an SM holds at once: the least of four limits; 0 if no block fits.

    Registers are allocated in units of 256 per warp, to groups of four warps; source: CUDA's occupancy
    calculator.
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
    """Warps of a block; the last may be partly filled."""
    return -(-kernel.block[0] * kernel.block[1] * kernel.block[2] // 32)


@dataclass(frozen=True)
class Demand:
    """The demand of launches on one architecture, arrays of shape (n,); bytes as seen by L2 and DRAM."""

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
    """The demand of each launch, from the first launch of the process on (the cache carries over).

    Raises InputError for a kernel whose blocks do not fit into an SM.
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
            f"its blocks do not fit into an SM of a {gpu.kind}",
            "use fewer registers, threads or bytes of shared memory, or give a variant",
            field=f"kernels.{list(workload.kernels)[misfit]}",
        )
    return fitting[sequence.kernel]


def _device_memory(
    gpu: Architecture, workload: Workload, sequence: Sequence, read: Floats, written: Floats, *, flushed: bool
) -> tuple[Floats, Floats]:
    """Bytes that device memory reads and writes, shape (n,) each.

    A launch touches at most as many bytes of its buffers as it asks of L2. Repeated requests hit, except for
    the share by which its buffers exceed L2. Traffic of a kernel without buffers bypasses L2.
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
    """Bytes that launches with ``asked`` bytes (m,) from L2 touch of each buffer; shape (m, buffers)."""
    wanted = np.zeros(len(buffers))
    for name, share in shares.items():
        wanted[buffers.index(positions[name])] = share * sizes[positions[name]]
    part = np.minimum(1.0, asked / max(1.0, sum(wanted.tolist())))
    return np.asarray(wanted * part[:, None]).astype(np.int64)
