"""Whether a GPU is lost: by the failure of a run, by NVML, and whether the box was repaired since.

A failed kernel (CUDA error 719, say) is most often the workload's own fault, and proves nothing about the
GPU, so NVML is asked. Sources: docs/nvidia-tools.md, "NVML" (errors 15 and 16); NVIDIA, "XID Errors" (which
ones call for a reset of the GPU).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay_agent.gpus.nvml_sensors import NvmlSensors
from assay_agent.gpus.sensors import SensorError
from assay_core.records.failure import Failure
from assay_sampling.running.failures import FailureClass

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
# Tools print these only for a lost GPU.
_CERTAIN = re.compile(
    r"GPU (is|has been) lost|fallen off the bus|uncorrectable ECC|CUDA error 214\b|GPU requires reset",
    re.IGNORECASE,
)
_DOUBTFUL = (FailureClass.GPU_UNHEALTHY, FailureClass.DRIVER_UNUSABLE, FailureClass.HANG)
_PROC, _SYS = Path("/proc"), Path("/sys")
# A kernel thread that NVIDIA's driver starts when it is loaded.
_DRIVER_THREAD = "nv_queue"
_START_FIELD = 19  # of /proc/PID/stat, counted behind the name: when the process began, in ticks after boot


def evidence_of_sensors(telemetry: Mapping[str, Any] | None) -> str:
    """Why the GPU of a run is certainly lost, "" if the summary of its sensors does not show it."""
    summary = telemetry or {}
    if summary.get("lost"):
        return str(summary.get("problem") or "the driver lost it")
    for number in summary.get("xid_events", ()):
        if number in RESET_XIDS:
            return f"XID {number}: {RESET_XIDS[number]}"
    errors = summary.get("ecc_uncorrected") or 0
    if errors:
        return f"{errors:,} uncorrectable memory errors (ECC)"
    return ""


def evidence_of_tools(problem: Failure | None) -> str:
    """The cause of a failure if a tool's message proves that the GPU is lost, else ""."""
    if problem is None or problem.failure_class not in _DOUBTFUL:
        return ""
    return problem.cause if _CERTAIN.search(problem.tool_said) else ""


def is_doubtful(problem: Failure | None) -> bool:
    """Whether a lost GPU may have caused a failure, so that NVML should be asked."""
    return problem is not None and problem.failure_class in _DOUBTFUL


def ask(gpu: str) -> str:
    """What is wrong with a GPU by NVML, "" if it answers and no error is pending. Never raises."""
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
    """Identifies this boot of the box, and this loading of NVIDIA's driver.

    "boot_id"; "driver_version" and "driver_started" (ticks after boot) if this process can see them.
    """
    facts = {
        "boot_id": _text(_PROC / "sys/kernel/random/boot_id"),
        "driver_version": _text(_SYS / "module/nvidia/version"),
        "driver_started": _driver_started(),
    }
    return {name: value for name, value in facts.items() if value}


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether the box was rebooted or its driver reloaded between two moments, as far as is known."""
    return any(before[name] != now[name] for name in before.keys() & now.keys())


def _driver_started() -> str:
    """When the first kernel thread of the driver began; "" if none is visible.

    In the kernel's ticks after boot: psutil gives a time of day, which moves when the clock is set.
    """
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
