"""Files that a confined program left: made harmless before the agent reads them.

No process of the run is alive then, so nothing changes under these hands.
"""

from __future__ import annotations

import os
from pathlib import Path


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


def require_plain(path: Path, below: Path) -> bool:
    """Whether ``path`` is a file, or nothing at all, and no part of it from ``below`` on is a link."""
    place = below
    for part in path.relative_to(below).parts:
        place /= part
        if place.is_symlink():
            return False
    return path.is_file() or not path.exists()
