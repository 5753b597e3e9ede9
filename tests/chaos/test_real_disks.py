"""Disks of a test's own fill up, fall to read-only and fail as the chaos lab needs it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machine.disks import Disk, DiskError, LoopDisk, MemoryDisk

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
