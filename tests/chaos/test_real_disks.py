"""Disks of a test's own fill up, fall to read-only and fail as the chaos lab needs it."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machine.disks import Disk, DiskError, LoopDisk, MemoryDisk
from tests.support.machine.failing_device import FailingDevice
from tests.support.machine.failing_file import Failed

MEBIBYTES = 8


@contextlib.contextmanager
def mounted(disk: Disk) -> Iterator[Disk]:
    disk.folder.mkdir()
    try:
        disk.mount()
    except (DiskError, OSError) as error:
        disk.close()
        pytest.skip(f"no such disk may be mounted here: {error}")
    try:
        yield disk
    finally:
        disk.close()


@pytest.fixture(params=[MemoryDisk, LoopDisk])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    with mounted(request.param(tmp_path / "disk", MEBIBYTES)) as made:
        yield made


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[LoopDisk]:
    with mounted(LoopDisk(tmp_path / "disk", MEBIBYTES)) as made:
        assert isinstance(made, LoopDisk)
        yield made


@pytest.fixture
def device(tmp_path: Path) -> Iterator[FailingDevice]:
    with mounted(FailingDevice(tmp_path / "disk", MEBIBYTES)) as made:
        assert isinstance(made, FailingDevice)
        yield made


def refusal(file: int | Path) -> int:
    """The errno of a write; 0: it was written."""
    try:
        if isinstance(file, Path):
            file.write_bytes(b"x" * 5000)
        else:
            os.write(file, b"x")
    except OSError as error:
        return error.errno or 0
    return 0


def test_a_full_disk_has_no_room_until_it_is_emptied(disk: Disk) -> None:
    assert refusal(disk.folder / "a") == 0
    assert disk.fill() < 5000
    assert refusal(disk.folder / "b") == errno.ENOSPC
    disk.empty()
    assert refusal(disk.folder / "b") == 0


def test_a_remount_is_refused_while_somebody_writes_and_then_holds(disk: Disk) -> None:
    with (disk.folder / "a").open("wb", buffering=0), pytest.raises(DiskError):
        disk.remount(read_only=True)
    disk.remount(read_only=True)
    assert refusal(disk.folder / "b") == errno.EROFS
    disk.remount(read_only=False)
    assert refusal(disk.folder / "b") == 0


def test_a_disk_that_falls_to_read_only_refuses_open_files_too(failing: LoopDisk) -> None:
    with (failing.folder / "a").open("wb", buffering=0) as file:
        assert refusal(file.fileno()) == 0
        failing.fall_read_only()
        assert refusal(file.fileno()) == errno.EROFS
    failing.mend()
    assert refusal(failing.folder / "a") == 0


def test_a_lost_disk_keeps_what_was_durable_and_nothing_else(failing: LoopDisk) -> None:
    path = failing.folder / "a"
    with path.open("wb", buffering=0) as file:
        file.write(b"durable")
        os.fsync(file.fileno())
        folder = os.open(failing.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        file.write(b", not durable")
        failing.lose()
        assert refusal(file.fileno()) == errno.EIO
    assert refusal(failing.folder / "b") == errno.EIO
    failing.mend()
    assert path.read_bytes() == b"durable"
    assert sorted(each.name for each in failing.folder.iterdir()) == ["a", "lost+found"]


def synced(path: Path) -> int:
    """The errno with which a file cannot be written and made durable; 0: it is durable."""
    try:
        with path.open("wb", buffering=0) as file:
            file.write(b"x" * 5000)
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno or 0
    return 0


@pytest.mark.parametrize("reads", [False, True])
def test_a_broken_device_fails_what_is_made_durable_and_keeps_what_was(
    device: FailingDevice, reads: bool
) -> None:
    path = device.folder / "before"
    assert synced(path) == 0 and device.failed == Failed(0, 0)
    with path.open("r+b", buffering=0) as file:
        device.break_device(reads=reads)
        file.write(b"y")  # into memory: nobody has noticed
        with pytest.raises(OSError) as caught:
            os.fsync(file.fileno())
    assert caught.value.errno == errno.EIO and device.failed.writes > 0
    # The journal cannot be written either, and then the kernel lets nobody write any more.
    assert synced(device.folder / "after") in (errno.EROFS, errno.EIO)
    device.mend()
    assert path.read_bytes() == b"x" * 5000
    before = device.failed
    assert synced(device.folder / "after") == 0 and device.failed == before


def test_reads_fail_that_the_device_must_answer(device: FailingDevice) -> None:
    path = device.folder / "a"
    assert synced(path) == 0
    device.mend()  # mounted anew, so that nothing of it is in memory
    device.break_device(reads=True)
    with pytest.raises(OSError) as caught:
        path.read_bytes()
    assert caught.value.errno == errno.EIO and device.failed.reads > 0
    device.mend()
    assert path.read_bytes() == b"x" * 5000


def test_a_failed_device_that_another_namespace_has_mounted_is_mended(device: FailingDevice) -> None:
    other = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout is not None and other.stdout.readline() == b"\n"
        device.fall_read_only()
        assert synced(device.folder / "a") == errno.EROFS
        device.mend()
        assert synced(device.folder / "a") == 0


def test_a_synchronous_disk_keeps_what_nobody_made_durable(tmp_path: Path) -> None:
    with mounted(FailingDevice(tmp_path / "disk", MEBIBYTES, synchronous=True)) as disk:
        (disk.folder / "a").write_bytes(b"x" * 5000)
        disk.lose()
        assert isinstance(disk, FailingDevice)
        disk.mend()
        assert (disk.folder / "a").read_bytes() == b"x" * 5000
