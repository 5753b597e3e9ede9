"""Identifies the build of a shared library cheaply: by the linker's build-id, else both ends of the file.

NVIDIA's driver library has a build-id; libcupti and others have none. Source: ELF-64 object file format,
version 1.5, chapter 2 (note segments); the note's name is "GNU" and its type 3.
"""

from __future__ import annotations

import hashlib
import struct
from typing import BinaryIO

_END_BYTES = 64 << 10
_LONGEST_NOTE = 64 << 10
_MOST_SEGMENTS = 256
_NOTE_SEGMENT, _BUILD_ID = 4, 3


def file_identity(file: BinaryIO, size_bytes: int) -> str:
    """``build-id:HEX``, or ``edges:HEX`` of size, first and last 64 KiB. Raises OSError."""
    build_id = _build_id(file)
    if build_id:
        return f"build-id:{build_id}"
    digest = hashlib.blake2b(str(size_bytes).encode(), digest_size=16)
    file.seek(0)
    digest.update(file.read(_END_BYTES))
    file.seek(max(0, size_bytes - _END_BYTES))
    digest.update(file.read(_END_BYTES))
    return f"edges:{digest.hexdigest()}"


def _build_id(file: BinaryIO) -> str:
    """As hexadecimal digits; "" for a file without one, or that is not a 64-bit little-endian ELF file."""
    file.seek(0)
    head = file.read(64)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return ""
    (table,) = struct.unpack_from("<Q", head, 32)
    entry_bytes, entries = struct.unpack_from("<HH", head, 54)
    if entry_bytes < 56 or table >= 1 << 62:
        return ""
    file.seek(table)
    segments = file.read(entry_bytes * min(entries, _MOST_SEGMENTS))
    for at in range(0, len(segments) - 55, entry_bytes):
        (kind,) = struct.unpack_from("<I", segments, at)
        offset, size = struct.unpack_from("<Q16xQ", segments, at + 8)
        if kind == _NOTE_SEGMENT and offset < 1 << 62:
            file.seek(offset)
            build_id = _build_id_in(file.read(min(size, _LONGEST_NOTE)))
            if build_id:
                return build_id
    return ""


def _build_id_in(notes: bytes) -> str:
    at = 0
    while at + 12 <= len(notes):
        name_bytes, content_bytes, kind = struct.unpack_from("<III", notes, at)
        content = at + 12 + (name_bytes + 3 & ~3)
        if kind == _BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[content : content + content_bytes].hex()
        at = content + (content_bytes + 3 & ~3)
    return ""
