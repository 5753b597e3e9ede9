"""Files that a confined program left: made harmless before the agent reads them, and removed for certain.

No process of the run is alive then, so nothing changes under these hands.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, however deep and whatever its modes. Never raises.

    Folders within folders are first moved up, so neither the stack nor the length of paths limits it.
    """
    with contextlib.suppress(OSError):
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(top, 0o700)
            _empty(top)
        finally:
            os.close(top)
        folder.rmdir()


def _empty(top: int) -> None:
    fresh = (f".assay-removed-{number}" for number in itertools.count())
    while names := os.listdir(top):
        for name in names:
            if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=top)
                continue
            os.chmod(name, 0o700, dir_fd=top)
            inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
            try:
                for each in os.listdir(inside):  # noqa: PTH208 - a descriptor
                    if stat.S_ISDIR(os.stat(each, dir_fd=inside, follow_symlinks=False).st_mode):
                        os.rename(each, next(fresh), src_dir_fd=inside, dst_dir_fd=top)
                    else:
                        os.unlink(each, dir_fd=inside)
            finally:
                os.close(inside)
            os.rmdir(name, dir_fd=top)


def remove_strange(folder: Path) -> None:
    """Remove what is neither a file nor a folder from the top of a folder: links, pipes, sockets.

    The agent opens files there by name, and must not be led elsewhere.
    """
    with os.scandir(folder) as entries:
        strange = [
            e.path
            for e in entries
            if not (e.is_file(follow_symlinks=False) or e.is_dir(follow_symlinks=False))
        ]
    for path in strange:
        os.unlink(path)  # noqa: PTH108


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)


def require_plain(path: Path, below: Path) -> bool:
    """Whether ``path`` is a file, or nothing at all, and no part of it from ``below`` on is a link."""
    place = below
    for part in path.relative_to(below).parts:
        place /= part
        if place.is_symlink():
            return False
    return path.is_file() or not path.exists()
