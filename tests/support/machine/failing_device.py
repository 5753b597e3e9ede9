"""ext4 on a block device that fails: a loop device over a file whose reads and writes are refused.

A program on it sees what it sees on a real disk that breaks: ``write`` succeeds and ``fsync`` fails, what it
reads for the first time cannot be read, and the file system falls to read-only by itself.
"""

from __future__ import annotations

import errno
from pathlib import Path

from tests.support.machine.disks import Disk, DiskError, LoopDisk, mounted_disk
from tests.support.machine.failing_file import Failed, FailingFile


class FailingDevice(LoopDisk):
    """A disk below which each read and write can fail with EIO; see :class:`LoopDisk`."""

    def __init__(self, folder: Path, mebibytes: int, *, synchronous: bool = False) -> None:
        super().__init__(folder, mebibytes, synchronous=synchronous)
        self._file: FailingFile | None = None
        self._backing = folder.with_name(folder.name + ".disk")

    def make_image(self, image: Path, size_bytes: int) -> None:
        super().make_image(self._backing, size_bytes)
        self._file = FailingFile(image, self._backing)

    def break_device(self, *, reads: bool) -> None:
        """From now on each write to the device fails, and each read if ``reads``."""
        assert self._file is not None
        self._file.fail(reads=errno.EIO if reads else 0, writes=errno.EIO)

    @property
    def failed(self) -> Failed:
        """Reads and writes of the device that failed so far."""
        assert self._file is not None
        return self._file.failed

    def mend(self) -> None:
        assert self._file is not None
        self._file.heal()
        super().mend()

    def close(self) -> None:
        if self._file is not None:
            self._file.heal()
        super(LoopDisk, self).close()
        if self._file is not None:
            self._file.close()
        for leftover in (self._image, self._backing, self._image.with_name(self._image.name + ".control")):
            leftover.unlink(missing_ok=True)


def failing_disk(folder: Path, mebibytes: int, *, synchronous: bool = False) -> Disk | None:
    """The best disk that may be mounted on an existing folder here: best of all, one on a failing device.

    Only that one can be ``synchronous``: see :class:`LoopDisk`.
    """
    disk = FailingDevice(folder, mebibytes, synchronous=synchronous)
    try:
        disk.mount()
    except (DiskError, OSError):
        disk.close()
        return mounted_disk(folder, mebibytes)
    return disk
