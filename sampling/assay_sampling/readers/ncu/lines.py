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
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from assay_sampling.errors import InputError
from assay_sampling.files.reading import read_behind
from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK

BLOCK_BYTES = 8 << 20
_PIECE_BYTES = 1 << 18
_LONGEST_LINE_BYTES = 64 << 20
# A value may hold line ends (names of NVTX ranges); a row that needs more lines than this is damaged.
_MOST_LINES_OF_A_ROW = 256
# Lines before the header that name its fields without being one; applications print few.
_MOST_HEADERS_TRIED = 100_000
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

    data: bytes | memoryview
    first_line: int

    @cached_property
    def ends(self) -> np.ndarray:
        """Where its line feeds are, shape (lines,)."""
        # Masks of a whole block would not fit the cache.
        characters = self.characters
        pieces = [
            np.flatnonzero(characters[at : at + _PIECE_BYTES] == _LINE_FEED) + at
            for at in range(0, len(characters), _PIECE_BYTES)
        ]
        return np.concatenate([np.zeros(0, np.int64), *pieces])

    @property
    def characters(self) -> np.ndarray:
        return np.frombuffer(self.data, np.uint8)


@dataclass(frozen=True)
class RowBlock:
    """Launch rows only; ``lines`` holds the line each row begins on, shape (n,).

    ``guessed`` is True where the lines were not checked one by one.
    """

    data: bytes | memoryview
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

    def add_plain(self, lines: int, first_line: int) -> None:
        """Count lines that are not blank and say nothing; ``first_line`` is the first one's number."""
        self.lines += lines
        self.first_line = self.first_line or first_line

    def add(self, line: int, text: bytes) -> None:
        if not text.strip():
            return
        self.add_plain(1, line)
        if text.startswith((b"==ERROR==", b"==WARNING==")) and len(self.messages) < 3:
            self.messages.append(text.decode(errors="replace").strip()[:300])


def line_blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """The file in blocks of whole lines, each in memory that the next one takes.

    Raises InputError for a line of more than 64 MiB.
    """
    rest, line = bytearray(), 1
    for memory, end in read_behind(path, block_bytes, rest):
        cut = memory.rfind(b"\n", len(rest), end) + 1
        rest[:] = memory[cut:end]
        if cut:
            lines = LineBlock(memoryview(memory)[:cut], line)
            yield lines
            line += len(lines.ends)
        elif len(rest) > _LONGEST_LINE_BYTES:
            raise InputError(path, "the line is longer than 64 MiB", "name a profiler's text file", line=line)
    if rest:
        yield LineBlock(bytes(rest), line)


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
    preamble, tried = Preamble(), 0
    for block in blocks:
        for line, start, end in _lines_with(block, b"Kernel Name"):
            text = bytes(block.data[start:end])
            fields = parse_header(text)
            if fields is not None:
                _count(preamble, bytes(block.data[:start]))
                line_end = b"\r\n" if text.endswith(b"\r\n") else b"\n"
                header = Header(fields, text.rstrip(b"\r\n"), line, b'"' in text[:4], line_end)
                return header, preamble, LineBlock(block.data[end:], line + 1)
            tried += 1
            if tried > _MOST_HEADERS_TRIED:
                return preamble
            if preamble.foreign_header is None and (separators := _foreign_separators(text)):
                preamble.foreign_header = line, separators
        _count(preamble, bytes(block.data))
    return preamble


def _lines_with(block: LineBlock, word: bytes) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each line that has the word, its line end included."""
    end = 0
    for match in re.finditer(word, block.data):
        if match.start() >= end:
            index = int(np.searchsorted(block.ends, match.start()))
            start = int(block.ends[index - 1]) + 1 if index else 0
            end = int(block.ends[index]) + 1 if index < len(block.ends) else len(block.data)
            yield block.first_line + index, start, end


def _foreign_separators(text: bytes) -> str:
    """What separates the fields, if a spreadsheet of another locale wrote the header; else ""."""
    names = (name for name, separator in _SPREADSHEETS.items() if parse_header(text, separator) is not None)
    return next(names, "")


_ERROR_LINE = re.compile(rb"^==ERROR== *(.*?)\r?$", re.MULTILINE)
_MARK_LINE = re.compile(rb"^==[^\n]*" + SYNTHETIC_MARK.encode(), re.MULTILINE)


def _count(preamble: Preamble, data: bytes) -> None:
    preamble.lines += data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
    preamble.announced += data.count(b"==PROF== Profiling")
    preamble.marked_synthetic |= _MARK_LINE.search(data) is not None
    if not preamble.error and (match := _ERROR_LINE.search(data)):
        preamble.error = match[1].decode(errors="replace")[:500]


class _Lines:
    """The lines of a block; those that cannot be rows, nor tell anything, are counted and never looked at.

    A line is telling if it holds a separator of fields, begins like a row or a message of the profiler, or is
    the last one and not whole. Memory: 3 bytes a byte of the block, and 40 a line.
    """

    def __init__(self, block: LineBlock, separator: bytes) -> None:
        self.data, self.first_line = block.data, block.first_line
        characters, ends = block.characters, block.ends
        self.unfinished = bool(len(characters)) and characters[-1] != _LINE_FEED
        self._ends = np.append(ends, len(characters)) if self.unfinished else ends
        self._starts = np.concatenate([[0], self._ends[:-1] + 1])[: len(self._ends)]
        self._filled = np.concatenate([[0], np.cumsum(self._not_blank(characters))])
        self._telling = np.flatnonzero(self._are_telling(characters, separator)).tolist()

    def __len__(self) -> int:
        return len(self._ends)

    def text(self, index: int) -> bytes:
        """A line without its line feed."""
        return bytes(self.data[self._starts[index] : self._ends[index]])

    def end(self, index: int) -> int:
        """Where the line after this one begins."""
        return min(int(self._ends[index]) + 1, len(self.data))

    def telling_from(self, index: int) -> int:
        """The first telling line from ``index`` on; the number of lines if there is none."""
        at = bisect_left(self._telling, index)
        return self._telling[at] if at < len(self._telling) else len(self)

    def skip(self, first: int, last: int, skipped: Skipped) -> None:
        """Count the lines [first, last), which tell nothing."""
        lines = int(self._filled[last] - self._filled[first])
        if lines:
            filled = int(np.searchsorted(self._filled, self._filled[first] + 1)) - 1
            skipped.add_plain(lines, self.first_line + filled)

    def _not_blank(self, characters: np.ndarray) -> np.ndarray:
        # ASCII's white space: a tab to a carriage return, and the space; bytes wrap below the tab.
        ink = (characters - np.uint8(9) > 4) & (characters != 32)
        if not len(self):
            return np.zeros(0, bool)
        filled: np.ndarray = np.logical_or.reduceat(ink, self._starts)
        return filled

    def _are_telling(self, characters: np.ndarray, separator: bytes) -> np.ndarray:
        telling = np.zeros(len(self), bool)
        commas = np.flatnonzero(characters == ord(","))
        if len(separator) == 3:
            commas = commas[(commas > 0) & (commas < len(characters) - 1)]
            commas = commas[(characters[commas - 1] == _QUOTE) & (characters[commas + 1] == _QUOTE)]
        telling[np.searchsorted(self._ends, commas)] = True
        padded = np.append(characters, np.zeros(2, np.uint8))
        first, second = padded[self._starts], padded[self._starts + 1]
        telling |= (first == _QUOTE) & (second - np.uint8(48) <= 9)
        telling |= (first == ord("=")) & (second == ord("="))
        if self.unfinished:
            telling[-1] = True
        return telling


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
        whole = re.match(rb"[^\n]*\n", block.data)
        first = whole[0] if whole else b""
        if self._are_units(first):
            rest = LineBlock(block.data[len(first) :], block.first_line + 1)
            return self.parse_row(first.rstrip(b"\r\n"), block.first_line), rest, True
        lines, index = _Lines(block, self._separator), 0
        while True:
            following = lines.telling_from(index)
            lines.skip(index, following, self.skipped)
            index, line = following, block.first_line + following
            if index == len(lines):
                return None, LineBlock(b"", line), False
            text, end = lines.text(index).rstrip(b"\r"), lines.end(index)
            if self._row.match(text) or self._cut_start.match(text):
                return None, LineBlock(block.data[lines.end(index - 1) if index else 0 :], line), True
            if self._are_units(text):
                return self.parse_row(text, line), LineBlock(block.data[end:], line + 1), True
            self._text(text, line, last=lines.unfinished and index == len(lines) - 1)
            index += 1

    def _are_units(self, text: bytes) -> bool:
        return text.startswith(self._units) and text.count(self._separator) >= self._suspicious

    def rows(self, block: LineBlock, *, may_be_whole: bool = True) -> RowBlock:
        """The launch rows of a block. A row that continues in the next block is held back until then."""
        if may_be_whole and not self._carried and self._all_rows(block):
            lines = np.arange(block.first_line, block.first_line + len(block.ends))
            return RowBlock(block.data, lines, guessed=True)
        return self._sorted_rows(block)

    def finish(self) -> None:
        """Call this at the end of the file; raises InputError if a row is unfinished."""
        if self._carried:
            raise self._damaged(self._carried_line)

    def blame(self, rows: RowBlock) -> InputError:
        """The error for rows that do not parse: it names the first bad one."""
        row, index, last = b"", 0, len(rows.lines) - 1
        for text in bytes(rows.data).splitlines(keepends=True):
            row += text
            if row.count(b'"') % 2:
                continue
            try:
                # Carriage returns within rows make more lines here than there are rows.
                self.parse_row(row.rstrip(b"\r\n"), int(rows.lines[min(index, last)]))
            except InputError as error:
                return error
            row, index = b"", index + 1
        return self._damaged(int(rows.lines[min(index, last)]))

    def _all_rows(self, block: LineBlock) -> bool:
        # Quotes at both ends of every line are nearly always right; the parser finds the exceptions.
        if (
            not self._header.quoted
            or block.data[:1] != b'"'
            or block.data[-len(self._row_end) :] != self._row_end
        ):
            return False
        characters, ends = block.characters, block.ends
        before = characters[ends - (len(self._row_end) - 1)]
        after = characters[ends[:-1] + 1]
        return bool((before == _QUOTE).all() and (after == _QUOTE).all())

    def _sorted_rows(self, block: LineBlock) -> RowBlock:
        texts: list[bytes] = []
        places: list[int] = []
        lines, index = _Lines(block, self._separator), -1
        while (index := self._next(lines, index + 1)) < len(lines):
            raw, line = lines.text(index), block.first_line + index
            text = raw.removesuffix(b"\r")
            last = lines.unfinished and index == len(lines) - 1
            if self._carried:
                if (row := self._carry_on(raw)) is not None:
                    texts.append(row)
                    places.append(self._carried_line)
            elif self._row.match(text):
                if text.count(b'"') % 2:
                    self._carried, self._carried_line = [raw], line
                    continue
                self._check_end(text, line, last=last)
                texts.append(text)
                places.append(line)
            else:
                self._text(text, line, last=last)
        data = b"\n".join(texts) + b"\n" if texts else b""
        return RowBlock(data, np.array(places, np.int64))

    def _next(self, lines: _Lines, index: int) -> int:
        """The next line to look at; within a row that spans lines, each is part of it."""
        if self._carried:
            return index
        following = lines.telling_from(index)
        lines.skip(index, following, self.skipped)
        return following

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
