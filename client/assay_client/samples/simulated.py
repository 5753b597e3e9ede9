"""What a simulator would be given and print for the launches of a recording: headers of traces, and a log.

Both are synthetic. The traces hold no instructions, because virtual GPUs execute none; the cycles of the log
are those of the recording, changed by a few percent that depend on the kernel, as a simulator is wrong by
kernel. Layouts: docs/simulator-files.md, "Traces" and "Standard output".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import SHAPE_COLUMNS

LIST_NAME = "kernelslist.g"
# The simulator's error by kernel, in the order in which kernels first appear.
_ERRORS_PERCENT = (4.0, -6.0, 9.0, -3.0)
_WARP_THREADS = 32
_SECONDS_A_LAUNCH = 3
_NOTICE = f"{SYNTHETIC_MARK}: written by assay samples; no simulator ran, and no silicon was measured"
_OPTIONS = {
    "gpgpu_shader_core_pipeline": "2048:32",
    "gpgpu_n_clusters": "80",
    "gpgpu_n_cores_per_cluster": "1",
    "gpgpu_max_cycle": "0",
    "gpgpu_kernel_launch_latency": "1000",
}


@dataclass(frozen=True)
class _Launch:
    """A launch as both files have it; ``number`` is its id for simulators, from 1."""

    number: int
    kernel: str
    grid: str
    block: str
    blocks: int
    shared_bytes: int
    registers: int
    cycles: int
    instructions: int

    def header(self) -> str:
        """The lines that a trace begins with and the simulator repeats."""
        return (
            f"-kernel name = {self.kernel}\n-kernel id = {self.number}\n-grid dim = {self.grid}\n"
            f"-block dim = {self.block}\n-shmem = {self.shared_bytes}\n-nregs = {self.registers}\n"
            "-binary version = 70\n-cuda stream id = 0\n"
        )


def trace_files(recording: Launches) -> Iterator[tuple[str, str]]:
    """Names and texts of the traces of all launches, and of their list."""
    names = []
    for launch in _launches(recording):
        name = f"kernel-{launch.number}.traceg"
        names.append(name)
        yield name, f"{launch.header()}-assay = {_NOTICE}\n#traces format = (no instructions)\n"
    yield LIST_NAME, "".join(f"{name}\n" for name in names)


def simulator_log(recording: Launches) -> Iterator[str]:
    """The pieces of a log of all launches, one after the other."""
    yield f"{_NOTICE}\n        *** GPGPU-Sim Simulator Version 4.2.0  [build assay-samples] ***\n"
    yield "GPGPU-Sim: Configuration options:\n\n"
    yield "".join(f"-{name:<30} {value} # \n" for name, value in _OPTIONS.items())
    cycles = instructions = blocks = 0
    for launch in _launches(recording):
        cycles += launch.cycles
        instructions += launch.instructions
        blocks += launch.blocks
        yield (
            f"Processing kernel traces/kernel-{launch.number}.traceg\n{launch.header()}"
            f"launching kernel name: {launch.kernel} uid: {launch.number} cuda_stream_id: 0\n"
            f"kernel_name = {launch.kernel} \nkernel_launch_uid = {launch.number} \n"
            f"gpu_sim_cycle = {launch.cycles}\ngpu_sim_insn = {launch.instructions}\n"
            f"gpu_tot_sim_cycle = {cycles}\ngpu_tot_sim_insn = {instructions}\n"
            f"gpu_tot_issued_cta = {blocks}\n"
            f"gpgpu_simulation_time = 0 days, 0 hrs, 0 min, 0 sec ({_SECONDS_A_LAUNCH * launch.number} sec)\n"
        )
    yield "GPGPU-Sim: *** simulation thread exiting ***\nGPGPU-Sim: *** exit detected ***\n"


def _launches(recording: Launches) -> Iterator[_Launch]:
    """The launches of one process of a recording with cycles and instructions."""
    kernel_id = recording.column("kernel_id")
    _, first, kind = np.unique(kernel_id, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[kind]
    errors = np.array(_ERRORS_PERCENT)[rank % len(_ERRORS_PERCENT)]
    shapes = [recording.column(name) for name in SHAPE_COLUMNS]
    columns = (
        recording.column("launch") + 1,
        kernel_id,
        *shapes,
        recording.column("shared_memory_bytes"),
        recording.column("registers_per_thread"),
        np.rint(recording.column("cycles_gpc_avg") * (1 + errors / 100)).astype(np.int64),
        np.rint(recording.column("instructions") * _WARP_THREADS).astype(np.int64),
    )
    for number, kernel, *shape, shared, registers, cycles, instructions in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        yield _Launch(
            number,
            recording.names[kernel],
            "({},{},{})".format(*shape[:3]),
            "({},{},{})".format(*shape[3:]),
            shape[0] * shape[1] * shape[2],
            shared,
            registers,
            cycles,
            instructions,
        )
