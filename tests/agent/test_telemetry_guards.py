"""Guards of a run: too much memory and a full disk end its whole tree, and say so by class."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from assay_agent.execution.errors import ProfilerError
from assay_agent.guards import run_guards as module
from assay_agent.guards.run_guards import RunGuards, resident_bytes, run_processes
from assay_core.processes.tool_run import EndingSteps, ToolResult, run_tool
from assay_sampling.running.failures import FailureClass

QUICK = EndingSteps(interrupt_seconds=0.2, terminate_seconds=0.2)
# A parent that waits for a child which takes 96 MiB; both are deaf to SIGINT.
GREEDY = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
subprocess.run([sys.executable, "-S", "-c",
    "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); b = bytearray(96 << 20); "
    "b[::4096] = bytes(len(b[::4096])); time.sleep(60)"])
"""


def guards(folder: Path, **limits: Any) -> RunGuards:
    given = {"memory_limit_bytes": 0, "minimum_free_bytes": 0, **limits}
    return RunGuards(
        directory=folder, temporary=folder, cancelled=threading.Event(), look_seconds=0.05, **given
    )


def run_under(guard: RunGuards, folder: Path, code: str) -> ToolResult:
    with guard:
        return run_tool(
            [sys.executable, "-S", "-c", code],
            environment={"LC_ALL": "C", "TMPDIR": str(folder)},
            directory=folder,
            timeout_seconds=50,
            cancelled=guard.stop,
            ending=QUICK,
        )


@pytest.mark.processes
def test_memory_that_no_process_maps_counts_too(tmp_path: Path) -> None:
    code = "import os, time; f = os.memfd_create('x'); os.write(f, bytes(60 << 20)); time.sleep(40)"
    guard = guards(tmp_path, memory_limit_bytes=50 << 20)
    assert run_under(guard, tmp_path, code).cancelled
    with pytest.raises(ProfilerError) as refused:
        guard.require_kept("run")
    assert refused.value.failure_class is FailureClass.MEMORY_LIMIT
    with_files = guards(tmp_path, memory_limit_bytes=50 << 20, files_bytes=lambda: 51 << 20)
    assert run_under(with_files, tmp_path, "import time; time.sleep(40)").cancelled


def test_a_child_that_takes_too_much_memory_ends_the_tree(tmp_path: Path) -> None:
    guard = guards(tmp_path, memory_limit_bytes=64 << 20)
    result = run_under(guard, tmp_path, GREEDY)
    assert result.cancelled
    assert run_processes(tmp_path) == []
    assert guard.peak_bytes > 64 << 20
    with pytest.raises(ProfilerError, match="its limit is 64 MiB; it was ended") as caught:
        guard.require_kept("run x")
    assert caught.value.failure_class is FailureClass.MEMORY_LIMIT
    assert not caught.value.failure.retryable


@pytest.mark.processes
def test_a_run_within_its_limits_is_left_alone(tmp_path: Path) -> None:
    guard = guards(tmp_path, memory_limit_bytes=1 << 30, minimum_free_bytes=1)
    result = run_under(guard, tmp_path, "import time; time.sleep(0.4)")
    assert (result.exit_code, result.cancelled) == (0, False)
    guard.require_kept("run x")
    assert 1 << 20 < guard.peak_bytes < 1 << 30


@pytest.mark.processes
def test_a_full_disk_ends_the_run(tmp_path: Path) -> None:
    guard = guards(tmp_path, minimum_free_bytes=1 << 60)
    assert run_under(guard, tmp_path, "import time; time.sleep(60)").cancelled
    with pytest.raises(ProfilerError, match="MiB that must stay free") as caught:
        guard.require_kept("run x")
    assert caught.value.failure_class is FailureClass.DISK_FULL


@pytest.mark.processes
def test_another_run_of_this_agent_does_not_count(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    guard = guards(tmp_path, memory_limit_bytes=64 << 20)
    greedy = guards(other)
    thread = threading.Thread(target=run_under, args=(greedy, other, GREEDY))
    thread.start()
    try:
        while resident_bytes(run_processes(other)) < 100 << 20:
            assert thread.is_alive()
        assert run_under(guard, tmp_path, "import time; time.sleep(0.3)").exit_code == 0
    finally:
        greedy.stop.set()
        thread.join()
    guard.require_kept("run x")


def test_who_cancels_the_run_cancels_the_tool(tmp_path: Path) -> None:
    guard = guards(tmp_path)
    with guard:
        guard._cancelled.set()
        assert guard.stop.wait(60)
    guard.require_kept("run x")


def test_a_look_that_hangs_does_not_hold_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_JOIN_SECONDS", 0.05)
    looking, go_on = threading.Event(), threading.Event()

    def look() -> None:
        looking.set()
        go_on.wait(60)

    guard = guards(tmp_path, tick=look)
    with guard:
        assert looking.wait(60)
    assert not go_on.is_set() and guard._thread.is_alive()
    go_on.set()
    guard._thread.join(60)
    guard.require_kept("run x")
