"""The stand-ins' report files: own containers, never mistaken for a real report.

Layout: magic (16 bytes), length of the payload (8 bytes, big endian), SHA-256 of the payload (32 bytes),
payload. The payload is an Arrow IPC file of one table, compressed with zstd, whose schema metadata holds
a JSON document. A file that is cut or changed anywhere is noticed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

_LENGTH_BYTES, _DIGEST_BYTES = 8, 32
_DOCUMENT = b"assay-virtual"


class ContainerError(Exception):
    """The file is not a whole container of that kind; never leaves the stand-ins."""


def write_container(path: Path, magic: bytes, document: dict[str, Any], table: pa.Table) -> None:
    """Write a report; raises OSError."""
    path.write_bytes(container_bytes(magic, document, table))


def container_bytes(magic: bytes, document: dict[str, Any], table: pa.Table) -> bytes:
    """The bytes of a report; ``magic`` has 16 bytes."""
    table = table.replace_schema_metadata({_DOCUMENT: json.dumps(document).encode()})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    payload = sink.getvalue().to_pybytes()
    header = magic + len(payload).to_bytes(_LENGTH_BYTES, "big") + hashlib.sha256(payload).digest()
    return bytes(header + payload)


def read_container(path: Path, magic: bytes) -> tuple[dict[str, Any], pa.Table]:
    """The document and the table; raises OSError, or ContainerError where it is no whole report."""
    content = path.read_bytes()
    start = len(magic) + _LENGTH_BYTES + _DIGEST_BYTES
    if not content.startswith(magic) or len(content) < start:
        raise ContainerError("it is no report")
    length = int.from_bytes(content[len(magic) : len(magic) + _LENGTH_BYTES], "big")
    payload = content[start:]
    if len(payload) != length or hashlib.sha256(payload).digest() != content[start - _DIGEST_BYTES : start]:
        raise ContainerError("it is cut or damaged")
    with pa.ipc.open_file(payload) as reader:
        table = reader.read_all()
    return dict(json.loads(table.schema.metadata[_DOCUMENT])), table.replace_schema_metadata(None)
