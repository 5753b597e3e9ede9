"""Where the driver's libraries are found through LD_LIBRARY_PATH alone, tools must get it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.inventory import InstalledDevice, Inventory
from assay_agent.places import installed_places
from assay_agent.profilers.bare import BareProfiler
from assay_agent.profilers.environment import MeasuredGPU, tool_environment
from assay_agent.work import Assignment, AttemptKey, CommandSource
from assay_sampling.launch_table import BASELINE, Device

WORK = Assignment(
    AttemptKey("c.0", 0, 1, 1), "c", "w", "H100", "light", BASELINE, "bare", bare=True,
    command=CommandSource(("x",), {}),
)  # fmt: skip
GPU = MeasuredGPU(Device(0, "H100", "GPU-1", "9.0", 132), synthetic=False, path="/bin")


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
