"""Reader of Nsight Compute's details page as CSV (``ncu --csv --page details``): one row a metric.

The rows of a launch are consecutive and name metrics by label ("Elapsed Cycles"), by name
(``--print-metric-name name``) or both; rule rows among them are skipped. The page picks a readable unit for
each row (us, ms), so each value is converted by its own row's unit. The launches are then read like those
of a raw page.

Values on this page are rounded as printed; counters without a row are absent. Streams: a block of the
file (4 MiB) and the launches in it are in memory at a time.

Source: docs/reading-recordings.md, "Details pages".
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from assay_sampling.errors import InputError
from assay_sampling.launches.table import LaunchBatch, launch_schema
from assay_sampling.notes.registry import make_note
from assay_sampling.readers.base import (
    OpenRecording,
    ReadOptions,
    check_mark,
    check_offset,
    foreign_metadata,
)
from assay_sampling.readers.ncu.columns import PUSH_POP, ColumnError, make_layout
from assay_sampling.readers.ncu.launches import LaunchMaker, devices_of, has_marked_rows
from assay_sampling.readers.ncu.lines import (
    BLOCK_BYTES,
    LineBlock,
    Preamble,
    RowBlock,
    RowScanner,
    find_header,
    line_blocks,
)
from assay_sampling.readers.ncu.pivot import MetricRows, Pivot, WideTable
from assay_sampling.readers.ncu.raw_page import TOOL, no_header, no_launches, text_notes

FORMAT = "ncu-details-csv"
_REQUIRED = ("Metric Name", "Metric Unit", "Metric Value")
# The counters of a report are taken from its first launches, which are read when it is opened.
_FIRST_BLOCK_BYTES = 1 << 20


class NcuDetailsReader:
    """Recognises the header of a details page. Comes before the reader of raw pages."""

    format = FORMAT

    def recognises(self, path: Path, head: bytes) -> bool:
        if b"\0" in head and b"Kernel Name" not in head:
            return False
        start = find_header(path, line_blocks(path, _FIRST_BLOCK_BYTES))
        return not isinstance(start, Preamble) and set(_REQUIRED) <= set(start[0].fields)

    def open(self, path: Path, options: ReadOptions) -> NcuDetailsRecording:
        check_offset(path, options)
        return NcuDetailsRecording(path, options)


class NcuDetailsRecording(OpenRecording):
    """A details page; see the module."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._options = options
        scan = _Scan(path, _FIRST_BLOCK_BYTES)
        first = next(scan.tables(), None)
        if first is None:
            raise no_launches(path, scan.preamble)
        self._metrics = first.metrics
        fields, units = first.header()
        try:
            self._layout = make_layout(fields, units)
        except ColumnError as error:
            raise InputError(path, error.cause, error.remedy, field=error.name) from error
        table = first.table(self._metrics)
        self._devices = devices_of(self._layout, table)
        self._marked_synthetic = scan.preamble.marked_synthetic or has_marked_rows(self._layout, table)
        check_mark(path, options, marked_synthetic=self._marked_synthetic)
        metadata = foreign_metadata(
            options,
            level="detailed",
            format_=FORMAT,
            tool=TOOL,
            devices=tuple(self._devices.values()),
            marked_synthetic=self._marked_synthetic,
        )
        counters = [source.column for source in self._layout.counters]
        schema = launch_schema(metadata, counters, operations=self._layout.has(PUSH_POP))
        super().__init__(path, FORMAT, schema)

    def _read(self, max_launches: int) -> Iterator[LaunchBatch]:
        scan = _Scan(self.path, BLOCK_BYTES)
        maker = LaunchMaker(
            self.path,
            self._layout,
            self._options,
            self._devices,
            marked_synthetic=self._marked_synthetic,
        )
        launches = 0
        late: set[str] = set()
        for wide in scan.tables():
            table = wide.table(self._metrics)
            launches += table.num_rows
            late |= set(wide.metrics) - set(self._metrics)
            for start in range(0, table.num_rows, max_launches):
                self._lines = wide.lines[start : start + max_launches]
                yield maker.batch(self.schema, table.slice(start, max_launches), self._lines)
        self.notes.append(make_note("values_rounded"))
        self.notes.extend(make_note("metric_late", metric=name) for name in sorted(late))
        self.notes.extend(text_notes(scan.preamble, scan.scanner, launches))
        self.notes.extend(maker.notes())


class _Scan:
    """One pass over the file: header, then the launches of a block at a time as wide tables."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self._path = path
        self._blocks = line_blocks(path, block_bytes)
        start = find_header(path, self._blocks)
        if isinstance(start, Preamble):
            raise no_header(path, start)
        self.header, self.preamble, self._rest = start
        fields = self.header.fields
        missing = [name for name in ("ID", *_REQUIRED) if fields.count(name) != 1]
        if missing or fields[0] != "ID":
            raise InputError(
                path,
                f"the header must have the field {(missing or ['ID'])[0]!r} exactly once, in its usual place",
                "export the page again: ncu --import REPORT --csv --page details",
                line=self.header.line,
            )
        self._value = fields.index("Metric Value")
        self._name = fields.index("Metric Name")
        self.scanner = RowScanner(path, self.header, least_fields=self._value + 1)
        self._usual_fields: dict[bool, int] = {}

    def tables(self) -> Iterator[WideTable]:
        """The launches of the file; raises InputError where a row is damaged or the last launch is cut."""
        pivot = Pivot(self._path, self.header.fields)
        pivot.add(self._rows(self._rest))
        for block in self._blocks:
            yield from pivot.take(last=False)
            pivot.add(self._rows(block))
        self.scanner.finish()
        yield from pivot.take(last=True)
        pivot.check_last()

    def _rows(self, block: LineBlock) -> MetricRows:
        """The metric rows of a block; rule rows are only checked."""
        row_block = self.scanner.rows(block, may_be_whole=False)
        rows, lines = [], []
        for fields, line in zip(self._parsed(row_block), row_block.lines.tolist(), strict=True):
            is_metric = fields[self._name] != ""
            if len(fields) != self._usual_fields.setdefault(is_metric, len(fields)):
                raise InputError(
                    self._path,
                    f"the row has {len(fields)} fields, earlier ones have {self._usual_fields[is_metric]}",
                    "the file is cut or damaged; export the page again",
                    line=line,
                )
            if is_metric:
                rows.append(fields)
                lines.append(line)
        return MetricRows(rows, np.array(lines, np.int64))

    def _parsed(self, row_block: RowBlock) -> list[list[str]]:
        try:
            parsed = list(csv.reader(io.StringIO(bytes(row_block.data).decode(), newline=""), strict=True))
        except (UnicodeDecodeError, csv.Error):
            raise self.scanner.blame(row_block) from None
        if len(parsed) != len(row_block.lines) or any(len(row) <= self._value for row in parsed):
            raise self.scanner.blame(row_block)
        return parsed
