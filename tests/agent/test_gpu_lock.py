"""The lock of a GPU, and that virtual GPUs leave no folder behind."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.profilers import environment
from assay_agent.profilers.base import ProfilerError
from assay_agent.profilers.environment import MeasuredGPU, private_directory, workspace
from assay_agent.work import Assignment, AttemptKey, CommandSource
from assay_sampling.failures import FailureClass
from assay_sampling.launch_table import BASELINE, Device

WORK = Assignment(
    AttemptKey("c.0", 0, 1, 1), "c", "w", "V100", "light", BASELINE, "bare", bare=True,
    command=CommandSource(("x",), {}),
)  # fmt: skip
REAL = MeasuredGPU(Device(0, "V100", "GPU-1", "7.0", 80), synthetic=False, path="/bin")
VIRTUAL = replace(REAL, synthetic=True, scope="/state")
NEVER = threading.Event()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_virtual_gpu_leaves_no_folder_and_a_real_one_its_lock(tmp_path: Path) -> None:
    for gpu in (VIRTUAL, REAL):
        with workspace(gpu, tmp_path / "state", WORK, NEVER) as space:
            assert space.home.is_dir()
    (left,) = (tmp_path / f"assay-{os.getuid()}").iterdir()
    assert left == private_directory(REAL)
    assert [path.name for path in left.iterdir()] == ["lock"]


def test_who_waited_for_a_lock_that_was_removed_takes_the_next_one(tmp_path: Path) -> None:
    """Eight at once, each once: never two together, though each removes the lock that others wait for."""
    inside, most, entered = [0], [0], []

    def enter(number: int) -> None:
        with workspace(VIRTUAL, tmp_path / f"state{number}", WORK, threading.Event()):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.02)
            inside[0] -= 1
        entered.append(number)

    with ThreadPoolExecutor(8) as executor:
        for ended in [executor.submit(enter, number) for number in range(8)]:
            ended.result()
    assert (most, sorted(entered)) == ([1], list(range(8)))


def test_a_lock_that_stays_with_somebody_else_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_LOCK_SECONDS", 0.2)
    with (private_directory(REAL) / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ProfilerError) as caught, workspace(REAL, tmp_path / "state", WORK, NEVER):
            pass
    assert caught.value.failure_class is FailureClass.LOCK_FILE
    assert str(private_directory(REAL) / "lock") in caught.value.cause
