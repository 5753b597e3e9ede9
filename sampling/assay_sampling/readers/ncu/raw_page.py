"""Reader of Nsight Compute's raw page as CSV (``ncu --csv --page raw``), classic and modern layout.

Streams: a block of the file (8 MiB) is in memory at a time, besides the distinct names.

Each row is one launch (:mod:`assay_sampling.readers.ncu.launches`). A value that was not measured
(``n/a``, ``nan``) is null and counted in the notes; any other text in place of a number is an error with
file, line and field.

Source: docs/reading-recordings.md, "Raw pages".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from assay_sampling.errors import InputError, NoLaunchesError
from assay_sampling.launches.table import LaunchBatch, launch_schema
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.readers.base import (
    OpenRecording,
    ReadOptions,
    check_mark,
    check_offset,
    foreign_metadata,
    said_by_profiler,
)
from assay_sampling.readers.ncu.cells import CellParser, part_of
from assay_sampling.readers.ncu.columns import DEVICE_FIELDS, PUSH_POP, ColumnError, make_layout
from assay_sampling.readers.ncu.launches import HOST, LaunchMaker, devices_of, has_marked_rows
from assay_sampling.readers.ncu.lines import (
    BLOCK_BYTES,
    Header,
    LineBlock,
    Preamble,
    RowScanner,
    find_header,
    line_blocks,
)

FORMAT = "ncu-raw-csv"
TOOL = "Nsight Compute"
# A report's devices are taken from its first rows, which are read when it is opened.
_FIRST_BLOCK_BYTES = 1 << 20


class NcuCsvReader:
    """Recognises the header line anywhere in the file."""

    format = FORMAT

    def recognises(self, path: Path, head: bytes) -> bool:
        if b"\0" in head and b"Kernel Name" not in head:
            return False  # binary; with a header, an application printed the NULs
        if head.startswith(b"==") or b"\n==PROF==" in head:
            return True
        start = find_header(path, line_blocks(path, _FIRST_BLOCK_BYTES))
        return not isinstance(start, Preamble) or bool(start.error or start.announced or start.foreign_header)

    def open(self, path: Path, options: ReadOptions) -> NcuCsvRecording:
        check_offset(path, options)
        return NcuCsvRecording(path, options)


class NcuCsvRecording(OpenRecording):
    """A raw page; see the module."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._options = options
        scan = _Scan(path, _FIRST_BLOCK_BYTES, options.metrics)
        layout = scan.layout
        first = next(scan.tables(), None)
        if first is None:
            raise no_launches(path, scan.preamble)
        self._devices = devices_of(layout, first[0])
        self._marked_synthetic = scan.preamble.marked_synthetic or has_marked_rows(layout, first[0])
        check_mark(path, options, marked_synthetic=self._marked_synthetic)
        # Fields that the launches after the first ones need not tell again.
        of_devices = DEVICE_FIELDS if layout.has("Device") else ()
        self._settled = (*of_devices, HOST) if self._marked_synthetic else of_devices
        metadata = foreign_metadata(
            options,
            level="detailed",
            format_=FORMAT,
            tool=TOOL,
            devices=tuple(self._devices.values()),
            units_assumed=scan.units is None,
            marked_synthetic=self._marked_synthetic,
        )
        counters = [source.column for source in layout.counters]
        schema = launch_schema(metadata, counters, operations=layout.has(PUSH_POP))
        super().__init__(path, FORMAT, schema)

    def _read(self, max_launches: int) -> Iterator[LaunchBatch]:
        scan = _Scan(self.path, BLOCK_BYTES, self._options.metrics, self._settled)
        maker = LaunchMaker(
            self.path,
            scan.layout,
            self._options,
            self._devices,
            marked_synthetic=self._marked_synthetic,
        )
        rows = 0
        for table, lines in scan.tables():
            rows += table.num_rows
            for start in range(0, table.num_rows, max_launches):
                self._lines = lines[start : start + max_launches]
                yield maker.batch(self.schema, part_of(table, start, max_launches), self._lines)
        self.notes.extend(_notes(scan, maker, rows))


class _Scan:
    """One pass over the file: header, units, then tables of text cells with their line numbers."""

    def __init__(
        self, path: Path, block_bytes: int, metrics: Sequence[str], settled: Sequence[str] = ()
    ) -> None:
        self.path = path
        self._blocks = line_blocks(path, block_bytes)
        start = find_header(path, self._blocks)
        if isinstance(start, Preamble):
            raise no_header(path, start)
        self.header, self.preamble, rest = start
        _check_first_field(path, self.header)
        self.scanner = RowScanner(path, self.header)
        self.units, self._rest = self._read_units(rest)
        try:
            self.layout = make_layout(self.header.fields, self.units, metrics)
        except ColumnError as error:
            raise InputError(
                path, error.cause, error.remedy, line=self.header.line, field=error.name
            ) from error
        self._cells = CellParser(self.layout, settled)

    def _read_units(self, rest: LineBlock) -> tuple[list[str] | None, LineBlock]:
        units, block, settled = self.scanner.take_units(rest)
        while not settled:
            following = next(self._blocks, None)
            if following is None:
                break
            units, block, settled = self.scanner.take_units(following)
        return units, block

    def tables(self) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Tables of cells (columns named by position) and the line of each row, shape (n,)."""
        if self._rest.data:
            yield from self._table(self._rest)
        for block in self._blocks:
            yield from self._table(block)
        self.scanner.finish()

    def _table(self, block: LineBlock) -> Iterator[tuple[pa.Table, np.ndarray]]:
        rows = self.scanner.rows(block)
        table = self._cells.parse(rows)
        if table is None and rows.guessed:
            rows = self.scanner.rows(block, may_be_whole=False)
            table = self._cells.parse(rows)
        if table is None:
            raise self.scanner.blame(rows)
        if table.num_rows:
            yield table, rows.lines


def _notes(scan: _Scan, maker: LaunchMaker, rows: int) -> Iterator[Note]:
    """Notes on the whole file; raises InputError if it had no launch."""
    if not rows:
        raise no_launches(scan.path, scan.preamble)
    if scan.units is None:
        yield make_note("units_assumed")
    yield from text_notes(scan.preamble, scan.scanner, rows)
    yield from maker.notes()


def text_notes(preamble: Preamble, scanner: RowScanner, launches: int) -> Iterator[Note]:
    """Notes on the lines that are not launches, and on announced launches that are missing."""
    skipped = scanner.skipped
    if skipped.lines:
        yield make_note("lines_skipped", lines=skipped.lines, first_line=skipped.first_line)
    yield from (said_by_profiler(message) for message in skipped.messages)
    if preamble.error:
        yield said_by_profiler(f"==ERROR== {preamble.error}")
    announced = preamble.announced + scanner.announced
    if announced > launches:
        yield make_note("fewer_than_announced", announced=announced, launches=launches)


def _check_first_field(path: Path, header: Header) -> None:
    if header.fields[0] != "ID":
        raise InputError(
            path,
            "the header does not begin with the field ID",
            "export the raw page again: ncu --import REPORT --csv --page raw --print-units base",
            line=header.line,
        )


def no_header(path: Path, preamble: Preamble) -> InputError:
    """The error for a file in which no line is a header."""
    if preamble.error:
        permission = "ERR_NVGPUCTRPERM" in preamble.error
        return InputError(
            path,
            f"it holds no launches; the profiler says: ==ERROR== {preamble.error}",
            "let this user read performance counters (NVreg_RestrictProfilingToAdminUsers=0)"
            if permission
            else "fix what the profiler complains about and profile again",
        )
    if preamble.foreign_header is not None:
        line, separators = preamble.foreign_header
        return InputError(
            path,
            f"its fields are separated by {separators}, as a spreadsheet writes them; it may have changed "
            "numbers too",
            "give the file as ncu wrote it, or write it again: ncu --import REPORT --csv --page raw "
            "--print-units base",
            line=line,
        )
    return InputError(
        path,
        f'its {preamble.lines} lines contain no header with the fields "ID" and "Kernel Name"',
        "write the report with: ncu --csv --page raw",
    )


def no_launches(path: Path, preamble: Preamble) -> NoLaunchesError:
    """The error for a file with a header and nothing after it."""
    hint = f"; the profiler says: ==ERROR== {preamble.error}" if preamble.error else ""
    return NoLaunchesError(
        path,
        f"it has a header but holds no launches{hint}",
        'if the log says "No kernels were profiled", a filter matched none or a child process ran them',
    )
