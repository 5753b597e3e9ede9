"""Finds the launch rows among the lines of an Nsight Compute CSV.

The profiler shares its output with the application: lines of both come before, between and after the
launches, in any order. A line is a launch row if it begins with a whole ID in the style of the header
(quoted or not). All other lines are skipped and counted, except one that looks like a damaged launch row:
that is an error, because its launch would be lost silently.

Works on blocks of whole lines, so memory does not grow with the file.

Source: docs/reading-recordings.md, "Raw pages".
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from assay_sampling.errors import InputError
from assay_sampling.files.reading import read_blocks
from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK

BLOCK_BYTES = 4 << 20
_LONGEST_LINE_BYTES = 64 << 20
# A value may hold line ends (names of NVTX ranges); a row that needs more lines than this is damaged.
_MOST_LINES_OF_A_ROW = 256
_SPREADSHEETS = {"semicolons": ";", "tabs": "\t"}
_LINE_FEED, _QUOTE = ord("\n"), ord('"')
_CUT_REMEDY = "the row is cut or mixed with output of the application; profile again with --log-file"


@dataclass(frozen=True)
class Header:
    """The header line: field names, its line number, and the style that rows follow."""

    fields: tuple[str, ...]
    text: bytes
    line: int
    quoted: bool
    line_end: bytes = b"\n"


@dataclass(frozen=True)
class LineBlock:
    """Whole lines; ``first_line`` is the first one's 1-based number. Only the last may lack its line end."""

    data: bytes
    first_line: int


@dataclass(frozen=True)
class RowBlock:
    """Launch rows only; ``lines`` holds the line each row begins on, shape (n,).

    ``guessed`` is True where the lines were not checked one by one.
    """

    data: bytes
    lines: np.ndarray
    guessed: bool = False


@dataclass
class Preamble:
    """A summary of the text before the header: lines, launches announced, the mark, the first error.

    ``foreign_header`` is the line that would be a header if its fields were separated by commas, with the
    separator that it has instead.
    """

    lines: int = 0
    announced: int = 0
    error: str = ""
    marked_synthetic: bool = False
    foreign_header: tuple[int, str] | None = None


@dataclass
class Skipped:
    """Lines among the rows that are not launches."""

    lines: int = 0
    first_line: int = 0
    messages: list[str] = field(default_factory=list)

    def add(self, line: int, text: bytes) -> None:
        if not text.strip():
            return
        self.lines += 1
        self.first_line = self.first_line or line
        if text.startswith((b"==ERROR==", b"==WARNING==")) and len(self.messages) < 3:
            self.messages.append(text.decode(errors="replace").strip()[:300])


def line_blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """The file in blocks of whole lines. Raises InputError for a line of more than 64 MiB."""
    rest, line = b"", 1
    for block in read_blocks(path, block_bytes):
        cut = block.rfind(b"\n") + 1
        if not cut:
            rest += block
            if len(rest) > _LONGEST_LINE_BYTES:
                raise InputError(
                    path, "the line is longer than 64 MiB", "name a profiler's text file", line=line
                )
            continue
        data = rest + block[:cut]
        rest = block[cut:]
        yield LineBlock(data, line)
        line += data.count(b"\n")
    if rest:
        yield LineBlock(rest, line)


def parse_header(text: bytes, separator: str = ",") -> tuple[str, ...] | None:
    """The fields of a line that parses as CSV and has the fields "ID" and "Kernel Name", else None."""
    if b"Kernel Name" not in text or b"ID" not in text:
        return None
    try:
        decoded = text.removeprefix(b"\xef\xbb\xbf").decode()
        fields = next(csv.reader([decoded.rstrip("\r\n")], delimiter=separator, strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return None
    return tuple(fields) if {"ID", "Kernel Name"} <= set(fields) else None


def find_header(path: Path, blocks: Iterator[LineBlock]) -> tuple[Header, Preamble, LineBlock] | Preamble:
    """The header, a summary of the text before it, and the rest of its block.

    Returns only the summary if no line is a header.
    """
    preamble = Preamble()
    for block in blocks:
        if b"Kernel Name" not in block.data:
            _count(preamble, block.data)
            continue
        start, line = 0, block.first_line
        while start < len(block.data):
            end = block.data.find(b"\n", start) + 1 or len(block.data)
            text = block.data[start:end]
            fields = parse_header(text)
            if fields is not None:
                _count(preamble, block.data[:start])
                line_end = b"\r\n" if text.endswith(b"\r\n") else b"\n"
                header = Header(fields, text.rstrip(b"\r\n"), line, b'"' in text[:4], line_end)
                return header, preamble, LineBlock(block.data[end:], line + 1)
            preamble.foreign_header = preamble.foreign_header or _foreign_header(text, line)
            start, line = end, line + 1
        _count(preamble, block.data)
    return preamble


def _foreign_header(text: bytes, line: int) -> tuple[int, str] | None:
    """The line and its separator, if a spreadsheet of another locale wrote the header."""
    found = (name for name, separator in _SPREADSHEETS.items() if parse_header(text, separator) is not None)
    return next(((line, name) for name in found), None)


_ERROR_LINE = re.compile(rb"^==ERROR== *(.*?)\r?$", re.MULTILINE)
_MARK_LINE = re.compile(rb"^==[^\n]*" + SYNTHETIC_MARK.encode(), re.MULTILINE)


def _count(preamble: Preamble, data: bytes) -> None:
    preamble.lines += data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
    preamble.announced += data.count(b"==PROF== Profiling")
    preamble.marked_synthetic |= _MARK_LINE.search(data) is not None
    if not preamble.error and (match := _ERROR_LINE.search(data)):
        preamble.error = match[1].decode(errors="replace")[:500]


class RowScanner:
    """Sorts the lines after the header into launch rows and text.

    Args:
        path: the file, for messages.
        header: its header.
        least_fields: fewest fields that a row may have; None: as many as the header.
    """

    def __init__(self, path: Path, header: Header, least_fields: int | None = None) -> None:
        self.skipped = Skipped()
        self.announced = 0
        self._path = path
        self._header = header
        self._fields = len(header.fields)
        self._least_fields = self._fields if least_fields is None else least_fields
        quote = '"' if header.quoted else ""
        self._row = re.compile(rb'"\d+"(,|$)' if header.quoted else rb"\d+,")
        # The start of a launch row inside a line: an ID and a number after it (the process).
        glued = rf"{quote}\d+{quote},{quote}\d+" if header.quoted else r"(?!)"
        self._glued = re.compile(glued.encode())
        self._cut_start = re.compile(rb'"\d*$' if header.quoted else rb"\d+$")
        self._units = b'"",' if header.quoted else b","
        self._row_end = b'"' + header.line_end
        self._separator = b'","' if header.quoted else b","
        self._suspicious = max(3, self._fields // 2) if header.quoted else self._fields - 1
        self._carried: list[bytes] = []
        self._carried_line = 0

    def take_units(self, block: LineBlock) -> tuple[list[str] | None, LineBlock, bool]:
        """Read on to the units row or the first launch.

        Returns the units (None if there is no such row), the rest of the block, and whether either was
        found.
        """
        data, line = block.data, block.first_line
        start = 0
        while start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            text = data[start:end].rstrip(b"\r\n")
            if self._row.match(text) or self._cut_start.match(text):
                return None, LineBlock(data[start:], line), True
            if text.startswith(self._units) and text.count(self._separator) >= self._suspicious:
                return self.parse_row(text, line), LineBlock(data[end:], line + 1), True
            self._text(text, line, last=end == len(data) and not data.endswith(b"\n"))
            start, line = end, line + 1
        return None, LineBlock(b"", line), False

    def rows(self, block: LineBlock, *, may_be_whole: bool = True) -> RowBlock:
        """The launch rows of a block. A row that continues in the next block is held back until then."""
        if may_be_whole and not self._carried and self._all_rows(block.data):
            count = block.data.count(b"\n")
            lines = np.arange(block.first_line, block.first_line + count)
            return RowBlock(block.data, lines, guessed=True)
        return self._sorted_rows(block)

    def finish(self) -> None:
        """Call this at the end of the file; raises InputError if a row is unfinished."""
        if self._carried:
            raise self._damaged(self._carried_line)

    def blame(self, rows: RowBlock) -> InputError:
        """The error for rows that do not parse: it names the first bad one."""
        held, index, last = b"", 0, len(rows.lines) - 1
        for text in rows.data.splitlines(keepends=True):
            held += text
            if held.count(b'"') % 2:
                continue
            try:
                # Carriage returns within rows make more lines here than there are rows.
                self.parse_row(held.rstrip(b"\r\n"), int(rows.lines[min(index, last)]))
            except InputError as error:
                return error
            held, index = b"", index + 1
        return self._damaged(int(rows.lines[min(index, last)]))

    def _all_rows(self, data: bytes) -> bool:
        # Quotes at both ends of every line are nearly always right; the parser finds the exceptions.
        if not self._header.quoted or not data.startswith(b'"') or not data.endswith(self._row_end):
            return False
        characters = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(characters == _LINE_FEED)
        before = characters[ends - (len(self._row_end) - 1)]
        after = characters[ends[:-1] + 1]
        return bool((before == _QUOTE).all() and (after == _QUOTE).all())

    def _sorted_rows(self, block: LineBlock) -> RowBlock:
        kept: list[bytes] = []
        lines: list[int] = []
        texts = block.data.split(b"\n")
        unfinished = texts[-1] != b""
        if not unfinished:
            texts.pop()
        for index, raw in enumerate(texts):
            line, text = block.first_line + index, raw.removesuffix(b"\r")
            last = unfinished and index == len(texts) - 1
            if self._carried:
                if (row := self._carry_on(raw)) is not None:
                    kept.append(row)
                    lines.append(self._carried_line)
            elif self._row.match(text):
                if text.count(b'"') % 2:
                    self._carried, self._carried_line = [raw], line
                    continue
                self._check_end(text, line, last=last)
                kept.append(text)
                lines.append(line)
            else:
                self._text(text, line, last=last)
        data = b"\n".join(kept) + b"\n" if kept else b""
        return RowBlock(data, np.array(lines, np.int64))

    def _carry_on(self, raw: bytes) -> bytes | None:
        self._carried.append(raw)
        if len(self._carried) > _MOST_LINES_OF_A_ROW:
            raise self._damaged(self._carried_line)
        if raw.count(b'"') % 2 == 0:
            return None
        row = b"\n".join(self._carried).removesuffix(b"\r")
        self._carried = []
        self.parse_row(row, self._carried_line)
        return row

    def _check_end(self, text: bytes, line: int, *, last: bool) -> None:
        if last and not text.endswith(b'"'):
            # Without quotes nobody can tell "31.9" from a cut "31.94".
            raise self._damaged(line, "the last line has no line end, so it may be cut")
        if self._header.quoted and not text.endswith((b'"', b",")):
            raise self._damaged(line)

    def _text(self, text: bytes, line: int, *, last: bool) -> None:
        if text == self._header.text:
            raise InputError(
                self._path,
                f"a second report begins here (the first at line {self._header.line})",
                "split the file and give each report separately",
                line=line,
            )
        cut = last and self._cut_start.match(text)
        if cut or text.count(self._separator) >= self._suspicious or self._glued.search(text):
            raise self._damaged(line)
        if text.startswith(b"==PROF== Profiling"):
            self.announced += 1
        self.skipped.add(line, text)

    def parse_row(self, row: bytes, line: int) -> list[str]:
        """The fields of a row; raises InputError for the wrong number of them."""
        try:
            fields = next(csv.reader(io.StringIO(row.decode(), newline=""), strict=True), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise self._damaged(line, f"the row cannot be read ({error})") from error
        if not self._least_fields <= len(fields) <= self._fields:
            raise self._damaged(line, f"the row has {len(fields)} fields where the header has {self._fields}")
        return fields

    def _damaged(self, line: int, cause: str = "the row of a launch is damaged") -> InputError:
        return InputError(self._path, cause, _CUT_REMEDY, line=line)
