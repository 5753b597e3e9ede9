"""Finds the few lines of a simulator's log that matter, a block of the log at a time.

A log holds a line for every thread block and thousands of statistics a launch, so a loop over all lines in
Python would take longer than the simulator took to print them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from assay_sampling.errors import CutOffError, InputError
from assay_sampling.files.reading import read_blocks, require_file

BLOCK_BYTES = 1 << 22
_LONGEST_LINE_BYTES = 1 << 26
# Sums over channels and launches still fit into 64 bits.
LARGEST_COUNT = 2**53
_MOST_DIGITS = 18


class LogLine(NamedTuple):
    """A line: its 1-based number, the name it starts with, and the rest of it without surrounding blanks.

    ``whole`` is False for a last line without its line end: the file is cut off within it.
    """

    number: int
    name: bytes
    rest: bytes
    whole: bool


def starting_with(names: str, *, first: str = "") -> re.Pattern[bytes]:
    """The pattern of lines that start with one of ``names``, a regular expression of alternatives.

    ``first`` are the characters that any of them starts with, as in a set of a regular expression: lines that
    start otherwise are then passed over without a look at each name.
    """
    ahead = rb"(?=[" + first.encode() + rb"])" if first else b""
    return re.compile(rb"\n" + ahead + rb"(" + names.encode() + rb")([^\n]*)")


def matching_lines(
    path: Path, pattern: re.Pattern[bytes], on_cut: Callable[[CutOffError], None] | None = None
) -> Iterator[LogLine]:
    """Stream the lines of a log (plain, gzip or zstd) that ``pattern`` of :func:`starting_with` finds.

    Simulations are ended by limits and their logs cut off: of a compressed file that is cut off, ``on_cut``
    is told, and the whole lines before the cut are given.

    Raises InputError where the file cannot be read; for a damaged compressed file, and for a cut one without
    ``on_cut``, after the lines before it.
    """
    require_file(path)
    number = 0
    rest = b"\n"  # then every line starts after a line end, so a search for bytes finds it
    for block in _until_cut(path, on_cut):
        data = rest + block
        end = data.rfind(b"\n")
        yield from _in_block(data[:end], number, pattern, whole=True)
        number += data.count(b"\n", 0, end)
        rest = data[end:]
        if len(rest) > _LONGEST_LINE_BYTES:
            raise InputError(
                path, "it holds a line of more than 64 MiB", "name a simulator's log", line=number
            )
    yield from _in_block(rest, number, pattern, whole=False)


def _until_cut(path: Path, on_cut: Callable[[CutOffError], None] | None) -> Iterator[bytes]:
    try:
        yield from read_blocks(path, BLOCK_BYTES)
    except CutOffError as error:
        if on_cut is None:
            raise
        on_cut(error)


def _in_block(text: bytes, number: int, pattern: re.Pattern[bytes], *, whole: bool) -> Iterator[LogLine]:
    """Lines in ``text``, which starts with a line end; ``number`` lines are before it."""
    searched = 0
    for match in pattern.finditer(text):
        number += text.count(b"\n", searched, match.start() + 1)
        searched = match.start() + 1
        yield LogLine(number, match[1], match[2].strip(), whole)


def integer(path: Path, line: LogLine, text: bytes, field: str, most: int = LARGEST_COUNT) -> int:
    """``text`` as a whole number from 0 to ``most``; raises InputError with file, line and field."""
    digits = text.strip()
    value = int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else -1
    if not 0 <= value <= most:
        shown = digits.decode(errors="replace")[:40]
        raise InputError(
            path,
            f"{shown!r} is not a whole number from 0 to {most:,}",
            "copy the log again from where it was written",
            line=line.number,
            field=field,
        )
    return value
