"""The place of a confined run: every file that it writes, in memory, bounded, and gone with one process.

All its writable folders lie on one tmpfs. A process of the agent's holds that in a mount namespace
(:mod:`assay_agent.execution.confinement.holder`), commands run below it, and the agent reads its files
through ``/proc/PID/root``, where only this user and root may look. Nothing is ever removed by name: when the
holder ends, the kernel frees everything.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from assay_agent.execution.confinement import holder
from assay_agent.execution.removal import remove_tree

# On every box, of use to no tool there, and any user may enter it.
TMPFS = "/dev/shm"
_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
NOBODY = 65534
# Each file also takes about a kilobyte of the kernel's memory, which the size does not count.
_BYTES_PER_FILE, _LEAST_FILES = 16 << 10, 16_384
_FULL_BYTES = 64 << 10


class PlaceError(Exception):
    """The place cannot be made on this box."""


class Place:
    """The files of one run. ``path``: where the agent finds them, and a confined program too.

    Args:
        path: a name for the place; its folder exists.
        size_bytes: of all files together.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self._size_bytes = size_bytes
        self._holder: subprocess.Popen[bytes] | None = None

    def open(self, folders: tuple[str, ...]) -> None:
        """Make it, with these folders for the program. Raises PlaceError, OSError."""
        remove_tree(self.path)  # a link of an agent that was killed
        files = max(self._size_bytes // _BYTES_PER_FILE, _LEAST_FILES)
        options = f"size={self._size_bytes},nr_inodes={files},mode=0755,nosuid,nodev"
        self._holder = subprocess.Popen(
            [sys.executable, "-I", "-S", holder.__file__, TMPFS, options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            env={"PATH": _SYSTEM_PATH, "LC_ALL": "C"}, start_new_session=True,
        )  # fmt: skip
        try:
            self._expect()
            self._map_users(Path("/proc", str(self._holder.pid)))
            self._write(b"1")
            self._expect()
            self.path.symlink_to(f"/proc/{self._holder.pid}/root{TMPFS}")
            for name in folders:
                (self.path / name).mkdir()
                (self.path / name).chmod(
                    0o755
                )  # whatever the umask: bubblewrap enters it before it changes user
                self.give(self.path / name)
        except BaseException:
            self.close()
            raise

    def _map_users(self, process: Path) -> None:
        """This user is root there, without any right outside; root also needs a user for the program."""
        if os.geteuid():
            (process / "setgroups").write_text("deny")
        more = f"\n{NOBODY} {NOBODY} 1" if not os.geteuid() else ""
        (process / "uid_map").write_text(f"0 {os.geteuid()} 1{more}")
        (process / "gid_map").write_text(f"0 {os.getegid()} 1{more}")

    def give(self, path: Path) -> None:
        """Give a file or folder of the place to the user that the program runs as."""
        if not os.geteuid():
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    @property
    def process_id(self) -> int:
        """Of the process in whose namespaces commands run."""
        assert self._holder is not None
        return self._holder.pid

    @property
    def lives(self) -> bool:
        """Whether the files are still there: the kernel may have ended the holder for lack of memory."""
        return self._holder is not None and self._holder.poll() is None

    def used_bytes(self) -> int:
        """Memory that the files take; 0 if they are gone."""
        try:
            state = os.statvfs(self.path)
        except OSError:
            return 0
        return (state.f_blocks - state.f_bfree) * state.f_frsize

    def is_full(self) -> bool:
        """Whether next to nothing can be written."""
        try:
            state = os.statvfs(self.path)
        except OSError:
            return False
        return state.f_bfree * state.f_frsize < _FULL_BYTES or not state.f_ffree

    def close(self) -> None:
        """Free the files. Never raises."""
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _expect(self) -> None:
        assert self._holder is not None and self._holder.stdout is not None
        if not self._holder.stdout.read(1):
            _, stderr = self._holder.communicate()
            raise PlaceError(
                stderr.decode(errors="replace").strip() or "the process that holds its files ended"
            )

    def _write(self, data: bytes) -> None:
        assert self._holder is not None and self._holder.stdin is not None
        self._holder.stdin.write(data)
