"""A file whose reads and writes fail when they are told to: below a loop device it is a disk that breaks.

The kernel's FUSE protocol is spoken here as far as one file needs it, by a process of its own, so that no
library is needed and nobody who waits for the disk can stop the process that serves it. The file is the root
of its file system, as in libfuse's example "null". Needs root and /dev/fuse. Source: linux/fuse.h, 7.31.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_IN_HEADER = struct.Struct("=IIQQIIIHH")  # length, operation, request, node, uid, gid, pid, two unused
_OUT_HEADER = struct.Struct("=IiQ")  # length, minus errno, request
_ATTRIBUTES = struct.Struct("=6Q10I")
_INIT_ANSWER = struct.Struct("=4IHHIIHHI7I")
_OPEN_ANSWER = struct.Struct("=QII")
_WRITE_ANSWER = struct.Struct("=II")
_PIECE = struct.Struct("=QQI")  # of a file handle, at an offset, of a size
_WRITE_HEAD_BYTES = 40
_STATFS_ANSWER = struct.Struct("=5Q4I6I")
_DIRECT_IO = 1  # no page cache of the file: what the device is told is what the file hears
_MAX_PAGES_FLAG, _BIG_WRITES_FLAG = 1 << 22, 1 << 5
_MOST_BYTES, _PAGE_BYTES = 1 << 20, 4096
_NO_ANSWER = {2, 36, 42}  # forget, interrupt, forget several
_START_SECONDS = 30.0

_CONTROL = struct.Struct("=iiQQ")


@dataclass(frozen=True)
class Failed:
    """How many calls were answered with an error so far."""

    reads: int
    writes: int


class FailingFile:
    """A file at ``path`` that keeps its bytes in ``backing``; :meth:`fail` and :meth:`heal` change it.

    Raises OSError where no such file can be made.
    """

    def __init__(self, path: Path, backing: Path) -> None:
        self._path = path
        path.touch()
        control = path.with_name(path.name + ".control")
        control.write_bytes(bytes(_CONTROL.size))
        self._map = _mapped(control)
        command = [sys.executable, "-m", __name__, str(path), str(backing), str(control)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_SECONDS)
        if not ready or not self._process.stdout.readline():
            self.close()
            raise OSError(errno.ENODEV, f"no file system can be mounted on {path}")

    def fail(self, *, reads: int = 0, writes: int = 0) -> None:
        """Answer reads and writes with these errors from now on; 0: carry them out."""
        struct.pack_into("=ii", self._map, 0, reads, writes)

    def heal(self) -> None:
        """Carry everything out again."""
        self.fail()

    @property
    def failed(self) -> Failed:
        """What was answered with an error so far."""
        return Failed(*_CONTROL.unpack_from(self._map)[2:])

    def close(self) -> None:
        """Unmount it, whoever uses it, and end its process."""
        subprocess.run(["umount", "-l", str(self._path)], capture_output=True, check=False)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _mapped(control: Path) -> mmap.mmap:
    with control.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


class _Server:
    """Answers the kernel's requests for the one file."""

    def __init__(self, device: int, backing: int, control: mmap.mmap) -> None:
        self._device, self._backing, self._control = device, backing, control
        self._answers: dict[int, Callable[[memoryview], bytes]] = {
            3: lambda body: self._attributes(), 4: lambda body: self._attributes(), 14: self._open,
            15: self._read, 16: self._write, 17: self._statfs, 18: _nothing, 20: self._sync, 25: _nothing,
            26: self._init, 38: _nothing,
        }  # fmt: skip

    def run(self) -> None:
        """Until the file is unmounted."""
        while True:
            try:
                request = os.read(self._device, _MOST_BYTES + _PAGE_BYTES)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                if error.errno == errno.ENODEV:
                    return
                raise
            self._answer(memoryview(request))

    def _answer(self, request: memoryview) -> None:
        _, operation, number, *_ = _IN_HEADER.unpack_from(request)
        if operation in _NO_ANSWER:
            return
        body, error = b"", 0
        try:
            body = self._answers[operation](request[_IN_HEADER.size :])
        except KeyError:
            error = errno.ENOSYS
        except OSError as failed:
            error = failed.errno or errno.EIO
        os.write(self._device, _OUT_HEADER.pack(_OUT_HEADER.size + len(body), -error, number) + body)

    def _init(self, body: memoryview) -> bytes:
        flags = _MAX_PAGES_FLAG | _BIG_WRITES_FLAG
        pages = _MOST_BYTES // _PAGE_BYTES
        return _INIT_ANSWER.pack(7, 31, _MOST_BYTES, flags, 16, 12, _MOST_BYTES, 1, pages, 0, 0, *[0] * 7)

    def _attributes(self) -> bytes:
        size = os.fstat(self._backing).st_size
        mode = stat.S_IFREG | 0o600
        found = _ATTRIBUTES.pack(1, size, size >> 9, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, _PAGE_BYTES, 0)
        return struct.pack("=QII", 0, 0, 0) + found

    def _open(self, body: memoryview) -> bytes:
        return _OPEN_ANSWER.pack(0, _DIRECT_IO, 0)

    def _read(self, body: memoryview) -> bytes:
        self._refuse(0)
        _, offset, size = _PIECE.unpack_from(body)
        return os.pread(self._backing, size, offset)

    def _write(self, body: memoryview) -> bytes:
        self._refuse(1)
        _, offset, size = _PIECE.unpack_from(body)
        data = body[_WRITE_HEAD_BYTES : _WRITE_HEAD_BYTES + size]
        return _WRITE_ANSWER.pack(os.pwrite(self._backing, data, offset), 0)

    def _sync(self, body: memoryview) -> bytes:
        # The machine itself goes on, so what was written is durable enough.
        self._refuse(1)
        return b""

    def _statfs(self, body: memoryview) -> bytes:
        return _STATFS_ANSWER.pack(0, 0, 0, 0, 0, _PAGE_BYTES, 255, _PAGE_BYTES, *[0] * 7)

    def _refuse(self, which: int) -> None:
        """Raise the error that the control file has for reads (0) or writes (1), and count it."""
        wanted = _CONTROL.unpack_from(self._control)
        if wanted[which]:
            struct.pack_into("=Q", self._control, 8 + 8 * which, wanted[2 + which] + 1)
            raise OSError(wanted[which], os.strerror(wanted[which]))


def _nothing(body: memoryview) -> bytes:
    return b""


def _mount(path: str) -> int:
    """Mount a file system of one file on a file; the device that brings its requests."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = (
        f"fd={device},rootmode={stat.S_IFREG:o},user_id={os.geteuid()},group_id={os.getegid()},allow_other"
    )
    library = ctypes.CDLL(None, use_errno=True)
    if library.mount(b"assay-test", path.encode(), b"fuse", ctypes.c_ulong(0), options.encode()):
        raise OSError(ctypes.get_errno(), f"{path} cannot be mounted")
    return device


def main(path: str, backing: str, control: str) -> None:
    """Serve the file until it is unmounted."""
    server = _Server(_mount(path), os.open(backing, os.O_RDWR), _mapped(Path(control)))
    print("mounted", flush=True)
    server.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
