"""How many thread blocks are resident at once on the whole GPU: the size of TBPoint's epochs.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the arithmetic of
NVIDIA's occupancy calculator; TBPoint (IPDPS 2014), section IV-B ("system occupancy").
"""

from __future__ import annotations

from dataclasses import dataclass

from assay_sampling.errors import ParameterError, RefusedError

WARP_THREADS = 32
# Registers are given out to whole warps in units of this many.
_REGISTER_UNIT = 256


@dataclass(frozen=True)
class SmLimits:
    """What one SM holds. ``shared_memory_bytes`` is the largest that can be configured;
    ``shared_memory_reserved_bytes`` is the system's part of it for each block."""

    warps: int
    blocks: int
    registers: int
    shared_memory_bytes: int
    shared_memory_unit_bytes: int = 128
    shared_memory_reserved_bytes: int = 1024


SM_LIMITS: dict[str, SmLimits] = {
    "7.0": SmLimits(64, 32, 65536, 96 << 10, 256, 0),
    "7.5": SmLimits(32, 16, 65536, 64 << 10, 256, 0),
    "8.0": SmLimits(64, 32, 65536, 164 << 10),
    "8.6": SmLimits(48, 16, 65536, 100 << 10),
    "8.9": SmLimits(48, 24, 65536, 100 << 10),
    "9.0": SmLimits(64, 32, 65536, 228 << 10),
}


def limits_of(compute_capability: str) -> SmLimits:
    """The limits of an SM of that compute capability; raises ParameterError for an unknown one."""
    try:
        return SM_LIMITS[compute_capability]
    except KeyError:
        raise ParameterError(
            "occupancy",
            f"the limits of compute capability {compute_capability!r} are unknown",
            f"use one of {', '.join(SM_LIMITS)}, or give the limits of the SM",
        ) from None


def blocks_per_sm(
    limits: SmLimits, *, block_threads: int, registers_per_thread: int, shared_memory_bytes: int
) -> int:
    """Blocks of this shape that are resident at once on one SM.

    Raises ParameterError for a shape without threads or with negative numbers, RefusedError if not even one
    block fits.
    """
    if block_threads < 1 or registers_per_thread < 0 or shared_memory_bytes < 0:
        raise ParameterError("occupancy", "a block needs at least one thread, and nothing negative")
    warps = -(-block_threads // WARP_THREADS)
    fits = [limits.blocks, limits.warps // warps]
    if registers_per_thread:
        of_warp = _up(registers_per_thread * WARP_THREADS, _REGISTER_UNIT)
        fits.append(limits.registers // of_warp // warps)
    shared = _up(shared_memory_bytes + limits.shared_memory_reserved_bytes, limits.shared_memory_unit_bytes)
    if shared:
        fits.append(limits.shared_memory_bytes // shared)
    if min(fits) < 1:
        raise RefusedError(
            "occupancy",
            f"a block of {block_threads:,} threads with {registers_per_thread} registers each and "
            f"{shared_memory_bytes:,} bytes of shared memory does not fit on an SM",
            "check the shape, or the compute capability",
        )
    return min(fits)


def resident_blocks(
    limits: SmLimits,
    sm_count: int,
    *,
    block_threads: int,
    registers_per_thread: int,
    shared_memory_bytes: int,
) -> int:
    """Blocks of this shape that are resident at once on ``sm_count`` SMs; raises as :func:`blocks_per_sm`."""
    if sm_count < 1:
        raise ParameterError("occupancy", f"the GPU has {sm_count} SMs", "give at least 1")
    return sm_count * blocks_per_sm(
        limits,
        block_threads=block_threads,
        registers_per_thread=registers_per_thread,
        shared_memory_bytes=shared_memory_bytes,
    )


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
