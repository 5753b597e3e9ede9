"""Free disk space, and the minimum that every program leaves free."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from assay_sampling.errors import StorageError

DEFAULT_FLOOR_BYTES = 256 << 20


@dataclass(frozen=True)
class FreeSpace:
    """``free_bytes`` that this user may still write at ``place``, an existing file or folder."""

    place: Path
    free_bytes: int


def free_space(path: Path) -> FreeSpace:
    """The free space on the disk of ``path``, which need not exist yet; raises OSError."""
    place = existing_place(path)
    return FreeSpace(place, shutil.disk_usage(place).free)


def existing_place(path: Path) -> Path:
    """``path`` if it exists, else the nearest folder above it that does."""
    whole = path.absolute()
    return next(place for place in (whole, *whole.parents) if os.access(place, os.F_OK))


def require_free_space(
    subject: str, path: Path, floor_bytes: int, remedy: str, *, wanted_bytes: int = 0
) -> None:
    """Raise StorageError unless ``wanted_bytes`` can be written there and ``floor_bytes`` stay free.

    Raises OSError if the free space cannot be read. The error names ``subject``.
    """
    free_bytes = free_space(path).free_bytes
    if free_bytes - wanted_bytes < floor_bytes:
        raise StorageError(
            subject,
            f"no space: the disk has {free_bytes:,} bytes left, and {floor_bytes:,} must stay free",
            remedy,
        )
