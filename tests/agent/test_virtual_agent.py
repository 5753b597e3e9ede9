"""An agent with virtual GPUs: what it offers, whole runs over the wire, and death at any moment."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from assay_agent.config import AgentSettings, VirtualGPUs
from assay_agent.daemon.agent import Agent
from assay_agent.daemon.places import installed_places
from assay_agent.main import app
from assay_core.records.machine import InstalledDevice, Inventory
from assay_sampling.errors import ParameterError
from assay_sampling.launches.table import table_metadata
from tests.support.agent.fake_server import FakeServer, wait_for
from tests.support.agent.tool_bench import WORKLOAD
from tests.support.agent.virtual_runs import add
from tests.support.machine.commands import running_commands

NO_GPU = Inventory("host", "0", 2, 1 << 30, no_device_reason="none here")
FEATURES = ["cycles_gpc_avg", "instructions", "global_load_sectors"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(WORKLOAD)
    return tmp_path


@contextmanager
def running(server: FakeServer, state: Path, *virtual: str, recorded_slots: int = 0) -> Iterator[Agent]:
    config = AgentSettings(
        server=server.address,
        state_dir=state,
        name="box",
        recorded_slots=recorded_slots,
        virtual=tuple(VirtualGPUs.parse(text) for text in virtual),
        minimum_free_bytes=0,
    )
    agent = Agent(config, inventory=lambda: NO_GPU)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield agent
    finally:
        agent.stop(0)
        thread.join(90)
        assert not thread.is_alive()


def test_virtual_gpus_are_offered_as_slots_of_their_own(server: FakeServer, tmp_path: Path) -> None:
    with running(server, tmp_path / "state", "v100", "RTX 2060:2", recorded_slots=1):
        wait_for(lambda: server.registrations)
    agent = server.registrations[0].agent_id[:8]
    assert len(agent) == 8
    slots = {slot.slot_id.removesuffix(f"-{agent}"): slot for slot in server.registrations[0].slots}
    assert list(slots) == [
        "recorded-0", "GPU-virtual-V100-0", "GPU-virtual-RTX-2060-0", "GPU-virtual-RTX-2060-1",
    ]  # fmt: skip
    gpus = list(slots.values())[1:]
    assert all(gpu.slot_id == gpu.device.uuid and gpu.slot_id.endswith(f"-{agent}") for gpu in gpus)
    assert [slot.synthetic for slot in slots.values()] == [False, True, True, True]
    turing = slots["GPU-virtual-RTX-2060-1"]
    assert list(turing.profilers) == ["nsight_compute", "nsight_systems", "auto", "kineto", "bare"]
    assert (turing.device.name, turing.device.compute_capability) == ("virtual RTX 2060", "7.5")
    assert (turing.device.sm_count, turing.device.memory_bytes) == (30, 6 << 30)


def test_no_two_agents_offer_the_same_virtual_gpu_and_one_keeps_its_own(
    server: FakeServer, tmp_path: Path
) -> None:
    for number, state in enumerate(("one", "two", "one"), start=1):
        with running(server, tmp_path / state, "V100:2", recorded_slots=0):
            wait_for(lambda: len(server.registrations) == number)  # noqa: B023 - it is called at once
    first, second, again = ([slot.slot_id for slot in r.slots] for r in server.registrations)
    assert len({*first, *second}) == 4
    assert again == first


@pytest.mark.parametrize("package", ["agent/assay_agent", "server/assay_server", "client/assay_client"])
def test_only_the_package_of_virtual_gpus_knows_their_variables(package: str) -> None:
    root = Path(__file__).resolve().parents[2] / package
    sources = [path for path in root.rglob("*") if path.suffix in {".py", ".c", ".toml", ".html"}]
    assert sources
    assert [path.name for path in sources if "ASSAY_VIRTUAL_" in path.read_text()] == []


def test_nothing_virtual_without_the_switch(server: FakeServer, tmp_path: Path) -> None:
    with running(server, tmp_path / "state", recorded_slots=1):
        wait_for(lambda: server.registrations)
    assert [slot.slot_id for slot in server.registrations[0].slots] == ["recorded-0"]
    assert not (tmp_path / "state" / "virtual-tools").exists()
    code = (
        "import sys; import assay_agent.main, assay_agent.daemon.places; "
        "assert not [m for m in sys.modules if m.startswith('assay_virtual')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("text", ["K80", "V100:0", "V100:x", "V100:-1", "", "V100:9999"])
def test_a_virtual_gpu_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        VirtualGPUs.parse(text)


def test_the_command_line_refuses_a_kind_that_does_not_exist(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", "--state", str(tmp_path), "--virtual", "K80"])
    assert isinstance(result.exception, ParameterError)
    assert "there is no kind 'K80'" in str(result.exception)


@pytest.mark.processes
def test_two_levels_of_a_workload_over_the_wire(server: FakeServer, folder: Path) -> None:
    add(server, "c-1.0000", folder, "detailed", launch_count=40, counters=FEATURES)
    add(server, "c-1.0001", folder, "detailed", launch_skip=40, launch_count=40, counters=FEATURES)
    add(server, "c-1.0002", folder, "detailed", launch_skip=80, launch_count=40, counters=FEATURES)
    add(server, "c-1.0003", folder, "light")
    with running(server, folder / "state", "V100:2"):
        wait_for(lambda: len(server.published) == 4, 120)
    assert server.failures == []
    first, second, light = (server.table(f"c-1.000{i}") for i in (0, 1, 3))
    assert first["launch"].to_pylist() + second["launch"].to_pylist() == list(range(60))
    assert light["launch"].to_pylist() == list(range(60))
    assert light["kernel_id"].to_pylist()[:40] == first["kernel_id"].to_pylist()
    assert (np.array(first["global_load_sectors"]) > 0).all()
    assert light["duration_ns"].null_count == 0
    for table, level in ((first, "detailed"), (light, "light")):
        metadata = table_metadata(table.schema)
        assert (metadata.synthetic, metadata.level) == (True, level)
        assert metadata.devices[0].name == "virtual V100"
    ends = {run: [flag.name for flag in finish.flags] for run, (_, finish) in server.published.items()}
    assert ends == {
        "c-1.0000": [], "c-1.0001": ["slice_short"], "c-1.0002": ["slice_empty"], "c-1.0003": [],
    }  # fmt: skip
    empty = server.published["c-1.0002"][1]
    assert (empty.segments, empty.launches) == (0, 0)
    assert list((folder / "state" / "jobs").iterdir()) == []


@pytest.mark.processes
def test_a_failure_arrives_with_the_tools_own_words(server: FakeServer, folder: Path) -> None:
    add(server, "c-1.0000", folder, "detailed", "permission", launch_count=10, counters=FEATURES)
    with running(server, folder / "state", "V100"):
        wait_for(lambda: server.failures, 60)
    (failed,) = server.failures
    assert (failed.failure.failure_class, failed.failure.retryable) == ("permission", False)
    assert "ERR_NVGPUCTRPERM" in failed.failure.cause
    assert "NVreg_RestrictProfilingToAdminUsers=0" in failed.failure.remedy
    assert "--metrics" in failed.log.command
    assert "==ERROR== ERR_NVGPUCTRPERM" in failed.log.log


@pytest.mark.processes
def test_an_agent_killed_in_the_middle_leaves_no_tool_and_begins_again(
    server: FakeServer, folder: Path
) -> None:
    add(server, "c-1.0000", folder, "detailed", "hang:stubborn", launch_count=10, counters=FEATURES)
    state = folder / "state"
    argv = [
        sys.executable,
        "-m",
        "assay_agent.main",
        "run",
        "--server",
        server.address,
        "--state",
        str(state),
    ]
    log = state / "jobs" / "c-1.0000-0-1" / "ncu.log"
    agent = subprocess.Popen([*argv, "--virtual", "V100", "--recorded-slots", "0"])
    try:
        wait_for(lambda: log.exists() and "Profiling" in log.read_text())
        assert tools(state)
    finally:
        agent.kill()
        agent.wait()
    wait_for(lambda: not tools(state))
    for _, work in [*server.leased.values()]:
        work.run.command.environment["ASSAY_VIRTUAL_FAULTS"] = ""
    with running(server, state, "V100"):
        wait_for(lambda: server.published)
    assert server.published["c-1.0000"][1].launches == 10


def tools(state: Path) -> list[int]:
    """Processes that have a path of the agent's private folders in their command line."""
    private = str(state / "jobs").encode()
    return [process for process, command in running_commands() if private in command]


def test_gpus_of_the_box_are_offered_with_the_tools_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    devices = (
        InstalledDevice(0, "Tesla V100", "GPU-1", "7.0", 80, 16 << 30),
        InstalledDevice(1, "", "", "", 0, 0, problem="it fell off the bus"),
    )
    found = Inventory("host", "0", 2, 1 << 30, devices)
    (place,) = installed_places(found, tmp_path)
    assert place.slot.slot_id == "GPU-1"
    assert not place.slot.synthetic
    assert {"nsight_compute", "bare"} <= set(place.slot.profilers)
    assert "nsight_systems" not in place.slot.profilers
