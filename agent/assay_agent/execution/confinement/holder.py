"""The process that holds the files of one confined run: a bounded tmpfs in a mount namespace of its own.

    python -I -S holder.py FOLDER OPTIONS

It leaves the box's users and mounts, writes a byte, and waits for one, by which the agent says that it has
written the maps of users. Then it mounts a tmpfs with OPTIONS over FOLDER, which only this space sees, writes
a second byte, and waits until its standard input ends: with the agent, whatever ends that. The kernel then
frees all files at once, whatever they are.

With the standard library only. Source: user_namespaces(7), tmpfs(5).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000


def main(arguments: list[str]) -> int:
    """Hold the files until the end of standard input."""
    folder, options = arguments
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_NEW_USERS | _NEW_MOUNTS):
        sys.stderr.write(f"namespaces cannot be made: {os.strerror(ctypes.get_errno())}\n")
        return 1
    os.write(1, b"1")
    if not os.read(0, 1):
        return 1
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    completed = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "assay", folder], check=False)
    if completed.returncode:
        return 1
    os.write(1, b"2")
    os.read(0, 1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
