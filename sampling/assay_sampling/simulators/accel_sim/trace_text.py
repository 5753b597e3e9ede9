"""Opens a trace of Accel-Sim in any compression, and reads its header and its text block by block.

Of ``.tracez``, the packed form of Accel-Sim 2.0, only the header is read: text that ends with a NUL.

Source: docs/simulator-files.md, "Traces".
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from assay_sampling.errors import InputError
from assay_sampling.files.reading import open_binary, reading, require_file

HEADER_BYTES = 1 << 16
PACKED_SUFFIX = ".tracez"
WARP = re.compile(rb"^warp *= *(\d+)[ \r]*$", re.MULTILINE)
_XZ_MAGIC = b"\xfd7zXZ\x00"
_CHUNK_BYTES = 1 << 20
# The largest preset, xz -9, needs 65 MiB.
_XZ_MEMORY_BYTES = 256 << 20
# A thread block is held as a whole: more text than this means a file without block ends, or not a trace.
_BLOCK_BYTES = 1 << 30
_AGAIN = "copy the trace again, or trace the launch again"
# Groups: mask, opcode, bytes per thread, the rest with mode and addresses.
_BODY = rb"[0-9a-fA-F]+ +([0-9a-fA-F]{1,8}) +\d+(?: +U?R\d+)* +(\S+) +\d+(?: +U?R\d+)* +(\d{1,5})(?!\d)(.*)$"


@dataclass(frozen=True)
class TraceHeader:
    """The header of one launch's trace.

    ``kernel_id`` is the 1-based launch in the traced process; ``grid`` in blocks, ``block`` in threads,
    (x, y, z); ``tracer_version`` says how lines are written; ``has_line_numbers``: each begins with one.
    """

    kernel_name: str
    kernel_id: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_memory_bytes: int
    registers_per_thread: int
    binary_version: int
    stream: int
    tracer_version: int
    has_line_numbers: bool
    nvbit_version: str = ""

    @property
    def blocks(self) -> int:
        """Thread blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


def read_header(path: Path) -> TraceHeader:
    """The header of a trace, packed or not; raises InputError unless the file is a grouped trace."""
    if is_packed(path):
        return parse_header(path, _packed_header(path))[0]
    with open_trace(path) as file:
        return parse_header(path, file.read(HEADER_BYTES))[0]


def is_packed(path: Path) -> bool:
    """Whether a trace is one of Accel-Sim 2.0, by its name."""
    return path.suffix == PACKED_SUFFIX


def _packed_header(path: Path) -> bytes:
    require_file(path, _AGAIN)
    with reading(path), path.open("rb") as file:
        text, end, _ = file.read(HEADER_BYTES).partition(b"\0")
    if not end:
        raise InputError(path, "its header does not end, as that of a .tracez does by a NUL", _AGAIN)
    return text


@contextmanager
def open_trace(path: Path) -> Iterator[TraceText]:
    """The decompressed trace; raises InputError for a damaged file, and for one of which we read the header
    alone."""
    require_file(path, _AGAIN)
    if is_packed(path):
        raise InputError(
            path,
            "of a .tracez only the header is read, and here its instructions are needed",
            "group the traces as text: post-traces-processing FOLDER --text",
        )
    try:
        with reading(path):
            with path.open("rb") as raw:
                is_xz = raw.read(len(_XZ_MAGIC)) == _XZ_MAGIC
            if is_xz:
                with path.open("rb") as packed:
                    yield TraceText(_Unpacked(packed))
            else:
                with open_binary(path) as file:
                    yield TraceText(file)
    except lzma.LZMAError as error:
        raise InputError(path, f"the compressed file is damaged ({error})", _AGAIN) from error


class _Unpacked:
    """Consecutive xz streams, unpacked within a memory limit, which a malicious header may exceed."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._unpacker: lzma.LZMADecompressor | None = None

    def read(self, size: int) -> bytes:
        while True:
            data = b""
            if self._unpacker is not None and self._unpacker.eof:
                # Streams may be padded by zeros to four bytes.
                data, self._unpacker = self._unpacker.unused_data.lstrip(b"\0"), None
            if self._unpacker is None:
                data = data or self._packed.read(_CHUNK_BYTES).lstrip(b"\0")
                if not data:
                    return b""
                self._unpacker = lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)
            elif self._unpacker.needs_input:
                data = self._packed.read(_CHUNK_BYTES)
                if not data:
                    raise EOFError
            if part := self._unpacker.decompress(data, size):
                return part


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class TraceText:
    """Reads that give all the bytes asked for unless the file ends."""

    def __init__(self, file: _Readable) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        parts = []
        while size and (part := self._file.read(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def parse_header(path: Path, head: bytes) -> tuple[TraceHeader, int]:
    """The header and the offset of what follows its last line, which begins with ``#``."""
    end = re.search(rb"^#.*\n", head, re.MULTILINE)
    fields: dict[str, str] = {}
    for line in head[: end.start() if end else len(head)].decode("utf-8", "replace").splitlines():
        key, separator, value = line.partition("=")
        if separator and key.startswith("-"):
            fields[key[1:].strip()] = value.strip()
    if end is None or "kernel name" not in fields:
        raise InputError(
            path,
            "it has no header of an Accel-Sim trace",
            "name a kernel-N.traceg (post-processing makes it of the tracer's kernel-N.trace)",
        )
    number = _Numbers(path, fields)
    header = TraceHeader(
        kernel_name=fields["kernel name"],
        kernel_id=number.integer("kernel id"),
        grid=number.triple("grid dim"),
        block=number.triple("block dim"),
        shared_memory_bytes=number.integer("shmem"),
        registers_per_thread=number.integer("nregs"),
        binary_version=number.integer("binary version"),
        stream=number.integer("cuda stream id", 0),
        tracer_version=number.integer("accelsim tracer version", 1),
        has_line_numbers=number.integer("enable lineinfo", 0) != 0,
        nvbit_version=fields.get("nvbit version", ""),
    )
    # Where the first "#" line begins a thread block already, it is part of what follows.
    return header, end.start() if head.startswith(b"#BEGIN_TB", end.start()) else end.end()


@dataclass(frozen=True)
class _Numbers:
    path: Path
    fields: dict[str, str]

    def integer(self, key: str, absent: int | None = None) -> int:
        text = self.fields.get(key)
        if text is None and absent is not None:
            return absent
        if text is None or not re.fullmatch(r"\d{1,18}", text):
            raise InputError(self.path, f"{text!r} is not a number", _AGAIN, field=key)
        return int(text)

    def triple(self, key: str) -> tuple[int, int, int]:
        match = re.fullmatch(
            r"\(\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)", self.fields.get(key, "")
        )
        if match is None or not all(map(int, match.groups())):
            raise InputError(self.path, f"{self.fields.get(key)!r} is not (x,y,z)", _AGAIN, field=key)
        return int(match[1]), int(match[2]), int(match[3])


def block_texts(path: Path, file: TraceText, data: bytes) -> Iterator[bytes]:
    """The text of each thread block, up to and with its ``#END_TB``; together they are the whole file."""
    end = b"#END_TB"
    searched, ended = 0, False
    while True:
        place = data.find(end, max(0, searched - len(end)))
        if place >= 0:
            yield data[: place + len(end)]
            data, searched = data[place + len(end) :], 0
        elif ended:
            break
        else:
            searched = len(data)
            if searched > _BLOCK_BYTES:
                raise InputError(path, f"a thread block is longer than {_BLOCK_BYTES:,} bytes", _AGAIN)
            # Doubling what is held keeps the copies of a long block few.
            part = file.read(max(_CHUNK_BYTES, searched))
            ended = not part
            data += part
    if data.strip():
        raise InputError(path, "it ends within a thread block", _AGAIN)


def instruction_pattern(header: TraceHeader) -> re.Pattern[bytes]:
    """Matches one instruction line; groups: mask, opcode, bytes for each thread, mode with addresses."""
    return re.compile(rb"^" + _prefix(header) + _BODY, re.MULTILINE)


def mask_pattern(header: TraceHeader) -> re.Pattern[bytes]:
    """Matches the start of one instruction line; its group is the mask of active lanes."""
    return re.compile(rb"^" + _prefix(header) + rb"[0-9a-fA-F]+ +([0-9a-fA-F]{1,8}) +\d", re.MULTILINE)


def _prefix(header: TraceHeader) -> bytes:
    if header.tracer_version < 3:
        return rb"(?:\d+ +){4}"  # block x, y, z and warp
    return rb"\d+ +" if header.tracer_version >= 4 and header.has_line_numbers else rb""
