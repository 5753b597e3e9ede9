"""``kernelslist.g``: the launches of a trace in order, and the copies to the device between them.

Source: docs/simulator-files.md, "Traces".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from assay_sampling.errors import InputError
from assay_sampling.files.reading import reading, require_file

_AGAIN = "copy the trace again, or trace the launches again"


@dataclass(frozen=True)
class MemoryCopy:
    """A line ``MemcpyHtoD`` of a list: device address and bytes."""

    address: int
    size_bytes: int

    @property
    def line(self) -> str:
        """As the tracer writes it."""
        return f"MemcpyHtoD,0x{self.address:016x},{self.size_bytes}"


@dataclass(frozen=True)
class KernelsList:
    """Traces of launches, in order, and the copies to the device; ``entries`` are both, as they follow each
    other."""

    path: Path
    traces: tuple[Path, ...]
    copies: tuple[MemoryCopy, ...]
    entries: tuple[Path | MemoryCopy, ...] = ()

    def line_of(self, trace: Path) -> int | None:
        """The 1-based line that names a trace, for messages."""
        with reading(self.path):
            lines = self.path.read_bytes().decode("utf-8", "surrogateescape").splitlines()
        return next((at for at, line in enumerate(lines, 1) if line.strip() == trace.name), None)


def read_kernels_list(path: Path) -> KernelsList:
    """Read ``kernelslist.g``: lines ``MemcpyHtoD,ADDRESS,BYTES`` and ``kernel...``; others are ignored.

    Traces are relative to the list's own folder. Raises InputError for a list that cannot be read, a copy
    that is not of that form, or a list without launches.
    """
    require_file(path, _AGAIN)
    entries: list[Path | MemoryCopy] = []
    with reading(path):
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("MemcpyHtoD"):
            entries.append(_copy(path, number, line))
        elif line.startswith("kernel"):
            entries.append(path.parent / line.strip())
    traces = tuple(entry for entry in entries if isinstance(entry, Path))
    if not traces:
        raise InputError(path, "it lists no launch", "name the kernelslist.g of a trace")
    copies = tuple(entry for entry in entries if isinstance(entry, MemoryCopy))
    return KernelsList(path, traces, copies, tuple(entries))


def _copy(path: Path, number: int, line: str) -> MemoryCopy:
    match = re.fullmatch(r"MemcpyHtoD,\s*(0x[0-9a-fA-F]{1,16})\s*,\s*(\d{1,15})\s*", line)
    if match is None:
        raise InputError(path, "not of the form MemcpyHtoD,ADDRESS,BYTES", _AGAIN, line=number)
    return MemoryCopy(int(match[1], 16), int(match[2]))
