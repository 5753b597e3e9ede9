"""The stand-ins' report files: containers that cannot be mistaken for a real report.

Layout: magic (16 bytes), length of the payload (8 bytes, big endian), SHA-256 of the payload (32 bytes),
payload. The payload is compressed with zlib: length of a head (8 bytes), the head, a JSON document that
describes the columns, then the columns' numbers, 64 bits each, little endian. A file that is cut or
changed anywhere is rejected.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from array import array
from pathlib import Path
from typing import Any

from assay_virtual.tools.columns import Column, Columns, Numbers, Texts

_LENGTH_BYTES, _DIGEST_BYTES, _VALUE_BYTES = 8, 32, 8
_FAST = 1


class ContainerError(Exception):
    """The file is not a whole container of that kind; never leaves the stand-ins."""


def write_container(path: Path, magic: bytes, document: dict[str, Any], columns: Columns) -> None:
    """Write a report; raises OSError."""
    path.write_bytes(container_bytes(magic, document, columns))


def container_bytes(magic: bytes, document: dict[str, Any], columns: Columns) -> bytes:
    """The bytes of a report; ``magic`` has 16 bytes."""
    described, buffers = [], []
    for name, column in columns.by_name.items():
        values: Numbers = column.index if isinstance(column, Texts) else column
        texts = list(column.distinct) if isinstance(column, Texts) else None
        described.append([name, values.typecode, texts])
        buffers.append(_little_endian(values).tobytes())
    head = json.dumps({"document": document, "rows": columns.rows, "columns": described}).encode()
    payload = zlib.compress(b"".join((_length(head), head, *buffers)), _FAST)
    return b"".join((magic, _length(payload), hashlib.sha256(payload).digest(), payload))


def read_container(path: Path, magic: bytes) -> tuple[dict[str, Any], Columns]:
    """The document and the columns; raises OSError, or ContainerError for an incomplete or other file."""
    content = path.read_bytes()
    start = len(magic) + _LENGTH_BYTES + _DIGEST_BYTES
    if not content.startswith(magic) or len(content) < start:
        raise ContainerError("it is no report")
    length = int.from_bytes(content[len(magic) : len(magic) + _LENGTH_BYTES], "big")
    payload = content[start:]
    if len(payload) != length or hashlib.sha256(payload).digest() != content[start - _DIGEST_BYTES : start]:
        raise ContainerError("it is cut or damaged")
    unpacked = zlib.decompress(payload)
    at = _LENGTH_BYTES + int.from_bytes(unpacked[:_LENGTH_BYTES], "big")
    head = json.loads(unpacked[_LENGTH_BYTES:at])
    columns: dict[str, Column] = {}
    size = _VALUE_BYTES * head["rows"]
    for name, kind, texts in head["columns"]:
        values = _little_endian(array(kind, unpacked[at : at + size]))
        columns[name] = values if texts is None else Texts(tuple(texts), values)
        at += size
    return head["document"], Columns(columns)


def _length(content: bytes) -> bytes:
    return len(content).to_bytes(_LENGTH_BYTES, "big")


def _little_endian(values: Numbers) -> Numbers:
    """The values in the file's byte order, or back."""
    if sys.byteorder == "little":
        return values
    swapped = values[:]
    swapped.byteswap()
    return swapped
