"""The container of an Nsight Compute report (``.ncu-rep``): is it whole, and how many results are in it?

The package ``ncu_report`` loads empty, cut and garbage files without complaint, so the container is walked
first: "NVR\\0", a header, then blocks. Each block has a header (a protobuf message that says how many
sources and results follow and how long they are) and its payload of entries with their sizes. Sizes must
meet exactly at the end of the file. Only the first fields of each result are read.

A file that was cut exactly between two results of a report is a whole container, and Nsight Compute
itself takes it: only the profiler's log can tell how many launches there should be.

Memory: 24 bytes a result and the distinct names.

Source: docs/reading-recordings.md, "Reports"; two reports of version 2022.3 (file version 7).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from assay_sampling.errors import InputError
from assay_sampling.files.reading import reading

MAGIC = b"NVR\0"
_LONGEST_HEADER_BYTES = 1 << 30
# Identity stands at the front of a result, before its metrics.
_RESULT_HEAD_BYTES = 1 << 12
_AGAIN = "copy the report again from where it was written, or profile again"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


class _MessageError(ValueError):
    """Bytes that are not a protobuf message."""


@dataclass
class Container:
    """The identities of a report's results in file order, shape (n,), and the tool's version.

    ``process_ids`` and ``hosts`` are texts; ``mangled_names`` are the symbols of the kernels.
    """

    process_ids: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    mangled_names: list[str] = field(default_factory=list)
    tool_version: str = ""
    has_devices: bool = False


def read_container(path: Path, plain: Path) -> Container:
    """Walk the container.

    Args:
        path: the file as the user named it, for messages.
        plain: the file to read (a decompressed copy, or ``path`` itself).

    Raises InputError where the file is cut, garbage, or holds no results.
    """
    container = Container()
    with reading(path), plain.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if file.read(4) != MAGIC:
                raise _MessageError("it does not begin like a report")
            _sized(file, size)
            while file.tell() < size:
                _block(file, size, container)
        except _MessageError as error:
            raise InputError(
                path, f"the report is cut off or damaged at byte {file.tell():,} ({error})", _AGAIN
            ) from error
    if not container.process_ids:
        raise InputError(
            path,
            "the report holds no results",
            'if the log says "No kernels were profiled", a filter matched no kernel; otherwise profile again',
        )
    if not container.has_devices:
        raise InputError(path, "the report is cut off: it does not name its device", _AGAIN)
    return container


def _block(file: BinaryIO, size: int, container: Container) -> None:
    counts = {1: 0, 2: 0, 7: 0}  # sources, results, range results
    payload_bytes = 0
    process, host = "", ""
    for number, value in _fields(_block_header(file, size)):
        if number in counts and isinstance(value, int):
            counts[number] = value
        elif number == 5 and isinstance(value, int):
            payload_bytes = value
        elif number == 3 and isinstance(value, bytes):
            _session(value, container)
        elif number == 6 and isinstance(value, bytes):
            process, host = _process(value)
    end = file.tell() + payload_bytes
    if end > size:
        raise _MessageError(f"{end - size:,} bytes are missing")
    for _ in range(counts[1]):
        _skip(file, end)
    for _ in range(counts[2]):
        _result(file, end, container, process, host)
    for _ in range(counts[7]):
        _skip(file, end)
    file.seek(end)


def _block_header(file: BinaryIO, size: int) -> bytes:
    header = _sized(file, size)
    if not header:
        # Otherwise a file of zeros would be walked four bytes at a time.
        raise _MessageError("a block has an empty header")
    return header


def _sized(file: BinaryIO, size: int) -> bytes:
    """A message that follows its size."""
    length = _length(file, size)
    if length > _LONGEST_HEADER_BYTES:
        raise _MessageError(f"a header of {length:,} bytes")
    return file.read(length)


def _length(file: BinaryIO, end: int) -> int:
    head = file.read(4)
    length = int.from_bytes(head, "little")
    if len(head) < 4 or file.tell() + length > end:
        raise _MessageError("an entry reaches past the end")
    return length


def _skip(file: BinaryIO, end: int) -> None:
    length = _length(file, end)
    file.seek(length, os.SEEK_CUR)


def _result(file: BinaryIO, end: int, container: Container, process: str, host: str) -> None:
    length = _length(file, end)
    start = file.tell()
    head = file.read(min(length, _RESULT_HEAD_BYTES))
    mangled = ""
    for number, value in _fields(head, may_be_cut=length > len(head)):
        if number == 1 and isinstance(value, int):
            process = str(value)
        elif number == 5 and isinstance(value, bytes):
            mangled = value.decode(errors="replace")
        elif number > 5:
            break
    if not process:
        raise _MessageError("a result has no process")
    container.process_ids.append(process)
    container.hosts.append(host)
    container.mangled_names.append(mangled)
    file.seek(start + length)


def _process(message: bytes) -> tuple[str, str]:
    fields = dict(_fields(message))
    identifier, host = fields.get(1), fields.get(2)
    return (
        str(identifier) if isinstance(identifier, int) else "",
        host.decode(errors="replace") if isinstance(host, bytes) else "",
    )


def _session(message: bytes, container: Container) -> None:
    """Facts of the session: the devices, and the versions of the software."""
    for number, value in _fields(message):
        if number == 6:
            container.has_devices = True
        elif number == 8 and isinstance(value, bytes):
            software = dict(_fields(value))
            version = software.get(2)
            if software.get(1) == b"Nsight Compute Target" and isinstance(version, bytes):
                container.tool_version = version.decode(errors="replace").partition(" ")[0]


def _fields(message: bytes, *, may_be_cut: bool = False) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a message's fields; ``may_be_cut``: its end may be missing."""
    at, size = 0, len(message)
    while at < size:
        try:
            tag, at = _varint(message, at)
            kind = tag & 7
            if kind == _VARINT:
                value, at = _varint(message, at)
                yield tag >> 3, value
                continue
            length = _FIXED.get(kind, -1)
            if kind == _BYTES:
                length, at = _varint(message, at)
        except IndexError:
            length, at = 0, size + 1
        if length < 0:
            raise _MessageError("an entry is not a message")
        if at + length > size:
            if may_be_cut:
                return
            raise _MessageError("a field reaches past the end of its entry")
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _MessageError("a number has no end")
