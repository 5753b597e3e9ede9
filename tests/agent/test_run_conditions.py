"""Conditions of runs on real GPUs but SM shares: locked clocks, strangers, what is refused, what is clean."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from assay_agent.conditions import occupants, undo_leftovers
from assay_agent.conditions.journal import Journal
from assay_agent.execution.environment import private_directory
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.gpus.processes import process_name
from assay_agent.profilers.ncu.profiler import NsightComputeProfiler
from assay_core.records.work import Work
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import BASELINE
from assay_sampling.running.failures import FailureClass
from tests.support.agent.conditions_bench import Bench
from tests.support.agent.named_processes import running

pytestmark = pytest.mark.processes

RATED = pynvml.NVML_CLOCK_LIMIT_ID_TDP
NCU = """#!/bin/sh
echo "$@" >> {folder}/ncu.calls
case "$1" in
--version) echo "Version 2026.1.0.0";;
--help) echo "  --clock-control arg (=boost)  base boost none reset"; echo "{options}";;
*hang*) sleep 60;;
esac
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A box without MPS; whatever a test leaves on it fails the test."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        made = Bench(Path(folder))
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setitem(sys.modules, "pynvml", made.nvml)  # type: ignore[arg-type]
        (made.folder / "bin").mkdir()
        yield made
        assert made.left() == []


def locked_during(bench: Bench, work: Work) -> tuple[Any, dict[str, Any], set[str]]:
    """The locked clocks while a run goes on, the journal then, and the flags of the run."""
    with bench.measurement(work) as measurement:
        seen, entries = bench.nvml.state["locked"], bench.journal.entries()
    return seen, entries, {flag.name for flag in measurement.flags}


@pytest.mark.parametrize(("clock", "limits"), [("base", [RATED, RATED]), ("boost", [1530, 1530])])
def test_the_clocks_of_a_light_run_are_locked_and_free_again(
    bench: Bench, clock: str, limits: list[int]
) -> None:
    work = bench.work(condition=replace(BASELINE, clock=clock))
    seen, entries, flags = locked_during(bench, work)
    assert (seen, entries) == (limits, {"clocks": {"step": "lock", "clock": clock}})
    assert "clock_unlocked" not in flags
    assert bench.nvml.state["locked"] is None


def test_free_clocks_are_not_touched(bench: Bench) -> None:
    bench.nvml.change(locked=[900, 900])  # a person's
    assert locked_during(bench, bench.work())[:2] == ([900, 900], {})
    assert bench.nvml.state["locked"] == [900, 900]
    bench.nvml.change(locked=None)


def test_a_gpu_without_a_boost_clock_of_its_customer_gets_its_greatest(bench: Bench) -> None:
    bench.nvml.change(refuse={"nvmlDeviceGetClock": 3})
    assert locked_during(bench, bench.work(condition=replace(BASELINE, clock="boost")))[0] == [1380, 1380]


@pytest.mark.parametrize(("code", "why"), [(4, "the agent's user may not"), (3, "NVML error 3"), (13, "13")])
def test_clocks_that_may_not_be_locked_are_a_flag(bench: Bench, code: int, why: str) -> None:
    bench.nvml.change(refuse={"nvmlDeviceSetGpuLockedClocks": code})
    with bench.measurement(bench.work(condition=replace(BASELINE, clock="base"))) as measurement:
        assert not bench.journal.path.exists()
    (flag,) = [flag for flag in measurement.flags if flag.name == "clock_unlocked"]
    assert why in flag.detail
    assert "clock_locked=0" in measurement.log.text


def test_clocks_that_cannot_be_freed_are_a_flag_and_freed_by_the_next_start(bench: Bench) -> None:
    bench.nvml.change(refuse={"nvmlDeviceResetGpuLockedClocks": 999})
    _, _, flags = locked_during(bench, bench.work(condition=replace(BASELINE, clock="base")))
    assert "clocks_left_locked" in flags
    undo_leftovers(bench.state)
    assert bench.journal.path.exists()
    assert bench.nvml.state["locked"] == [RATED, RATED]
    bench.nvml.change(refuse={})
    undo_leftovers(bench.state)
    assert bench.nvml.state["locked"] is None


def test_clocks_that_are_free_are_not_called_locked_where_the_disk_is_full(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(journal: Journal, name: str) -> None:
        raise StorageError(str(journal.path), "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "end", full)
        measurement = bench.measure(bench.work(condition=replace(BASELINE, clock="base")))
    assert bench.nvml.state["locked"] is None
    assert "clocks_left_locked" not in {flag.name for flag in measurement.flags}
    assert list(bench.journal.entries()) == ["clocks"]
    undo_leftovers(bench.state)
    assert bench.left() == []


def test_a_run_waits_for_a_stranger_to_leave(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupants, "_LOOK_SECONDS", 0.05)
    bench.nvml.change(processes=[1])
    timer = threading.Timer(0.3, lambda: bench.nvml.change(processes=[]))
    timer.start()
    with bench.measurement(bench.work()) as measurement:
        pass
    timer.join()
    assert "foreign_processes=0" in measurement.log.text
    assert "foreign_process" not in {flag.name for flag in measurement.flags}


def test_a_stranger_that_stays_makes_the_run_invalid(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupants, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(occupants, "_LOOK_SECONDS", 0.05)
    bench.nvml.change(processes=[1])
    with bench.measurement(bench.work()) as measurement:
        pass
    assert "other processes stayed on the GPU" in measurement.log.text
    (flag,) = [flag for flag in measurement.flags if flag.name == "foreign_process"]
    assert flag.invalidates


def test_a_stranger_under_a_daemon_of_its_own_is_seen_too(bench: Bench) -> None:
    bench.nvml.change(processes=[3, os.getpid()], mps_processes=[4])
    assert occupants.processes_on(bench.gpu.device.uuid) == [3, 4]


def test_a_desktop_is_not_waited_for(bench: Bench, tmp_path: Path) -> None:
    with running(tmp_path / "Xorg") as process_id:
        until = time.monotonic() + 60
        while process_name(process_id) != "Xorg" and time.monotonic() < until:
            time.sleep(0.01)
        bench.nvml.change(processes=[3, process_id], graphics_processes=[process_id])
        assert occupants.processes_on(bench.gpu.device.uuid) == [3]
        bench.nvml.change(graphics_processes=[])
        assert occupants.processes_on(bench.gpu.device.uuid) == [3, process_id]


def test_a_stranger_that_stayed_once_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = [0.0], list[float]()

    class Cancelled(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(now[0])
            now[0] += timeout or 0
            return False

    def stay(*processes: int) -> int:
        """How often it is waited for them; they stay."""
        monkeypatch.setattr(occupants, "processes_on", lambda uuid: sorted(processes))
        waits.clear()
        assert occupants.wait_until_alone(site, clock=lambda: now[0]) == sorted(processes)
        return len(waits)

    gpu = SimpleNamespace(device=SimpleNamespace(uuid="GPU-of-this-test"))
    site: Any = SimpleNamespace(gpu=gpu, cancelled=Cancelled())
    assert [stay(7, 8), stay(7, 8), stay(8)] == [60, 0, 0]
    # One that is new is waited for, and so is one that left and came back.
    assert [stay(8, 9), stay(), stay(8)] == [60, 0, 60]


def test_where_nvml_is_not_there_the_log_says_so(bench: Bench) -> None:
    bench.nvml.change(refuse={"nvmlInit": 12})
    with bench.measurement(bench.work()) as measurement:
        pass
    assert "processes on the GPU are not known: NVML error 12" in measurement.log.text


def detailed(bench: Bench, **changes: Any) -> Work:
    return bench.work(level="detailed", profiler="nsight_compute", **changes)


def install_ncu(bench: Bench, options: str = "") -> None:
    path = bench.folder / "bin" / "ncu"
    path.write_text(NCU.format(folder=bench.folder, options=options))
    path.chmod(0o755)


@pytest.mark.parametrize("changes", [{"condition": replace(BASELINE, sm_percent=50.0)}, {"under_mps": True}])
@pytest.mark.parametrize("options", ["", "  --mps arg (=none)  none client primary-client control"])
def test_counters_at_a_share_are_refused_whatever_the_release(
    bench: Bench, changes: dict[str, Any], options: str
) -> None:
    """Also of a server that asks all the same, and before any daemon is started."""
    profiler = NsightComputeProfiler(bench.gpu, ToolBox(), bench.state)
    install_ncu(bench, options)
    with pytest.raises(ProfilerError, match="one launch of each process") as caught:
        profiler.run(detailed(bench, **changes), threading.Event())
    assert caught.value.failure_class is FailureClass.SERVER_REFUSED
    assert not caught.value.failure.retryable
    assert bench.left() == []


def resets(bench: Bench) -> int:
    calls = bench.folder / "ncu.calls"
    return calls.read_text().count("--clock-control reset") if calls.exists() else 0


def test_clocks_that_ncu_may_have_left_locked_are_reset_only_after_it_was_ended(bench: Bench) -> None:
    install_ncu(bench)
    work = detailed(bench, condition=replace(BASELINE, clock="base"))
    with bench.measurement(work):
        assert list(bench.journal.entries()) == ["ncu_clocks"]
    assert resets(bench) == 0
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    with bench.measurement(work, cancelled) as measurement:
        assert work.command is not None
        measurement.work = replace(work, command=replace(work.command, argv=("sleep", "60")))
        list(measurement.batches())
    assert resets(bench) == 1
    assert "ncu --clock-control reset: exit status 0" in measurement.log.text


def test_after_a_crash_ncu_resets_the_clocks(bench: Bench) -> None:
    install_ncu(bench)
    bench.journal.step("ncu_clocks", "lock", program=str(bench.folder / "bin" / "ncu"))
    undo_leftovers(bench.state)
    assert resets(bench) == 1


def test_nothing_of_the_agents_own_environment_reaches_a_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "CUDA_MPS_PIPE_DIRECTORY", "LD_PRELOAD",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "NV_COMPUTE_PROFILER_PERFWORKS_DIR",
    ):  # fmt: skip
        monkeypatch.setenv(name, "/of/the/agent")
    with bench.measurement(bench.work()) as measurement:
        work = bench.work()
        assert work.command is not None
        code = "import json, os; print(json.dumps(dict(os.environ)))"
        measurement.work = replace(
            work, command=replace(work.command, argv=(sys.executable, "-IS", "-c", code))
        )
        list(measurement.batches())
        assert measurement.result is not None
    environment = json.loads(measurement.result.stdout)
    assert "/of/the/agent" not in environment.values()
    ours = {
        "CUDA_VISIBLE_DEVICES": bench.gpu.device.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "LC_ALL": "C",
        "HOME": str(bench.base / "home"), "TMPDIR": str(bench.base / "tmp"),
        "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1",
    }  # fmt: skip
    assert ours.items() <= environment.items()


def test_each_gpu_has_a_private_folder_of_its_own(bench: Bench) -> None:
    one = replace(bench.gpu, device=replace(bench.gpu.device, uuid="GPU-1"))
    other = replace(bench.gpu, device=replace(bench.gpu.device, uuid="GPU-2"))
    folders = {private_directory(gpu) for gpu in (one, other, one, replace(one, scope="/another/agent"))}
    assert len(folders) == 3
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in folders)


def test_a_journal_keeps_what_is_not_undone(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "GPU-1", tmp_path / "lock")
    journal.step("mps", "folders", base="/b")
    journal.step("clocks", "lock")
    journal.step("mps", "daemon")
    (again,) = Journal.leftovers(tmp_path)
    assert again.entries() == {"mps": {"base": "/b", "step": "daemon"}, "clocks": {"step": "lock"}}
    assert (again.gpu_uuid, again.lock) == ("GPU-1", tmp_path / "lock")
    again.end("mps")
    assert list(again.entries()) == ["clocks"]
    again.end("clocks")
    assert list(Journal.leftovers(tmp_path)) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "gpu": "x"}'])
def test_a_journal_that_cannot_be_read_is_removed(tmp_path: Path, text: str) -> None:
    journal = Journal(tmp_path, "GPU-1", tmp_path / "lock")
    journal.step("clocks", "lock")
    journal.path.write_text(text)
    assert list(Journal.leftovers(tmp_path)) == []
    assert not journal.path.exists()


def test_a_journal_that_cannot_be_read_now_is_kept_for_the_next_start(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "GPU-1", tmp_path / "lock")
    journal.step("clocks", "lock")
    kept = journal.path.rename(tmp_path / "kept")
    journal.path.mkdir()  # reading a folder fails as a disk does
    assert list(Journal.leftovers(tmp_path)) == []
    journal.path.rmdir()
    kept.rename(journal.path)
    assert [again.gpu_uuid for again in Journal.leftovers(tmp_path)] == ["GPU-1"]
