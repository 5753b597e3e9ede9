"""Whether a zstd file is cut off, told from the sizes that its frames and blocks state.

The decompressor stops alike at a cut and at damage, and says which only in words. Nothing is decompressed.

Source: RFC 8878, 3.1.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

_MAGIC = 0xFD2FB528
_SKIPPED_FROM, _SKIPPED_TO = 0x184D2A50, 0x184D2A5F
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_REPEATED = 1


class _EndReachedError(Exception):
    """The file ends where a frame states more."""


def ends_within_a_frame(path: Path) -> bool:
    """Whether the file ends before the frame that it is in; False for bytes that are not a frame."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            while file.tell() < size:
                if not _pass_frame(file, size):
                    return False
        except _EndReachedError:
            return True
    return False


def _pass_frame(file: IO[bytes], size: int) -> bool:
    """Go behind the next frame; False if there is none."""
    magic = _number(file, 4)
    if _SKIPPED_FROM <= magic <= _SKIPPED_TO:
        _skip(file, _number(file, 4), size)
        return True
    if magic != _MAGIC:
        return False
    described = _number(file, 1)
    single, checked = described >> 5 & 1, described >> 2 & 1
    content = _CONTENT_SIZE_BYTES[described >> 6] or single
    _skip(file, (1 - single) + _DICTIONARY_BYTES[described & 3] + content, size)
    last = False
    while not last:
        block = _number(file, 3)
        last, kind, stated = bool(block & 1), block >> 1 & 3, block >> 3
        _skip(file, 1 if kind == _REPEATED else stated, size)
    _skip(file, 4 * checked, size)
    return True


def _number(file: IO[bytes], count: int) -> int:
    field = file.read(count)
    if len(field) < count:
        raise _EndReachedError
    return int.from_bytes(field, "little")


def _skip(file: IO[bytes], count: int, size: int) -> None:
    if file.tell() + count > size:
        raise _EndReachedError
    file.seek(count, os.SEEK_CUR)
