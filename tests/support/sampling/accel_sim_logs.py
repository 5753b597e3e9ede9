"""Logs in the layout of Accel-Sim, made by hand for tests: short, and with every number known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OPTIONS = {
    "gpgpu_shader_core_pipeline": "2048:32",
    "gpgpu_shader_registers": "65536",
    "gpgpu_shader_cta": "32",
    "gpgpu_n_clusters": "4",
    "gpgpu_n_cores_per_cluster": "2",
    "gpgpu_shmem_size": "98304",
    "gpgpu_n_mem": "3",
    "gpgpu_max_cycle": "0",
    "gpgpu_max_completed_cta": "0",
    "gpgpu_runtime_stat": "100:0",
    "gpgpu_kernel_launch_latency": "200",
}
EXIT = "GPGPU-Sim: *** simulation thread exiting ***\nGPGPU-Sim: *** exit detected ***\n"
BREAK = "GPGPU-Sim: ** break due to reaching the maximum cycles (or instructions) **\n"


@dataclass
class Launch:
    """One launch as the log shows it; counters are of this launch alone. ``counted`` are further statistics
    by the name that the log prints, a breakdown of a cache by stream."""

    name: str = "_Z4kernPf"
    traced_id: int = 1
    grid: tuple[int, int, int] = (16, 2, 1)
    block: tuple[int, int, int] = (256, 1, 1)
    registers: int = 16
    shared_bytes: int = 0
    cycles: int = 1000
    instructions: int = 50_000
    issued: int | None = None
    printed_ctas_per_sm: int | None = 8
    l2: tuple[int, int] = (100, 40)
    reads: Sequence[int] = (10, 20, 30)
    seconds: int = 2
    stream: int = 0
    counted: Mapping[str, int] = field(default_factory=dict)

    @property
    def ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2] if self.issued is None else self.issued


@dataclass
class Totals:
    """What the simulator has counted so far."""

    cycles: int = 0
    instructions: int = 0
    ctas: int = 0
    accesses: int = 0
    misses: int = 0
    seconds: int = 0
    reads: list[int] = field(default_factory=lambda: [0, 0, 0])
    counted: Counter[tuple[str, int]] = field(default_factory=Counter)


def options(**changed: str) -> str:
    """The echo of the options at the start of a log."""
    lines = [f"-{name:<30} {value} # what it is for" for name, value in {**OPTIONS, **changed}.items()]
    return "GPGPU-Sim: Configuration options:\n\n-network_mode   2 # network\n" + "\n".join(lines) + "\n"


def header(launch: Launch, uid: int) -> str:
    """What the log says before a launch runs."""
    dims = ["({},{},{})".format(*axes) for axes in (launch.grid, launch.block)]
    text = (
        f"Processing kernel traces/kernel-{launch.traced_id}.traceg\n-kernel name = {launch.name}\n"
        f"-kernel id = {launch.traced_id}\n-grid dim = {dims[0]}\n-block dim = {dims[1]}\n"
        f"-shmem = {launch.shared_bytes}\n-nregs = {launch.registers}\n-cuda stream id = {launch.stream}\n"
        f"launching kernel name: {launch.name} uid: {uid} cuda_stream_id: {launch.stream}\n"
        f"GPGPU-Sim uArch: Shader 0 bind to kernel {uid} '{launch.name}'\n"
    )
    if launch.printed_ctas_per_sm is not None:
        text += f"GPGPU-Sim uArch: CTA/core = {launch.printed_ctas_per_sm}, limited by: threads\n"
    return text + "thread block = 0,0,0\nthread block = 1,0,0\n"


def statistics(launch: Launch, uid: int, totals: Totals) -> str:
    """What the log says after a launch; ``totals`` grow by it."""
    totals.cycles += launch.cycles
    totals.instructions += launch.instructions
    totals.ctas += launch.ctas
    totals.accesses += launch.l2[0]
    totals.misses += launch.l2[1]
    totals.seconds += launch.seconds
    totals.reads = [a + b for a, b in zip(totals.reads, launch.reads, strict=True)]
    counted = ""
    for name, count in launch.counted.items():
        key = name, launch.stream if "breakdown" in name else 0
        totals.counted[key] += count
        counted += f"{name} = {totals.counted[key]}\n"
    half = [f"dram[{i}]: {reads // 2:9d} {reads - reads // 2:9d} " for i, reads in enumerate(totals.reads)]
    return (
        f"kernel_name = {launch.name} \nkernel_launch_uid = {uid} \nkernel_stream_id = {launch.stream}\n"
        f"gpu_sim_cycle = {launch.cycles}\ngpu_sim_insn = {launch.instructions}\ngpu_ipc =     1.0000\n"
        f"gpu_tot_sim_cycle = {totals.cycles}\ngpu_tot_sim_insn = {totals.instructions}\n"
        f"gpu_tot_ipc =     1.0000\ngpu_tot_issued_cta = {totals.ctas}\ngpu_occupancy = -nan% \n"
        f"{counted}maximum concurrent accesses to same row:\ndram[0]:        77        78 \n"
        "number of total memory accesses made:\ndram[0]:         7         9 \ntotal accesses: 0\n"
        "number of total read accesses:\n" + "\n".join(half) + f"\ntotal dram reads = {sum(totals.reads)}\n"
        "number of total write accesses:\ndram[0]:         0         0 \ndram[1]:         0         1 \n"
        "dram[2]:         0         0 \ntotal dram writes = 1\naverage mf latency per bank:\n"
        "dram[0]:        99        99 \nL2_cache_bank[0]: Access = 768, Miss = 768\n"
        f"L2_total_cache_accesses = {totals.accesses}\nL2_total_cache_misses = {totals.misses}\n"
        f"L2_total_cache_miss_rate = 0.5000\n"
        f"gpgpu_simulation_time = 0 days, 0 hrs, 0 min, {totals.seconds} sec ({totals.seconds} sec)\n"
        "gpgpu_simulation_rate = 84811 (inst/sec)\n"
    )


def output(launches: Sequence[Launch], ending: str = EXIT, **changed: str) -> str:
    """A whole log of launches that ran one after the other."""
    totals = Totals()
    parts = [options(**changed)]
    for uid, launch in enumerate(launches, start=1):
        parts += [header(launch, uid), statistics(launch, uid, totals)]
    return "".join(parts) + ending


def two_streams() -> str:
    """A log of two streams: the simulator reads three headers, starts two launches, and then the third."""
    launches = [Launch(name=f"k{i}", traced_id=10 + i, grid=(i + 1, 1, 1)) for i in range(3)]
    headers = [header(launch, uid).split("launching") for uid, launch in enumerate(launches, start=1)]
    echoed, started = zip(*((echo, f"launching{start}") for echo, start in headers), strict=True)
    started = tuple(
        text.replace("cuda_stream_id: 0", f"cuda_stream_id: {i % 2}") for i, text in enumerate(started)
    )
    totals = Totals()
    ended = [statistics(launches[i], i + 1, totals) for i in (1, 0, 2)]
    return options() + "".join([*echoed, started[0], started[1], ended[0], started[2], *ended[1:], EXIT])


def sample(
    cycles: int,
    instructions: int,
    ctas: int,
    *,
    before: int = 0,
    l2: tuple[int, int, int, int] = (0, 0, 0, 0),
    dram: Sequence[int] = (10, 20, 30),
) -> str:
    """One block of an interval log; ``l2`` is write miss, write hit, read miss, read hit."""
    channels = "".join(f"dramnreq: {i} 5\ndramutil: {i} {percent}\n" for i, percent in enumerate(dram))
    return (
        f"ShdrCTACount: 8 8 \n{channels}WarpDivergenceBreakdown: 5 0\nctas_completed: {ctas}\n"
        f"shaderinsncount:  1 2 \nLtwowritemiss: {l2[0]}\nLtwowritehit: {l2[1]}\nLtworeadmiss: {l2[2]}\n"
        f"Ltworeadhit: {l2[3]}\nglobalcyclecount: {cycles}\nglobalinsncount: {instructions}\n"
        f"globaltotinsncount: {before}\nLDmemlatdist: 0 0\n"
    )
