"""Whether a GPU is lost: what a failed run says of it, what NVML says of it, and what a repair changes.

That a kernel failed (CUDA error 719, say) is most often the workload's own fault, and proves nothing about
the GPU: NVML is asked. Sources: notes on Nsight Compute, Nsight Systems, MPS and NVML, sections 5 (errors 15
and 16) and 6c ("GPU unhealthy: quarantine"); NVIDIA, "XID Errors" (which ones call for a reset of the GPU).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay_agent.telemetry.nvml_sensors import NvmlSensors
from assay_agent.telemetry.sensors import SensorError
from assay_sampling.failures import Failure, FailureClass

# XIDs after which a GPU needs a reset or worse; those of faulty programs (13, 31, 43, 45) are not among them.
RESET_XIDS: Mapping[int, str] = {
    46: "it stopped processing",
    48: "an uncorrectable memory error",
    62: "its microcontroller halted",
    64: "a faulty memory row could not be retired",
    79: "it fell off the bus",
    95: "an uncontained memory error",
    119: "its system processor does not answer",
    120: "its system processor failed",
    140: "an unrecovered memory error",
}
# What tools say only of a GPU that is gone.
_CERTAIN = re.compile(
    r"GPU (is|has been) lost|fallen off the bus|uncorrectable ECC|CUDA error 214\b|GPU requires reset",
    re.IGNORECASE,
)
_DOUBTFUL = (FailureClass.GPU_UNHEALTHY, FailureClass.DRIVER_UNUSABLE, FailureClass.HANG)
_PROC, _SYS = Path("/proc"), Path("/sys")
# A kernel thread that NVIDIA's driver starts when it is loaded.
_DRIVER_THREAD = "nv_queue"
_START_FIELD = 19  # of /proc/PID/stat, counted behind the name: when the process began, in ticks after boot


def evidence(problem: Failure | None, telemetry: Mapping[str, Any] | None) -> str:
    """Why the GPU of a run is lost for certain, "" where nothing says so for certain.

    ``problem`` is how the run failed (None: it did not), ``telemetry`` the summary of its sensors.
    """
    seen = telemetry or {}
    if seen.get("lost"):
        told = str(seen.get("problem") or "the driver lost it")
        return told.removeprefix(f"GPU {seen.get('gpu')}: ")
    for number in seen.get("xid_events", ()):
        if number in RESET_XIDS:
            return f"XID {number}: {RESET_XIDS[number]}"
    errors = seen.get("ecc_uncorrected") or 0
    if errors:
        return f"{errors:,} uncorrectable memory errors (ECC)"
    if problem is not None and problem.failure_class in _DOUBTFUL and _CERTAIN.search(problem.cause):
        return problem.cause
    return ""


def is_doubtful(problem: Failure | None) -> bool:
    """Whether a failure may have come from a GPU that is lost, so that it is worth asking for."""
    return problem is not None and problem.failure_class in _DOUBTFUL


def ask(gpu: str) -> str:
    """What NVML has to say against a GPU now, "" where it answers and no error is pending. Never raises."""
    try:
        sensors = NvmlSensors(gpu)
    except SensorError as error:
        return f"{error.cause}"
    try:
        sensors.read()
        return sensors.pending_error()
    except SensorError as error:
        return f"{error.cause}"
    finally:
        sensors.close()


def machine() -> dict[str, str]:
    """What tells one boot of the box, and one loading of NVIDIA's driver, from the next.

    "boot_id"; "driver_version" and "driver_started" (ticks after boot) where this process can see them.
    """
    found = {
        "boot_id": _text(_PROC / "sys/kernel/random/boot_id"),
        "driver_version": _text(_SYS / "module/nvidia/version"),
        "driver_started": _driver_started(),
    }
    return {name: value for name, value in found.items() if value}


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether the box was booted, or its driver loaded, in between, by what is known of both moments."""
    return any(before[name] != now[name] for name in before.keys() & now.keys())


def _driver_started() -> str:
    """When the first kernel thread of the driver began; "" where there is none to be seen."""
    began = []
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            # Names of processes are bytes, and cut in the middle of a character where they are long.
            name, _, rest = path.read_text(errors="replace").partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name == _DRIVER_THREAD:
            began.append(int(rest.split()[_START_FIELD]))
    return str(min(began)) if began else ""


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
