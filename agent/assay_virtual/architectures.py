"""The GPUs that can be modelled: their published figures, and what the model assumes.

Published (NVIDIA's architecture whitepapers, product pages and the CUDA programming guide's table of compute
capabilities): SMs, clocks, memory, L2 size, DRAM bandwidth, limits of an SM. Assumed, because no vendor
states them: L2 bytes per cycle of the two GeForce parts, latencies, launch cost, SYS clock. Nothing here was
fitted to a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay_sampling.errors import ParameterError

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
SMS_PER_TPC = 2


@dataclass(frozen=True)
class Architecture:
    """One kind of GPU. Limits of an SM: warps, blocks, registers, shared memory, issue slots per cycle."""

    kind: str
    chip: str
    compute_capability: str
    sm_count: int
    base_clock_hz: int
    boost_clock_hz: int
    memory_bytes: int
    dram_bytes_per_second: float
    l2_bytes: int
    l2_bytes_per_cycle: float
    warps_per_sm: int
    blocks_per_sm: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    shared_bytes_reserved: int
    launch_ns: float
    dram_latency_ns: float
    l2_latency_cycles: float
    registers_per_sm: int = 65536
    issue_per_cycle: float = 4.0

    @property
    def sys_clock_hz(self) -> float:
        """Clock of the SYS domain, which is independent of the SM clock."""
        return 0.85 * self.boost_clock_hz

    @property
    def identifier(self) -> str:
        """The kind without blanks, for UUIDs and file names."""
        return self.kind.replace(" ", "-")


_ALL = (
    Architecture(
        "V100", "gv100", "7.0", sm_count=80, base_clock_hz=1_312_000_000, boost_clock_hz=1_530_000_000,
        memory_bytes=16 * _GIB, dram_bytes_per_second=897e9, l2_bytes=6 * _MIB, l2_bytes_per_cycle=2048.0,
        warps_per_sm=64, blocks_per_sm=32, shared_bytes_per_sm=96 * _KIB, shared_bytes_per_block=96 * _KIB,
        shared_bytes_reserved=0, launch_ns=1600.0, dram_latency_ns=400.0, l2_latency_cycles=210.0,
    ),
    Architecture(
        "RTX 2060", "tu106", "7.5", sm_count=30, base_clock_hz=1_365_000_000, boost_clock_hz=1_680_000_000,
        memory_bytes=6 * _GIB, dram_bytes_per_second=336e9, l2_bytes=3 * _MIB, l2_bytes_per_cycle=768.0,
        warps_per_sm=32, blocks_per_sm=16, shared_bytes_per_sm=64 * _KIB, shared_bytes_per_block=64 * _KIB,
        shared_bytes_reserved=0, launch_ns=1300.0, dram_latency_ns=430.0, l2_latency_cycles=215.0,
    ),
    Architecture(
        "RTX 3070", "ga104", "8.6", sm_count=46, base_clock_hz=1_500_000_000, boost_clock_hz=1_725_000_000,
        memory_bytes=8 * _GIB, dram_bytes_per_second=448e9, l2_bytes=4 * _MIB, l2_bytes_per_cycle=1024.0,
        warps_per_sm=48, blocks_per_sm=16, shared_bytes_per_sm=100 * _KIB, shared_bytes_per_block=99 * _KIB,
        shared_bytes_reserved=_KIB, launch_ns=1250.0, dram_latency_ns=450.0, l2_latency_cycles=225.0,
    ),
    Architecture(
        "A100", "ga100", "8.0", sm_count=108, base_clock_hz=1_095_000_000, boost_clock_hz=1_410_000_000,
        memory_bytes=40 * _GIB, dram_bytes_per_second=1555e9, l2_bytes=40 * _MIB, l2_bytes_per_cycle=5120.0,
        warps_per_sm=64, blocks_per_sm=32, shared_bytes_per_sm=164 * _KIB, shared_bytes_per_block=163 * _KIB,
        shared_bytes_reserved=_KIB, launch_ns=1700.0, dram_latency_ns=470.0, l2_latency_cycles=220.0,
    ),
    Architecture(
        "H100", "gh100", "9.0", sm_count=132, base_clock_hz=1_590_000_000, boost_clock_hz=1_980_000_000,
        memory_bytes=80 * _GIB, dram_bytes_per_second=3350e9, l2_bytes=50 * _MIB, l2_bytes_per_cycle=5120.0,
        warps_per_sm=64, blocks_per_sm=32, shared_bytes_per_sm=228 * _KIB, shared_bytes_per_block=227 * _KIB,
        shared_bytes_reserved=_KIB, launch_ns=1500.0, dram_latency_ns=490.0, l2_latency_cycles=260.0,
    ),
)  # fmt: skip
ARCHITECTURES: dict[str, Architecture] = {entry.kind: entry for entry in _ALL}
COMPUTE_CAPABILITIES: tuple[str, ...] = tuple(entry.compute_capability for entry in _ALL)


def architecture(kind: str) -> Architecture:
    """The GPU of that name; case, blanks, dashes and a leading "virtual" do not matter.

    Raises ParameterError for a kind that does not exist.
    """
    wanted = _plain(kind).removeprefix("virtual")
    for entry in _ALL:
        if _plain(entry.kind) == wanted:
            return entry
    raise ParameterError(
        "virtual GPU", f"there is no kind {kind!r}", f"use one of {', '.join(ARCHITECTURES)}"
    )


def _plain(kind: str) -> str:
    return "".join(c for c in kind.casefold() if c.isalnum())
