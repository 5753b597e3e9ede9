"""Small disks of a test's own, which fill up, fall to read-only and fail for real.

Three sorts, the best that the machine allows: ext4 on a loop device (root alone), which can be made to fail
under running programs as a real disk does; a file system in memory; or none. Sources: ext4(5) for ``errors=``
and trigger_fs_error, linux/fs.h for FS_IOC_SHUTDOWN, mount(8).
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path

_SHUTDOWN, _DROP_ALL = 0x8004587D, 2  # FS_IOC_SHUTDOWN, and what is not yet on the disk is lost
_TYPE_OF_EXT4 = "ext4"
_FSCK_MENDED = 1
_FREE_SECONDS = 30.0
_BALLAST = "of-somebody-else"
_PIECES = (1 << 20, 1 << 16, 1 << 12)


class DiskError(Exception):
    """The disk itself does not work, so that nothing can be said about who uses it."""


class Disk(ABC):
    """A mounted file system of a fixed size in a folder.

    Attributes:
        fails: whether :meth:`fall_read_only` and :meth:`lose` can be called.
    """

    fails = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def mount(self, *, read_only: bool = False) -> None:
        """Mount it, mended if it has failed. Raises DiskError."""

    def remount(self, *, read_only: bool) -> None:
        """Mount it anew as read-only or not; refused (DiskError) while a file is open for writing."""
        _run("mount", "-o", "remount," + ("ro" if read_only else "rw"), str(self.folder))

    def fall_read_only(self) -> None:
        """The kernel finds an error on it and lets nobody write any more, open files included."""
        raise NotImplementedError

    def lose(self) -> None:
        """Each call on it returns EIO from now on, and what was not made durable is lost."""
        raise NotImplementedError

    def unmount(self) -> None:
        """Unmount it, waiting until nobody uses it. Raises DiskError."""
        until = time.monotonic() + _FREE_SECONDS
        while True:
            done = subprocess.run(["umount", str(self.folder)], capture_output=True, text=True, check=False)
            if not done.returncode:
                return
            if time.monotonic() > until:
                raise DiskError(f"{self.folder} is still used: {done.stderr.strip()}")
            time.sleep(0.1)

    def fill(self) -> int:
        """Take all of it; the bytes that are left."""
        with (self.folder / _BALLAST).open("wb", buffering=0) as file:
            size = 0
            for piece in _PIECES:
                size = _grow(file.fileno(), size, piece)
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def empty(self) -> None:
        """Give back what :meth:`fill` took."""
        (self.folder / _BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it, whoever uses it."""
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)


def _mode_of(folder: Path) -> int:
    """Who may enter the folder may enter the disk."""
    return folder.stat().st_mode & 0o777 if folder.is_dir() else 0o700


def _grow(file: int, size: int, piece: int) -> int:
    """Let a file grow by pieces until the disk is full; its size."""
    while True:
        try:
            os.posix_fallocate(file, size, piece)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return size
        size += piece


class MemoryDisk(Disk):
    """A file system in memory."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        super().__init__(folder)
        self._options = f"size={mebibytes}m,mode={_mode_of(folder):o}"

    def mount(self, *, read_only: bool = False) -> None:
        options = self._options + (",ro" if read_only else "")
        _run("mount", "-t", "tmpfs", "-o", options, "assay-test", str(self.folder))


class LoopDisk(Disk):
    """ext4 in a file beside the folder; the file grows as the disk is used.

    ``synchronous``: what was written is durable at once, for who promises that and makes nothing durable.
    """

    fails = True

    def __init__(self, folder: Path, mebibytes: int, *, synchronous: bool = False) -> None:
        super().__init__(folder)
        self._options = "errors=remount-ro" + (",sync" if synchronous else "")
        self._image = folder.with_name(folder.name + ".img")
        self._was_made = False
        self._size = mebibytes << 20
        self._mode = _mode_of(folder)

    def make_image(self, image: Path, size_bytes: int) -> None:
        """Make the file that is the disk; called once."""
        with image.open("wb") as file:
            file.truncate(size_bytes)

    def mount(self, *, read_only: bool = False) -> None:
        if not self._was_made:
            self.make_image(self._image, self._size)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
            self._was_made = True
        options = self._options + (",ro" if read_only else "")
        # On a device of its own: a mount namespace that somebody made meanwhile keeps the last one, with a
        # file system that has failed, and 'mount -o loop' would take that again.
        device = _run("losetup", "--find", "--show", str(self._image)).strip()
        try:
            _run("mount", "-t", _TYPE_OF_EXT4, "-o", options, device, str(self.folder))
        finally:
            _run("losetup", "--detach", device)  # as soon as nobody has it mounted
        if not read_only:
            self.folder.chmod(self._mode)

    def fall_read_only(self) -> None:
        Path("/sys/fs/ext4", self._device(), "trigger_fs_error").write_text("a disk of a test fails\n")

    def lose(self) -> None:
        file = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(file, _SHUTDOWN, struct.pack("=I", _DROP_ALL))
        finally:
            os.close(file)

    def mend(self) -> None:
        """Unmount it, check it as at the start of a box, and mount it again. Raises DiskError."""
        self.unmount()
        done = subprocess.run(
            ["e2fsck", "-p", "-f", str(self._image)], capture_output=True, text=True, check=False
        )
        if done.returncode & ~_FSCK_MENDED:
            raise DiskError(f"{self.folder} cannot be mended: {done.stdout} {done.stderr}")
        self.mount()

    def _device(self) -> str:
        number = self.folder.stat().st_dev
        link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
        return link.resolve().name

    def close(self) -> None:
        super().close()
        self._image.unlink(missing_ok=True)


def mounted_disk(folder: Path, mebibytes: int) -> Disk | None:
    """The best disk that may be mounted on an existing folder here; None: none may be."""
    sorts: tuple[type[LoopDisk] | type[MemoryDisk], ...] = (LoopDisk, MemoryDisk)
    for sort in sorts:
        disk = sort(folder, mebibytes)
        try:
            disk.mount()
        except (DiskError, OSError):
            disk.close()
            continue
        return disk
    return None


def _run(program: str, *arguments: str) -> str:
    if shutil.which(program) is None:
        raise DiskError(f"there is no program {program!r} here")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DiskError(f"{program}: {done.stderr.strip()}")
    return done.stdout
