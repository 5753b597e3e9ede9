"""Reader of Nsight Compute's raw page as CSV (``ncu --csv --page raw``), classic and modern layout.

Streams: a block of the file (8 MiB) is in memory at a time, besides the distinct names.

What is read: one launch a row. ``launch`` is the report ID, or with a launch offset N: N, N + 1, ... in
row order within the process; ``process`` is the ordinal of the Process ID by first appearance. A value
that was not measured (``n/a``, ``nan``) is null and counted in the notes; everything else that is no
number is an error with file, line and field.

Source: spec of PKA, section (a); of Nsight Compute, section 1.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from assay_sampling.errors import InputError
from assay_sampling.launch_table import Device, LaunchBatch, launch_schema, make_batch
from assay_sampling.readers.base import (
    DEFAULT_MAX_LAUNCHES,
    LaunchNumbers,
    NameTracker,
    OpenRecording,
    ReadOptions,
    check_offset,
    foreign_metadata,
)
from assay_sampling.readers.ncu_columns import (
    CellError,
    ColumnError,
    Converter,
    Layout,
    cells,
    make_layout,
)
from assay_sampling.readers.ncu_lines import (
    BLOCK_BYTES,
    Header,
    LineBlock,
    Preamble,
    RowBlock,
    RowScanner,
    find_header,
    line_blocks,
)
from assay_sampling.readers.numbers import parse_numbers

FORMAT = "ncu-raw-csv"
_TOOL = "Nsight Compute"
# A report's devices are taken from its first rows, which are read when it is opened.
_FIRST_BLOCK_BYTES = 1 << 20


class NcuCsvReader:
    """Recognises the header line wherever it stands in the file."""

    format = FORMAT

    def recognises(self, path: Path, head: bytes) -> bool:
        if b"\0" in head and b"Kernel Name" not in head:
            return False  # binary; an application that prints NULs is told by the header
        if head.startswith(b"==") or b"\n==PROF==" in head:
            return True
        found = find_header(path, line_blocks(path))
        return not isinstance(found, Preamble) or bool(found.error or found.announced)

    def open(self, path: Path, options: ReadOptions) -> NcuCsvRecording:
        check_offset(path, options)
        return NcuCsvRecording(path, options)


class NcuCsvRecording(OpenRecording):
    """A raw page; see the module."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._options = options
        scan = _Scan(path, _FIRST_BLOCK_BYTES)
        layout = scan.layout
        first = next(scan.tables(), None)
        if first is None:
            raise _no_launches(path, scan.preamble)
        self._devices = _devices(path, layout, first[0])
        metadata = foreign_metadata(
            options,
            level="detailed",
            format_=FORMAT,
            tool=_TOOL,
            devices=tuple(self._devices.values()),
            units_assumed=scan.units is None,
        )
        schema = launch_schema(metadata, [source.column for source in layout.counters])
        super().__init__(path, FORMAT, schema)

    def batches(self, max_launches: int = DEFAULT_MAX_LAUNCHES) -> Iterator[LaunchBatch]:
        self.notes.clear()
        scan = _Scan(self.path, BLOCK_BYTES)
        state = _State(self.path, scan.layout, self._options, self._devices)
        rows = 0
        for table, lines in scan.tables():
            rows += table.num_rows
            for start in range(0, table.num_rows, max_launches):
                part = table.slice(start, max_launches)
                yield state.batch(self.schema, part, lines[start : start + max_launches])
        self.notes.extend(_notes(scan, state, rows))


class _Scan:
    """One pass over the file: header, units, then tables of text cells with their line numbers."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self.path = path
        self._blocks = line_blocks(path, block_bytes)
        found = find_header(path, self._blocks)
        if isinstance(found, Preamble):
            raise _no_header(path, found)
        self.header, self.preamble, rest = found
        _refuse_details_page(path, self.header)
        self.scanner = RowScanner(path, self.header)
        self.units, self._rest = self._read_units(rest)
        try:
            self.layout = make_layout(self.header.fields, self.units)
        except ColumnError as error:
            raise InputError(
                path, error.cause, error.remedy, line=self.header.line, field=error.name
            ) from error

    def _read_units(self, rest: LineBlock) -> tuple[list[str] | None, LineBlock]:
        units, block, settled = self.scanner.take_units(rest)
        while not settled:
            following = next(self._blocks, None)
            if following is None:
                break
            units, block, settled = self.scanner.take_units(following)
        return units, block

    def tables(self) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Tables of text cells (columns named by position) and the line of each row, shape (n,)."""
        if self._rest.data:
            yield from self._table(self._rest)
        for block in self._blocks:
            yield from self._table(block)
        self.scanner.finish()

    def _table(self, block: LineBlock) -> Iterator[tuple[pa.Table, np.ndarray]]:
        rows = self.scanner.rows(block)
        table = self._parse(rows)
        if table is None and rows.guessed:
            rows = self.scanner.rows(block, may_be_whole=False)
            table = self._parse(rows)
        if table is None:
            raise self.scanner.blame(rows)
        if table.num_rows:
            yield table, rows.lines

    def _parse(self, rows: RowBlock) -> pa.Table | None:
        """The needed cells as text; None where the rows are not all what they should be."""
        names = [str(index) for index in range(len(self.header.fields))]
        needed = [str(index) for index in self.layout.needed()]
        if not rows.data:
            return pa.table({name: pa.array([], pa.string()) for name in needed})
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(rows.data),
                read_options=pyarrow.csv.ReadOptions(
                    column_names=names, use_threads=False, block_size=len(rows.data) + 1
                ),
                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=needed,
                    column_types=dict.fromkeys(needed, pa.string()),
                    strings_can_be_null=False,
                    null_values=[],
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(rows.lines):
            return None
        whole = pc.match_substring_regex(cells(table, self.layout.at("ID")), r"^\d{1,18}$")
        return table if pc.all(whole).as_py() else None


class _State:
    """What one pass carries from block to block: ordinals of processes, launch numbers, names."""

    def __init__(self, path: Path, layout: Layout, options: ReadOptions, devices: dict[int, Device]) -> None:
        self.names = NameTracker()
        self.converter = Converter(layout, self.names)
        self.unknown_devices: set[int] = set()
        self._path = path
        self._layout = layout
        self._offset = options.launch_offset
        self._numbers = LaunchNumbers(options.launch_offset or 0)
        self._processes: dict[str, int] = {}
        self._last_id: dict[int, tuple[int, int]] = {}
        self._devices = devices
        self._attributes: dict[str, str] = {}

    def batch(self, schema: pa.Schema, table: pa.Table, lines: np.ndarray) -> LaunchBatch:
        try:
            report_id = self.converter.integers(table, "ID", 0, 2**62)
            process = self._process(table)
            self._check_ids(process, report_id, lines)
            columns = self.converter.convert(table, lines)
            columns["device"] = self._device(table, columns, lines)
        except CellError as error:
            raise InputError(
                self._path,
                error.cause,
                "mend the line, or profile again with LC_ALL=C",
                line=int(lines[error.row]),
                field=error.name,
            ) from error
        columns["process"] = process
        columns["report_id"] = report_id
        columns["launch"] = report_id if self._offset is None else self._numbers.number(process)
        records = make_batch(schema, columns, num_rows=table.num_rows)
        return LaunchBatch(records, self.names.take_new())

    def _process(self, table: pa.Table) -> np.ndarray:
        if not self._layout.has("Process ID"):
            return np.zeros(table.num_rows, np.int64)
        encoded = cells(table, self._layout.at("Process ID")).dictionary_encode()
        ordinals = []
        for index, text in enumerate(encoded.dictionary.to_pylist()):
            if not text.strip().isdecimal():
                row = pc.index(encoded.indices, index).as_py()
                raise CellError(row, "Process ID", f"{text!r} is not a process ID")
            ordinals.append(self._processes.setdefault(text, len(self._processes)))
        taken: np.ndarray = np.array(ordinals, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]
        return taken

    def _check_ids(self, process: np.ndarray, report_id: np.ndarray, lines: np.ndarray) -> None:
        """Within a process IDs must grow: else two reports were joined, or rows are lost or doubled."""
        for ordinal in np.unique(process).tolist():
            rows = np.flatnonzero(process == ordinal)
            last_id, last_line = self._last_id.get(ordinal, (-1, 0))
            steps = np.diff(report_id[rows], prepend=last_id)
            if (steps <= 0).any():
                wrong = int(np.argmax(steps <= 0))
                before = int(lines[rows[wrong - 1]]) if wrong else last_line
                raise InputError(
                    self._path,
                    f"launch ID {report_id[rows[wrong]]} does not come after that of line {before}",
                    "give each report in a file of its own",
                    line=int(lines[rows[wrong]]),
                    field="ID",
                )
            self._last_id[ordinal] = (int(report_id[rows[-1]]), int(lines[rows[-1]]))

    def _device(
        self, table: pa.Table, columns: dict[str, pa.Array | np.ndarray], lines: np.ndarray
    ) -> np.ndarray:
        if "device" in columns:
            device = np.asarray(columns["device"])
            self.unknown_devices |= set(np.unique(device).tolist()) - self._devices.keys()
            return device
        # Without a field "Device" only the attributes could tell two kinds of GPU apart.
        for name in _ATTRIBUTES:
            if self._layout.has(name):
                texts = cells(table, self._layout.at(name))
                expected = self._attributes.setdefault(name, texts[0].as_py())
                same = pc.equal(texts, expected)
                if not pc.all(same).as_py():
                    raise CellError(
                        pc.index(same, False).as_py(),
                        name,
                        f"it is not {expected!r} as in the first launch: launches of several GPUs cannot be "
                        "told apart in this layout",
                    )
        return np.zeros(table.num_rows, np.int64)


_MAJOR = "device__attribute_compute_capability_major"
_MINOR = "device__attribute_compute_capability_minor"
_SM_COUNT = "device__attribute_multiprocessor_count"
_DISPLAY_NAME = "device__attribute_display_name"
_ATTRIBUTES = (_DISPLAY_NAME, _MAJOR, _MINOR, _SM_COUNT)


def _devices(path: Path, layout: Layout, table: pa.Table) -> dict[int, Device]:
    """The devices of the given rows by ordinal; without a field "Device" they are one, ordinal 0."""
    texts = [text.strip() for text in _column(layout, table, "Device")] or ["0"]
    devices: dict[int, Device] = {}
    for text in dict.fromkeys(texts):
        if not text.isdecimal() or int(text) >= 2**31:
            continue  # the batch with this row reports it with its line
        row = texts.index(text)
        attribute = {name: _column(layout, table, name)[row] for name in _ATTRIBUTES if layout.has(name)}
        capability = _column(layout, table, "CC")[row] if layout.has("CC") else ""
        if not capability and _MAJOR in attribute and _MINOR in attribute:
            capability = f"{attribute[_MAJOR]}.{attribute[_MINOR]}"
        sm_count = parse_numbers(pa.array([attribute.get(_SM_COUNT, "")])).values[0].as_py()
        devices[int(text)] = Device(
            index=int(text),
            name=attribute.get(_DISPLAY_NAME, ""),
            compute_capability=capability,
            sm_count=int(sm_count) if sm_count else None,
        )
    return dict(sorted(devices.items()))


def _column(layout: Layout, table: pa.Table, name: str) -> list[str]:
    return list(cells(table, layout.at(name)).to_pylist()) if layout.has(name) else []


def _notes(scan: _Scan, state: _State, rows: int) -> Iterator[str]:
    """What a person should know; raises InputError where there was no launch at all."""
    if not rows:
        raise _no_launches(scan.path, scan.preamble)
    layout, skipped, converter = scan.layout, scan.scanner.skipped, state.converter
    if scan.units is None:
        yield "the file has no units row: base units are assumed"
    if layout.totals_only:
        yield "only total numbers of blocks and threads are known: grid_x and block_x hold them"
    yield from layout.notes
    if skipped.lines:
        what = "line that is no launch was" if skipped.lines == 1 else "lines that are no launches were"
        yield f"{skipped.lines} {what} skipped, the first is line {skipped.first_line}"
    yield from (f"the profiler says: {message}" for message in skipped.messages)
    if scan.preamble.error:
        yield f"the profiler says: ==ERROR== {scan.preamble.error}"
    announced = scan.preamble.announced + scan.scanner.announced
    if announced > rows:
        yield f"the profiler announced {announced} launches, but the file holds {rows}: it may be cut"
    for name, count in converter.nulls.items():
        yield f"{name} was not measured for {count} launches, the first is line {converter.first_nulls[name]}"
    if converter.ranges_unread:
        yield f"the NVTX ranges of {converter.ranges_unread} launches are of a form that is not known"
    if state.unknown_devices:
        listed = ", ".join(str(index) for index in sorted(state.unknown_devices))
        yield f"devices {listed} appear only later in the file: their kind is not known"


def _refuse_details_page(path: Path, header: Header) -> None:
    if {"Metric Name", "Metric Value"} <= set(header.fields):
        raise InputError(
            path,
            "it is a details page of Nsight Compute (one row a metric), which is not supported",
            "export the raw page instead: ncu --import REPORT --csv --page raw --print-units base",
            line=header.line,
        )
    if header.fields[0] != "ID":
        raise InputError(
            path,
            "the header does not begin with the field ID",
            "export the raw page again: ncu --import REPORT --csv --page raw --print-units base",
            line=header.line,
        )


def _no_header(path: Path, preamble: Preamble) -> InputError:
    if preamble.error:
        permission = "ERR_NVGPUCTRPERM" in preamble.error
        return InputError(
            path,
            f"it holds no launches; the profiler says: ==ERROR== {preamble.error}",
            "let this user read performance counters (NVreg_RestrictProfilingToAdminUsers=0)"
            if permission
            else "mend what the profiler complains of and profile again",
        )
    return InputError(
        path,
        f'no line of {preamble.lines} is a header with the fields "ID" and "Kernel Name"',
        "write the report with: ncu --csv --page raw",
    )


def _no_launches(path: Path, preamble: Preamble) -> InputError:
    said = f"; the profiler says: ==ERROR== {preamble.error}" if preamble.error else ""
    return InputError(
        path,
        f"it has a header but holds no launches{said}",
        'where the log says "No kernels were profiled", a filter matched none or a child process ran them',
    )
