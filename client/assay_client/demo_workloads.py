"""Invented workloads and invented GPUs for the demonstration: launch sequences and a small roofline.

Nothing here was measured. The numbers are plausible in size only: they exercise the product, and say
nothing about any GPU or program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

# A kernel's first launch finds caches and instruction memory cold.
_COLD = 1.09


@dataclass(frozen=True)
class Gpu:
    """An invented GPU: what the roofline needs to know of one."""

    label: str
    compute_capability: str
    sm_count: int
    clock_ghz: float
    bandwidth_bytes_per_ns: float
    launch_ns: float


GPUS = (
    Gpu("synthetic V100", "7.0", 80, 1.38, 900.0, 2200.0),
    Gpu("synthetic A100", "8.0", 108, 1.41, 1555.0, 1900.0),
    Gpu("synthetic H100", "9.0", 132, 1.76, 3350.0, 1600.0),
)


@dataclass(frozen=True)
class Kernel:
    """What a warp of the kernel does: instructions, 32-byte sectors, shared loads, and its efficiencies."""

    name: str
    block: int
    registers: int
    shared_bytes: int
    instructions: float
    load_sectors: float
    store_sectors: float
    shared_loads: float = 0.0
    atomics: float = 0.0
    active_threads: float = 32.0
    instructions_per_cycle: float = 2.0
    hit_share: float = 0.3


@dataclass
class Sequence:
    """The launches of one workload in API order, the same on every GPU; one entry a launch in each list."""

    kernels: list[Kernel]
    kernel: list[int] = field(default_factory=list)
    grid: list[tuple[int, int, int]] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    phase: list[str] = field(default_factory=list)
    iteration: list[int] = field(default_factory=list)

    def add(
        self, kernel: int, grid: tuple[int, int, int], phase: str, iteration: int, work: float = 1.0
    ) -> None:
        self.kernel.append(kernel)
        self.grid.append(grid)
        self.work.append(work)
        self.phase.append(phase)
        self.iteration.append(iteration)

    def __len__(self) -> int:
        return len(self.kernel)

    def of_kernels(self, name: str) -> np.ndarray:
        """An attribute of each launch's kernel, shape (n,)."""
        return np.array([getattr(k, name) for k in self.kernels], float)[self.kernel]


def _training(random: np.random.Generator) -> Sequence:
    """Epochs of training with two sequence lengths; validation, first seen late, has a kernel of its own."""
    sequence = Sequence(
        [
            Kernel("void gemm_tile<float, 128, 64>(float const*, float const*, float*, int, int, int)",
                   256, 122, 32768, 12_000, 3072, 32, 2400, instructions_per_cycle=3.1, hit_share=0.8),
            Kernel("void softmax_forward<float>(float*, float const*, int)", 128, 32, 4096, 500, 64, 64, 40),
            Kernel("void layer_norm<float>(float*, float const*, float const*, int)",
                   256, 40, 2048, 320, 48, 32, 16),
            Kernel("void gemm_tile<float, 64, 64, true>(float const*, float const*, float*, int, int, int)",
                   128, 128, 24576, 9000, 2600, 48, 1900, instructions_per_cycle=2.8, hit_share=0.75),
            Kernel("void embedding_backward<float>(float*, float const*, long const*, int)",
                   128, 28, 0, 260, 96, 40, atomics=32, active_threads=21.0, instructions_per_cycle=0.8),
            Kernel("void adam_step<float>(float*, float*, float*, float const*, float, long)",
                   256, 30, 0, 180, 128, 96, hit_share=0.0),
            Kernel("void top_k_accuracy<float, 5>(int*, float const*, int const*, int)",
                   128, 44, 8192, 1400, 64, 2, 120, active_threads=26.0),
        ]
    )  # fmt: skip
    for iteration in range(330):
        tokens = int(random.choice((8, 16), p=(0.7, 0.3)))
        for layer in range(6):
            sequence.add(0, (tokens * 6, 4, 1), "forward", iteration)
            sequence.add(1, (tokens * 16, 1, 1), "forward", iteration)
            sequence.add(2, (tokens * 32, 1, 1), "forward", iteration, 1.0 + 0.1 * (layer % 2))
        if iteration >= 120 and iteration % 30 == 0:
            for _ in range(4):
                sequence.add(6, (tokens * 8, 1, 1), "validation", iteration)
            continue
        for _ in range(6):
            sequence.add(3, (tokens * 6, 8, 1), "backward", iteration)
            sequence.add(2, (tokens * 32, 1, 1), "backward", iteration)
        sequence.add(4, (tokens * 24, 1, 1), "backward", iteration, float(random.uniform(0.7, 1.4)))
        for _ in range(5):
            sequence.add(5, (384, 1, 1), "optimizer", iteration)
    return sequence


def _inference(random: np.random.Generator) -> Sequence:
    """Requests in batches whose size changes in bursts."""
    sequence = Sequence(
        [
            Kernel("void conv_implicit_gemm<half, 3, 3>(half const*, half const*, half*, ConvShape)",
                   256, 96, 49152, 5000, 1200, 24, 900, instructions_per_cycle=3.0, hit_share=0.85),
            Kernel("void batch_norm_relu<half>(half*, half const*, float const*, int)",
                   512, 24, 0, 90, 16, 16),
            Kernel("void max_pool_2d<half, 2>(half*, half const*, int, int)", 256, 26, 0, 160, 24, 6),
            Kernel("void fully_connected<half>(half const*, half const*, half*, int, int)",
                   128, 80, 16384, 4000, 600, 8, 420, instructions_per_cycle=1.6),
            Kernel("void non_max_suppression<float>(int*, float const*, int, float)",
                   64, 48, 1024, 3000, 48, 4, 160, 6, active_threads=11.0, instructions_per_cycle=0.5),
        ]
    )  # fmt: skip
    batch = 4
    for request in range(700):
        if random.random() < 0.15:
            batch = int(random.choice((1, 4, 16, 32), p=(0.3, 0.35, 0.25, 0.1)))
        for layer in range(4):
            edge = 56 >> layer
            sequence.add(0, (batch * edge, 2 << layer, 1), "backbone", request)
            sequence.add(1, (max(1, batch * edge * edge // 16), 1, 1), "backbone", request)
        sequence.add(2, (batch * 49, 1, 1), "backbone", request)
        sequence.add(3, (batch * 8, 4, 1), "head", request)
        sequence.add(4, (batch * 4, 1, 1), "head", request, float(random.lognormal(0.0, 0.35)))
    return sequence


def _traversal(random: np.random.Generator) -> Sequence:
    """Breadth-first searches from many sources: frontiers grow and shrink, so grids do."""
    sequence = Sequence(
        [
            Kernel("void expand_frontier<unsigned int>(unsigned int const*, unsigned int*, int)",
                   256, 38, 4096, 420, 72, 16, 24, atomics=12, active_threads=14.0,
                   instructions_per_cycle=0.9, hit_share=0.4),
            Kernel("void exclusive_scan<unsigned int>(unsigned int*, unsigned int const*, int)",
                   128, 30, 2048, 210, 8, 8, 44),
            Kernel("void filter_visited<unsigned int>(unsigned int*, unsigned char*, int)",
                   256, 24, 0, 120, 32, 8, active_threads=22.0, hit_share=0.5),
            Kernel("void pull_neighbours<unsigned int>(unsigned char const*, unsigned int const*, int)",
                   256, 34, 0, 700, 110, 4, active_threads=17.0, instructions_per_cycle=1.1, hit_share=0.6),
            Kernel("void reset_levels(int*, int)", 512, 12, 0, 24, 1, 16, hit_share=0.0),
        ]
    )  # fmt: skip
    for source in range(360):
        sequence.add(4, (2048, 1, 1), "reset", source)
        frontier = float(random.integers(60, 600))
        growth = float(random.uniform(12.0, 20.0))
        for level in range(14):
            blocks = _padded(frontier / 256)
            degree = float(random.lognormal(0.0, 0.2))
            if frontier > 600_000:
                sequence.add(3, (4096, 1, 1), "search", source, degree * 1_000_000 / frontier)
            else:
                sequence.add(0, (blocks, 1, 1), "search", source, degree)
            sequence.add(1, (_padded(frontier / 512), 1, 1), "search", source)
            sequence.add(2, (blocks, 1, 1), "search", source)
            frontier *= growth * float(random.uniform(0.8, 1.2)) * 0.55**level
            if frontier < 64:
                break
    return sequence


def _padded(blocks: float) -> int:
    """Frontiers are padded, as allocators do: four sizes between powers of two."""
    step: int = max(1, 2 ** (int(blocks).bit_length() - 3))
    return max(1, round(blocks / step) * step)


@dataclass(frozen=True)
class Workload:
    """A program: how many launches the detailed level sees, and what it launches."""

    name: str
    window: int
    build: Callable[[np.random.Generator], Sequence]


WORKLOADS = (
    Workload("training", 1500, _training),
    Workload("inference", 1200, _inference),
    Workload("traversal", 2000, _traversal),
)


def counters_of(sequence: Sequence) -> dict[str, np.ndarray]:
    """Nsight Compute metrics that do not depend on the GPU, each of shape (n,)."""
    blocks = np.array(sequence.grid, float).prod(axis=1)
    warps = blocks * sequence.of_kernels("block") / 32
    work = np.array(sequence.work)
    loads = np.rint(warps * sequence.of_kernels("load_sectors") * work)
    stores = np.rint(warps * sequence.of_kernels("store_sectors") * work)
    shared_loads = np.rint(warps * sequence.of_kernels("shared_loads") * work)
    return {
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": loads,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": stores,
        "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": np.zeros(len(sequence)),
        "launch__grid_size": blocks,
        "smsp__inst_executed.sum": np.rint(warps * sequence.of_kernels("instructions") * work),
        "smsp__inst_executed_op_global_ld.sum": np.rint(loads / 4),
        "smsp__inst_executed_op_global_st.sum": np.rint(stores / 4),
        "smsp__inst_executed_op_local_ld.sum": np.zeros(len(sequence)),
        "smsp__inst_executed_op_shared_ld.sum": shared_loads,
        "smsp__inst_executed_op_shared_st.sum": np.rint(shared_loads / 3),
        "smsp__sass_inst_executed_op_global_atom.sum": np.rint(warps * sequence.of_kernels("atomics") * work),
        "smsp__thread_inst_executed_per_inst_executed.ratio": sequence.of_kernels("active_threads"),
    }


def roofline_ns(sequence: Sequence, counters: dict[str, np.ndarray], gpu: Gpu) -> np.ndarray:
    """Time of every launch without noise, shape (n,): launch cost plus the slower of compute and memory."""
    blocks = counters["launch__grid_size"]
    slots = gpu.sm_count * np.minimum(16, 2048 // sequence.of_kernels("block"))
    waves = blocks / slots
    tail = np.where(waves > 1, np.ceil(waves) / waves, 1.0)
    busy_sms = np.minimum(gpu.sm_count, blocks)
    cycles = counters["smsp__inst_executed.sum"] / (busy_sms * sequence.of_kernels("instructions_per_cycle"))
    sectors = (
        counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]
        + counters["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"]
    )
    memory_ns = 32 * sectors * (1 - sequence.of_kernels("hit_share")) / gpu.bandwidth_bytes_per_ns
    compute_ns = cycles * tail / gpu.clock_ghz
    ideal_ns = gpu.launch_ns + np.maximum(compute_ns, memory_ns) + 0.2 * np.minimum(compute_ns, memory_ns)
    _, first = np.unique(np.array(sequence.kernel), return_index=True)
    ideal_ns[first] *= _COLD
    return np.asarray(ideal_ns)
