"""The lock of a GPU, and that virtual GPUs leave no folder behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.execution import environment
from assay_agent.execution.environment import MeasuredGPU, private_directory, workspace
from assay_agent.execution.errors import ProfilerError
from assay_core.records.attempt import AttemptKey
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import BASELINE, Device
from assay_sampling.running.failures import FailureClass
from assay_virtual.gpu_models import MODELS

WORK = Work(
    key=AttemptKey("c.0", 0, 1, 1),
    campaign_id="c",
    workload="w",
    device_kind="V100",
    level="bare",
    condition=BASELINE,
    profiler="bare",
    command=CommandSource(("x",), {}),
)
REAL = MeasuredGPU(Device(0, "V100", "GPU-1", "7.0", 80), path="/bin")
VIRTUAL = replace(REAL, model=MODELS.gpu("V100", 0).model, scope="/state")
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


def test_who_waited_for_a_lock_that_was_removed_takes_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and taking it, who had it removes it: a lock on the removed file keeps nobody out."""
    flock, seen = fcntl.flock, list[int]()

    def raced(handle: int, how: int) -> None:
        if not seen:
            shutil.rmtree(private_directory(VIRTUAL))
        seen.append(handle)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", raced)
    with workspace(VIRTUAL, tmp_path / "state", WORK, NEVER) as space:
        lock = private_directory(VIRTUAL) / "lock"
        assert os.path.samestat(os.fstat(space.lock), lock.stat())
    assert len(seen) == 2


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
