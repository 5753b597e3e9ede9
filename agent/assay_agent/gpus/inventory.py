"""The inventory of a box: host, processors, memory, and its GPUs as NVML names them. Only reads.

Devices are keyed by UUID, in the order of the PCI bus. Source: docs/nvidia-tools.md, "NVML".
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import os
import socket
from typing import Any

from assay_agent.gpus.visible_devices import hidden
from assay_core.records.machine import InstalledDevice, Inventory
from assay_sampling.installation import install_command

_REASONS = {
    9: "the NVIDIA driver is not loaded",
    12: "no NVIDIA driver library on this box",
    18: "the NVIDIA driver was upgraded without being loaded again: reboot, or reload its kernel modules",
}
# "Not supported", "function not found" and "deprecated": this GPU or driver does not have the value.
_ABSENT = {3, 13, 26}
_PARTITIONED = (
    "it is partitioned (MIG): its instances share clocks, caches and counters, so a run on one measures its "
    "neighbours too; to measure the whole GPU: nvidia-smi -i {index} -mig 0, as root"
)
_CORES_PER_SM = {
    "6.0": 64, "6.1": 128, "6.2": 128, "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128,
    "8.9": 128, "9.0": 128, "10.0": 128, "10.3": 128, "12.0": 128, "12.1": 128,
}  # fmt: skip


def read_inventory() -> Inventory:
    """Look at this box. Never raises: the inventory names what could not be read."""
    inventory = Inventory(
        host=socket.gethostname(),
        agent_version=agent_version(),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    )
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        install = install_command("agent")
        reason = f"the Python module 'pynvml' is not installed; install it with: {install}"
        return dataclasses.replace(inventory, no_device_reason=reason)
    return _with_devices(inventory, nvml)


def agent_version() -> str:
    """The release of this program; empty if it was never installed."""
    try:
        return importlib.metadata.version("assay-gpu")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _with_devices(inventory: Inventory, nvml: Any) -> Inventory:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return dataclasses.replace(inventory, no_device_reason=_reason(error))
    try:
        devices = tuple(_device(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
        devices = tuple(
            _offered(device, reason) for device, reason in zip(devices, hidden(devices), strict=True)
        )
        return dataclasses.replace(
            inventory,
            devices=devices,
            driver_version=_text(_answer(nvml, "", nvml.nvmlSystemGetDriverVersion)),
            cuda_driver_version=_cuda_version(_answer(nvml, 0, nvml.nvmlSystemGetCudaDriverVersion_v2)),
            no_device_reason="" if devices else "the NVIDIA driver finds no GPU",
        )
    except nvml.NVMLError as error:
        return dataclasses.replace(inventory, no_device_reason=_reason(error))
    finally:
        nvml.nvmlShutdown()


def _device(nvml: Any, index: int) -> InstalledDevice:
    """One GPU; one that fell off the bus is listed with its problem instead of hiding the others."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = _answer(nvml, (0, 0), nvml.nvmlDeviceGetCudaComputeCapability, handle)
        capability = f"{major}.{minor}" if major else ""
        cores = _answer(nvml, 0, nvml.nvmlDeviceGetNumGpuCores, handle)
        memory = _answer(nvml, None, nvml.nvmlDeviceGetMemoryInfo, handle)
        mig_mode, _ = _answer(nvml, (0, 0), nvml.nvmlDeviceGetMigMode, handle)
        return InstalledDevice(
            index=index,
            name=_text(_answer(nvml, "", nvml.nvmlDeviceGetName, handle)),
            uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
            compute_capability=capability,
            sm_count=cores // _CORES_PER_SM[capability] if capability in _CORES_PER_SM else 0,
            memory_bytes=int(memory.total) if memory is not None else 0,
            left_out=_PARTITIONED.format(index=index) if mig_mode else "",
        )
    except nvml.NVMLError as error:
        return InstalledDevice(index, problem=_reason(error))


def _offered(device: InstalledDevice, hidden_reason: str) -> InstalledDevice:
    """The device, left out if the agent's environment hides it or it already was."""
    return dataclasses.replace(device, left_out=hidden_reason or device.left_out)


def _answer(nvml: Any, otherwise: Any, function: Any, *arguments: Any) -> Any:
    """The answer of an NVML function, or ``otherwise`` if this GPU or driver does not have it."""
    try:
        return function(*arguments)
    except nvml.NVMLError as error:
        if error.value in _ABSENT:
            return otherwise
        raise


def _reason(error: Any) -> str:
    return _REASONS.get(error.value, f"NVML error {error.value}: {error}")


def _text(value: str | bytes) -> str:
    # Very old releases of the bindings give bytes.
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""
