"""Where the driver's libraries are found through LD_LIBRARY_PATH alone, tools must get it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.daemon.places import installed_places
from assay_agent.execution.environment import MeasuredGPU, tool_environment
from assay_agent.profilers.bare import BareProfiler
from assay_core.records.attempt import AttemptKey
from assay_core.records.machine import InstalledDevice, Inventory
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import BASELINE, Device

WORK = Work(
    key=AttemptKey("c.0", 0, 1, 1),
    campaign_id="c",
    workload="w",
    device_kind="H100",
    level="bare",
    condition=BASELINE,
    profiler="bare",
    command=CommandSource(("x",), {}),
)
GPU = MeasuredGPU(Device(0, "H100", "GPU-1", "9.0", 132), path="/bin")


def libraries(agents: str, campaigns: str) -> str | None:
    gpu = replace(GPU, variables={"LD_LIBRARY_PATH": agents} if agents else {})
    given = {"LD_LIBRARY_PATH": campaigns} if campaigns else {}
    work = replace(WORK, command=CommandSource(("x",), given))
    return tool_environment(gpu, Path("/h"), Path("/t"), work).get("LD_LIBRARY_PATH")


@pytest.mark.parametrize(
    ("agents", "campaigns", "joined"),
    [("", "", None), ("/driver", "", "/driver"), ("", "/own", "/own"), ("/driver", "/own", "/own:/driver")],
)
def test_a_campaign_adds_libraries_before_the_driver(agents: str, campaigns: str, joined: str | None) -> None:
    assert libraries(agents, campaigns) == joined


def test_an_agent_hands_its_own_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = InstalledDevice(0, "NVIDIA H100 80GB HBM3", "GPU-1", "9.0", 132, 1 << 36)
    inventory = Inventory("host", "1", 1, 1, (device,))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64")
    monkeypatch.setenv("LD_PRELOAD", "/evil.so")
    (place,) = installed_places(inventory, tmp_path)
    profiler = place.profilers["bare"]
    assert isinstance(profiler, BareProfiler)
    made = tool_environment(profiler._gpu, Path("/h"), Path("/t"), WORK)
    assert made["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert "LD_PRELOAD" not in made
    monkeypatch.delenv("LD_LIBRARY_PATH")
    (place,) = installed_places(inventory, tmp_path)
    assert isinstance(place.profilers["bare"], BareProfiler)
    assert place.profilers["bare"]._gpu.variables == {}
