"""A disk of the box that fails under a real process: the box is at fault, and not the workload."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.execution import sick_disk
from assay_agent.execution.environment import MeasuredGPU
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.bare import BareProfiler
from assay_core.records.work import CommandSource, Work
from assay_sampling.launches.table import Device
from assay_sampling.running.failures import FailureClass
from tests.support.agent.assignments import WORK
from tests.support.agent.fake_server import wait_for
from tests.support.machine.disks import Disk, LoopDisk, mounted_disk

GPU = MeasuredGPU(Device(0, "V100", "GPU-1", "7.0", 80), path="/usr/bin:/bin")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    found = mounted_disk(folder, 16)
    if found is None:
        pytest.skip("no disk may be mounted here")
    yield found
    found.close()


class Bench:
    """Runs shell scripts without a profiler, for an agent whose folders are on a disk of a test."""

    def __init__(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        (disk.folder / "tmp").mkdir(mode=0o700)
        monkeypatch.setattr("tempfile.tempdir", str(disk.folder / "tmp"))
        self.disk, self.begun, self.go = disk, disk.folder.with_name("begun"), disk.folder.with_name("go")
        self.profiler = BareProfiler(GPU, ToolBox(), disk.folder / "state")

    def failed(self, script: str, meanwhile: Callable[[], object]) -> ProfilerError:
        """How the script fails; ``meanwhile``: what happens after it has begun."""
        waits = f"touch {self.begun}; while ! [ -e {self.go} ]; do sleep 0.02; done; "
        command = CommandSource(("/bin/sh", "-c", waits + script), {}, "/", 30.0)
        work = replace(WORK, level="bare", profiler="bare", command=command)
        with ThreadPoolExecutor(1) as other:
            ended = other.submit(self._measure, work)
            wait_for(lambda: self.begun.exists() or ended.done())
            meanwhile()
            self.go.touch()
            with pytest.raises(ProfilerError) as caught:
                ended.result(30)
        return caught.value

    def _measure(self, work: Work) -> None:
        with self.profiler.run(work, threading.Event()) as measurement:
            list(measurement.batches())


@pytest.fixture
def bench(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(disk, monkeypatch)


def test_a_workload_whose_disk_fell_to_read_only_is_tried_again(bench: Bench) -> None:
    if not isinstance(bench.disk, LoopDisk):
        pytest.skip("no disk of this machine may fail")
    told = bench.failed('echo x > "$TMPDIR"/file', bench.disk.fall_read_only)
    assert told.failure_class is FailureClass.DISK_FULL and told.failure.retryable
    assert "takes no file: Read-only file system" in told.cause and "exit status" in told.cause


def test_a_workload_whose_disk_is_gone_is_tried_again_whatever_it_says(bench: Bench) -> None:
    if not isinstance(bench.disk, LoopDisk):
        pytest.skip("no disk of this machine may fail")
    told = bench.failed('cat "$HOME"/. 2> /dev/null || { echo "my epoch is lost"; exit 3; }', bench.disk.lose)
    assert told.failure_class is FailureClass.DISK_FULL
    assert "takes no file" in told.cause


def test_a_workload_whose_disk_is_full_is_tried_again(bench: Bench) -> None:
    told = bench.failed('head -c 1000000 /dev/zero > "$TMPDIR"/file', bench.disk.fill)
    assert told.failure_class is FailureClass.DISK_FULL
    assert "No space left on device" in told.cause


def test_a_workload_that_writes_where_nobody_may_fails_by_itself(bench: Bench) -> None:
    told = bench.failed("echo 'x: Read-only file system' >&2; exit 1", lambda: None)
    assert told.failure_class is FailureClass.APPLICATION_FAILED
    assert "Read-only file system" in told.cause


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_another_error_of_the_probe_says_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(sick_disk, "_probe", refuses)
    sick_disk.require_disk("run", [tmp_path], "exit status 1")


def test_a_probe_leaves_nothing(tmp_path: Path) -> None:
    sick_disk.require_disk("run", [tmp_path], "exit status 1")
    assert list(tmp_path.iterdir()) == []
