"""Canonical counters of profiled launches on a virtual GPU: those that the architecture has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay_sampling.counters.definitions import registry
from assay_virtual.architectures import Architecture
from assay_virtual.model.demand import Demand
from assay_virtual.model.sequence import Sequence
from assay_virtual.model.timing import Timing

Floats = NDArray[np.float64]

_TIMER_NS = 32.0
_GPC_UNEVENNESS = 0.0015


@dataclass(frozen=True)
class Clocks:
    """Duration under the profiler, SM clock, and how unevenly the GPCs ran, each of shape (n,)."""

    duration_ns: Floats
    clock_hz: Floats
    unevenness: Floats


def counters_of(
    gpu: Architecture, sequence: Sequence, demand: Demand, timing: Timing, clocks: Clocks
) -> dict[str, Floats]:
    """Every canonical counter that the GPU has, each of shape (n,); cycles with two decimals.

    Without ``replay_passes``: how often a launch is replayed depends on the profiler, not the GPU.
    """
    duration_ns = clocks.duration_ns
    ticks_ns = np.rint(duration_ns / _TIMER_NS) * _TIMER_NS
    cycles = np.rint(duration_ns * clocks.clock_hz * 1e-9)
    count = demand.counts
    dram_bytes = demand.dram_read_bytes + demand.dram_write_bytes
    threads = np.array([k.block[0] * k.block[1] * k.block[2] for k in sequence.kernels], np.float64)
    active = np.array([k.active_threads for k in sequence.kernels])[sequence.kernel]
    active = active * (threads[sequence.kernel] / (32.0 * demand.warps_per_block))
    loads_sass = count["global_loads"] + count["generic_loads"]
    every = {
        "cycles_gpc_avg": _cents(cycles * (1.0 - _GPC_UNEVENNESS * clocks.unevenness)),
        "cycles_gpc_max": cycles,
        "cycles_sys_avg": _cents(duration_ns * gpu.sys_clock_hz * 1e-9),
        "cycles_sm_active_avg": _cents(cycles * timing.busy_share),
        "profiled_duration_ns": ticks_ns,
        "clock_gpc_hz": _cents(cycles / ticks_ns * 1e9),
        "instructions": count["instructions"],
        "sm_instructions": count["instructions"],
        "thread_instructions": np.rint(count["instructions"] * active),
        "threads_per_instruction": _cents(active),
        "thread_blocks": demand.blocks,
        "global_load_sectors": count["global_load_sectors"],
        "global_store_sectors": count["global_store_sectors"],
        "local_load_sectors": count["local_load_sectors"],
        "local_store_sectors": count["local_store_sectors"],
        "global_load_requests": loads_sass,
        "global_store_requests": count["global_stores"],
        "global_load_instructions": count["global_loads"],
        "global_load_instructions_sass": loads_sass,
        "global_store_instructions": count["global_stores"],
        "global_store_instructions_sass": count["global_stores"],
        "local_load_instructions": count["local_loads"],
        "local_load_instructions_sass": count["local_loads"],
        "shared_load_instructions": count["shared_loads"],
        "shared_load_instructions_sass": count["shared_loads"],
        "shared_store_instructions": count["shared_stores"],
        "shared_store_instructions_sass": count["shared_stores"],
        "global_atomic_instructions": count["global_atomics"],
        "artifact_global_loads": loads_sass,
        "artifact_global_stores": count["global_stores"],
        "async_copy_instructions": count["async_copies"],
        "tensor_memory_instructions": count["tensor_copies"],
        "dram_bytes": dram_bytes,
        "dram_read_bytes": demand.dram_read_bytes,
        "dram_write_bytes": demand.dram_write_bytes,
        "dram_throughput_percent": _cents(
            100.0 * dram_bytes / (duration_ns * 1e-9 * gpu.dram_bytes_per_second)
        ),
        "l1_hit_percent": _percent(demand.l1_hit_sectors, demand.l1_sectors),
        "l2_hit_percent": _percent(demand.l2_bytes - demand.dram_read_bytes, demand.l2_bytes),
        "occupancy_percent": _cents(100.0 * timing.occupancy),
        "waves_per_sm": _cents(timing.waves),
    }
    known = registry()
    return {
        name: values
        for name, values in every.items()
        if any(metric.exists_on(gpu.compute_capability, "") for metric in known[name].metrics)
    }


def _cents(values: Floats) -> Floats:
    """Rounded to two decimals, as Nsight Compute prints."""
    return np.round(values, 2)


def _percent(part: Floats, whole: Floats) -> Floats:
    return _cents(100.0 * np.maximum(0.0, part) / np.maximum(whole, 1.0))
