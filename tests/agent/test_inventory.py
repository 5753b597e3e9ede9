"""The inventory says what a box has, or why it has no GPU, whatever NVML answers."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from assay_agent.gpus.inventory import read_inventory
from assay_core.records.machine import InstalledDevice


class FakeNvml:
    """NVML as its Python bindings show it, with the errors of the real ones."""

    NVMLError = pynvml.NVMLError

    def __init__(self, **answers: Any) -> None:
        self.shut_down = 0
        self._answers = {
            "nvmlInit": None,
            "nvmlDeviceGetCount": 2,
            "nvmlSystemGetDriverVersion": "570.86.15",
            "nvmlSystemGetCudaDriverVersion_v2": 12080,
            "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
            "nvmlDeviceGetName": b"NVIDIA A100-SXM4-80GB",
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle[-1]}",
            "nvmlDeviceGetCudaComputeCapability": (8, 0),
            "nvmlDeviceGetNumGpuCores": 6912,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=85_899_345_920),
            "nvmlDeviceGetMigMode": (0, 0),
            **answers,
        }

    def nvmlShutdown(self) -> None:
        self.shut_down += 1

    def __getattr__(self, name: str) -> Any:
        if name not in self._answers:
            raise AttributeError(name)
        answer = self._answers[name]

        def function(*arguments: Any) -> Any:
            if isinstance(answer, int) and name != "nvmlDeviceGetCount" and answer < 0:
                raise pynvml.NVMLError(-answer)
            return answer(*arguments) if callable(answer) else answer

        return function


def inventory_with(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> Any:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    assert importlib.import_module("pynvml") is nvml
    return read_inventory()


def test_devices_are_named_by_uuid_in_the_order_of_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    found = inventory_with(monkeypatch, nvml)
    assert found.devices == tuple(
        InstalledDevice(i, "NVIDIA A100-SXM4-80GB", f"GPU-{i}", "8.0", 108, 85_899_345_920) for i in (0, 1)
    )
    assert (found.driver_version, found.cuda_driver_version) == ("570.86.15", "12.8")
    assert found.no_device_reason == ""
    assert nvml.shut_down == 1
    proto = found.to_proto()
    assert [(d.index, d.uuid, d.sm_count) for d in proto.devices] == [(0, "GPU-0", 108), (1, "GPU-1", 108)]
    assert (proto.cpu_count, proto.memory_bytes) == (found.cpu_count, found.memory_bytes)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (12, "no NVIDIA driver library on this box"),
        (9, "the NVIDIA driver is not loaded"),
        (
            18,
            "the NVIDIA driver was upgraded without being loaded again: reboot, or reload its kernel modules",
        ),
        (4, "NVML error 4: Insufficient Permissions"),
    ],
)
def test_a_box_without_a_driver_says_why(monkeypatch: pytest.MonkeyPatch, error: int, reason: str) -> None:
    found = inventory_with(monkeypatch, FakeNvml(nvmlInit=-error))
    assert (found.devices, found.no_device_reason) == ((), reason)


def test_a_driver_that_finds_no_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = inventory_with(monkeypatch, FakeNvml(nvmlDeviceGetCount=0))
    assert found.no_device_reason == "the NVIDIA driver finds no GPU"


@pytest.mark.parametrize("absent", [3, 13, 26])
def test_what_an_old_driver_does_not_say_is_left_open(monkeypatch: pytest.MonkeyPatch, absent: int) -> None:
    names = (
        "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetMigMode",
    )  # fmt: skip
    nvml = FakeNvml(**dict.fromkeys((*names, "nvmlSystemGetCudaDriverVersion_v2"), -absent))
    found = inventory_with(monkeypatch, nvml)
    assert found.devices[1] == InstalledDevice(1, "NVIDIA A100-SXM4-80GB", "GPU-1", "", 0, 0)
    assert found.cuda_driver_version == ""


def test_a_gpu_of_an_unknown_architecture_has_no_sm_count(monkeypatch: pytest.MonkeyPatch) -> None:
    found = inventory_with(monkeypatch, FakeNvml(nvmlDeviceGetCudaComputeCapability=(99, 1)))
    assert (found.devices[0].compute_capability, found.devices[0].sm_count) == ("99.1", 0)


def test_a_lost_gpu_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def uuid(handle: str) -> str:
        if handle.endswith("0"):
            raise pynvml.NVMLError(15)
        return "GPU-1"

    found = inventory_with(monkeypatch, FakeNvml(nvmlDeviceGetUUID=uuid))
    assert found.devices[0].problem == "NVML error 15: GPU is lost"
    assert found.devices[1].uuid == "GPU-1"


def test_a_gpu_in_parts_is_left_out_with_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    found = inventory_with(monkeypatch, FakeNvml(nvmlDeviceGetMigMode=lambda handle: (int(handle[-1]), 0)))
    assert found.devices[0].left_out == ""
    assert found.devices[1].left_out.startswith("it is partitioned (MIG)")
    assert "nvidia-smi -i 1 -mig 0" in found.devices[1].left_out
