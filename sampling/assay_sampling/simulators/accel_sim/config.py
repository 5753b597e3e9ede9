"""The simulated GPU, as GPGPU-Sim echoes its options at the start of a log.

Nothing here assumes a GPU: an option that a log does not echo is None. Source: docs/simulator-files.md,
"Options"; GPGPU-Sim's ``shader_core_config::max_cta``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Options that end a simulation early; totals over the run, 0 is off.
EARLY_STOPS = ("gpgpu_max_cycle", "gpgpu_max_insn", "gpgpu_max_cta", "gpgpu_max_completed_cta")


@dataclass(frozen=True)
class SimulatorConfig:
    """The facts about a simulated GPU that projection needs; None where the log does not say.

    ``ctas_per_sm_limit`` is the most blocks that an SM may hold; ``interval_cycles`` the sampling interval
    of the interval log; ``compute_capability`` is ""
    where unknown; ``early_stops`` the options that may have ended the run before its last launch.
    """

    sms: int | None = None
    threads_per_sm: int | None = None
    warp_size: int | None = None
    registers_per_sm: int | None = None
    shared_bytes_per_sm: int | None = None
    ctas_per_sm_limit: int | None = None
    launch_latency_cycles: int | None = None
    interval_cycles: int | None = None
    memory_channels: int | None = None
    compute_capability: str = ""
    core_clock_mhz: float | None = None
    early_stops: tuple[str, ...] = ()

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> SimulatorConfig:
        """A configuration from texts of options, named without their leading dash."""
        clusters = _number(options.get("gpgpu_n_clusters"))
        cores = _number(options.get("gpgpu_n_cores_per_cluster"))
        pipeline = options.get("gpgpu_shader_core_pipeline", "").split(":")
        return cls(
            sms=None if clusters is None or cores is None else clusters * cores,
            threads_per_sm=_number(pipeline[0]),
            warp_size=_number(pipeline[1]) if len(pipeline) > 1 else None,
            registers_per_sm=_number(options.get("gpgpu_shader_registers")),
            shared_bytes_per_sm=_number(options.get("gpgpu_shmem_size")),
            ctas_per_sm_limit=_number(options.get("gpgpu_shader_cta")),
            launch_latency_cycles=_number(options.get("gpgpu_kernel_launch_latency")),
            interval_cycles=_number(options.get("gpgpu_runtime_stat", "").partition(":")[0]),
            memory_channels=_number(options.get("gpgpu_n_mem")),
            compute_capability=_capability(options),
            core_clock_mhz=_clock(options.get("gpgpu_clock_domains", "")),
            early_stops=tuple(name for name in EARLY_STOPS if _number(options.get(name))),
        )

    def resident_ctas(self, block_threads: int, registers: int, shared_bytes: int) -> int | None:
        """The most blocks that one SM holds, as the simulator computes it; None if an option is unknown.

        Args:
            block_threads: threads of a block.
            registers: registers of a thread.
            shared_bytes: static and dynamic shared memory of a block.
        """
        limits = (self.threads_per_sm, self.warp_size, self.registers_per_sm, self.ctas_per_sm_limit)
        if any(not limit for limit in limits) or block_threads < 1:
            return None
        threads_per_sm, warp_size, registers_per_sm, most = (int(limit or 0) for limit in limits)
        threads = -(-block_threads // warp_size) * warp_size
        bounds = [most, threads_per_sm // threads]
        if registers > 0:
            bounds.append(registers_per_sm // (threads * ((registers + 3) & ~3)))
        if shared_bytes > 0:
            if self.shared_bytes_per_sm is None:
                return None
            bounds.append(self.shared_bytes_per_sm // shared_bytes)
        return min(bounds)

    def gpu_name(self) -> str:
        """What to call the simulated GPU: a log names no product, so by what it echoes of it."""
        chip = f"sm_{self.compute_capability.replace('.', '')}" if self.compute_capability else "GPU"
        facts = [
            f"{self.sms} SMs" if self.sms else "",
            f"{self.memory_channels} memory channels" if self.memory_channels else "",
            f"{self.core_clock_mhz:g} MHz" if self.core_clock_mhz else "",
        ]
        details = ", ".join(fact for fact in facts if fact)
        return f"simulated {chip}" + (f" ({details})" if details else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "sms": self.sms,
            "memory_channels": self.memory_channels,
            "launch_latency_cycles": self.launch_latency_cycles,
            "interval_cycles": self.interval_cycles,
        }


def _capability(options: Mapping[str, str]) -> str:
    major, minor = (_number(options.get(f"gpgpu_compute_capability_{part}")) for part in ("major", "minor"))
    return "" if major is None or minor is None else f"{major}.{minor}"


def _clock(domains: str) -> float | None:
    """The first of "core:interconnect:L2:DRAM", in MHz."""
    match = re.match(r"\s*(\d{1,9}(?:\.\d{1,6})?)(?=:)", domains)
    return float(match[1]) if match else None


def _number(text: str | None) -> int | None:
    match = re.match(r"\s*(\d{1,15})(?!\d)", text or "")
    return int(match[1]) if match else None
