"""Faults of disk and clock inside a running process, by a small library that is loaded into it.

``interposed.c`` stands before the C library's calls. Each process of the lab has a control file, through
which :class:`Meddling` makes calls on files of one folder fail, wait or tear, sets the wall clock off, and
lets time pass at once by all clocks.
Nothing of this needs root, and counters in the file prove what took hold.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

_SOURCE = Path(__file__).with_name("interposed.c")
_SETTINGS = struct.Struct("=2q6i64s")
_LOOK_MS = 50
_COUNTERS = struct.Struct("=5Q")


class Operation(IntFlag):
    """Groups of calls: bytes written, files made durable, folders or files opened to be changed, reads."""

    WRITES = 1
    SYNCS = 2
    CHANGES = 4
    READS = 8


@dataclass(frozen=True)
class Counters:
    """What the library did since the process's control file was made, over all its processes."""

    clock_reads: int
    matched: int
    failed: int
    slept: int
    tears: int


def built(folder: Path) -> Path | None:
    """Compile the library into ``folder``; None where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "interposed.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


class Meddling:
    """The control file of one program; thread-safe as long as one fault at a time meddles with it.

    Args:
        library: what :func:`built` made; None: every method does nothing.
        path: of the control file, which is made.
        folder: whose files have the faults.
    """

    def __init__(self, library: Path | None, path: Path, folder: Path) -> None:
        self._library = library
        self._path = path
        self._folder = folder
        self._passed_ns = 0
        self._look_ms = 0
        path.write_bytes(bytes(_SETTINGS.size + _COUNTERS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    @property
    def works(self) -> bool:
        """Whether the library could be compiled."""
        return self._library is not None

    @property
    def environment(self) -> dict[str, str]:
        """Variables that load the library into a program."""
        if self._library is None:
            return {}
        return {
            "LD_PRELOAD": str(self._library),
            "ASSAY_CHAOS_CONTROL": str(self._path),
            "ASSAY_CHAOS_FOLDER": f"{self._folder}/",
        }

    def set(
        self,
        operations: Operation | None = None,
        *,
        error: int = 0,
        every: int = 1,
        sleep_ms: int = 0,
        torn: int = 0,
        part: str = "",
        clock_offset_ns: int = 0,
    ) -> None:
        """Begin a fault; without arguments, end it.

        Args:
            operations: which calls have the fault.
            error: the errno that each ``every``-th of them returns.
            sleep_ms: how long each of them waits first.
            torn: how many writes are cut in half; each kills the process.
            part: only paths that contain it.
            clock_offset_ns: how far the wall clock is off.
        """
        # Time that has passed is never taken back.
        packed = (
            clock_offset_ns, self._passed_ns, operations or 0, error, every, sleep_ms, torn, self._look_ms,
            part.encode(),
        )  # fmt: skip
        self._map[: _SETTINGS.size] = _SETTINGS.pack(*packed)

    def let_pass(self, seconds: float) -> None:
        """Time passes at once, by every clock of the program; its waits end as if they had lasted so long.

        Call it once with 0 before the program starts, so that its waits look whether time has passed.
        """
        self._passed_ns += int(seconds * 1e9)
        self._look_ms = _LOOK_MS
        self.set()

    def counters(self) -> Counters:
        """What took hold so far."""
        return Counters(*_COUNTERS.unpack_from(self._map, _SETTINGS.size))

    def close(self) -> None:
        self._map.close()
