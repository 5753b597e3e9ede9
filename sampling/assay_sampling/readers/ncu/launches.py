"""Makes launches from Nsight Compute's tables of text cells, for every kind of its files.

A raw page is such a table; a details page and a binary report are converted to one. ``launch`` is
the report ID, or with a launch offset N: N, N + 1, ... in row order within the process; ``process`` is
the ordinal of the Process ID by first appearance.

Source: docs/reading-recordings.md, "Raw pages". Memory: 8 bytes a launch, its ID.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.arrays import distinct
from assay_sampling.errors import InputError
from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK
from assay_sampling.launches.table import Device, LaunchBatch, has_operations, make_batch
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.readers.base import LaunchNumbers, NameTracker, ReadOptions
from assay_sampling.readers.ncu.columns import (
    PUSH_POP,
    CellError,
    Converter,
    Layout,
    cells,
    encoded_cells,
)
from assay_sampling.readers.ncu.operations import OperationCalls
from assay_sampling.readers.ncu.ranges import Stacks, stacks_of_cells
from assay_sampling.readers.numbers import parse_numbers

_MOST_DIGITS = 12
_MEND = "fix the line, or profile again with LC_ALL=C"
_EXPORT = "read the report with a newer ncu-report, or export it: ncu --import REPORT --csv --page raw"


class LaunchMaker:
    """The state that one pass over a file keeps between tables: ordinals, launch numbers, names, nulls.

    Args:
        path: the file, for messages.
        layout: what the columns mean.
        options: what the user knows about the file.
        devices: the devices that are known, by ordinal.
        marked_synthetic: whether the file was found to be synthetic when it was opened.
        place: what the rows' numbers count: "line" or "result".
    """

    def __init__(
        self,
        path: Path,
        layout: Layout,
        options: ReadOptions,
        devices: dict[int, Device],
        *,
        marked_synthetic: bool = False,
        place: str = "line",
    ) -> None:
        self.names = NameTracker()
        self.converter = Converter(layout, self.names)
        self.unknown_devices: set[int] = set()
        self._operations = OperationCalls()
        self._ranges_unread = 0
        self._path = path
        self._layout = layout
        self._place = place
        self._marked_synthetic = marked_synthetic
        self._offset = options.launch_offset
        self._numbers = LaunchNumbers(options.launch_offset or 0)
        self._processes: dict[str, int] = {}
        self._last_id: dict[int, tuple[int, int]] = {}
        self._ids: dict[int, list[np.ndarray]] = {}
        self._devices = devices
        self._attributes: dict[str, str] = {}

    def batch(
        self, schema: pa.Schema, table: pa.Table, places: np.ndarray, ranges: Stacks | None = None
    ) -> LaunchBatch:
        """A batch of ``schema`` from text cells.

        Args:
            schema: the recording's.
            table: text cells, columns named by position.
            places: the line or result of each row, shape (n,).
            ranges: NVTX ranges if they come in no column.
        """
        try:
            report_id = self.converter.integers(table, "ID")
            process = self._process(table)
            self._check_ids(process, report_id, places)
            self._check_mark(table)
            columns = self.converter.convert(table, places)
            columns["device"] = self._device(table, columns)
        except CellError as error:
            raise self._error(int(places[error.row]), error.name, error.cause) from error
        columns["process"] = process
        columns["report_id"] = report_id
        columns["launch"] = report_id if self._offset is None else self._numbers.number(process)
        if ranges is None and self._layout.has(PUSH_POP):
            ranges = stacks_of_cells(cells(table, self._layout.at(PUSH_POP)))
        if ranges is not None:
            self._ranges_unread += ranges.unread
            paths = [stack.path for stack in ranges.distinct]
            columns["nvtx_id"] = self.names.intern_indices(paths, ranges.index)
        if ranges is not None and has_operations(schema):
            kernels = cells(table, self._layout.at("Kernel Name"))
            launch = np.asarray(columns["launch"])
            columns |= self._operations.columns(process, launch, kernels, ranges, self.names)
        records = make_batch(schema, columns, num_rows=table.num_rows)
        return LaunchBatch(records, self.names.take_new())

    def notes(self) -> Iterator[Note]:
        """Notes for the user, complete after the last table."""
        layout, converter, place = self._layout, self.converter, self._place
        if layout.totals_only:
            yield make_note("shapes_totals_only")
        yield from layout.notes
        if gap := self._gap():
            yield gap
        for name, count in converter.nulls.items():
            yield make_note(
                "counter_not_measured", counter=name, launches=count, place=place,
                first=converter.first_nulls[name],
            )  # fmt: skip
        if self._ranges_unread:
            yield make_note("nvtx_ranges_unread", launches=self._ranges_unread)
        yield from self._operations.notes()
        if self.unknown_devices:
            yield make_note("devices_unknown", devices=tuple(sorted(self.unknown_devices)))

    def _error(self, place: int, field: str, cause: str, remedy: str = "") -> InputError:
        if self._place == "line":
            return InputError(self._path, cause, remedy or _MEND, line=place, field=field)
        return InputError(self._path, f"{self._place} {place}: {cause}", remedy or _EXPORT, field=field)

    def _process(self, table: pa.Table) -> np.ndarray:
        if not self._layout.has("Process ID"):
            return np.zeros(table.num_rows, np.int64)
        encoded = encoded_cells(table, self._layout.at("Process ID"))
        ordinals = []
        for index, text in enumerate(encoded.dictionary.to_pylist()):
            if not text.strip().isdecimal():
                row = pc.index(encoded.indices, index).as_py()
                raise CellError(row, "Process ID", f"{text!r} is not a process ID")
            ordinals.append(self._processes.setdefault(text, len(self._processes)))
        process: np.ndarray = np.array(ordinals, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]
        return process

    def _check_ids(self, process: np.ndarray, report_id: np.ndarray, places: np.ndarray) -> None:
        """Within a process IDs must grow; otherwise two reports were joined, or rows were lost or copied."""
        for ordinal in np.flatnonzero(np.bincount(process)).tolist():
            rows = np.flatnonzero(process == ordinal)
            last_id, last_place = self._last_id.get(ordinal, (-1, 0))
            steps = np.diff(report_id[rows], prepend=last_id)
            if (steps <= 0).any():
                wrong = int(np.argmax(steps <= 0))
                before = int(places[rows[wrong - 1]]) if wrong else last_place
                raise self._error(
                    int(places[rows[wrong]]),
                    "ID",
                    f"launch ID {report_id[rows[wrong]]} does not come after that of {self._place} {before}",
                    "give each report as a separate file",
                )
            self._last_id[ordinal] = (int(report_id[rows[-1]]), int(places[rows[-1]]))
            self._ids.setdefault(ordinal, []).append(report_id[rows])

    def _gap(self) -> Note | None:
        """A note on IDs that are missing between the first and the last.

        IDs usually run over all processes of a report; where two processes share an ID, numbering starts
        again in each, and each is checked alone.
        """
        of_processes = [np.concatenate(ids) for ids in self._ids.values()]
        if not of_processes:
            return None
        ids = np.concatenate(of_processes)
        groups = [ids] if len(distinct(ids)) == len(ids) else of_processes
        missing = sum(int(np.ptp(group)) + 1 - len(group) for group in groups)
        first, last = int(ids.min()), int(ids.max())
        return make_note("ids_missing", missing=missing, first=first, last=last) if missing else None

    def _check_mark(self, table: pa.Table) -> None:
        if self._marked_synthetic or not self._layout.has(HOST):
            return
        row = _first_marked(self._layout, table)
        if row >= 0:
            raise CellError(row, HOST, "this launch is marked synthetic, and the first ones are not")

    def _device(self, table: pa.Table, columns: dict[str, pa.Array | np.ndarray]) -> np.ndarray:
        if "device" in columns:
            device = np.asarray(columns["device"])
            self.unknown_devices |= set(distinct(device).tolist()) - self._devices.keys()
            return device
        # Without a field "Device" only the attributes can tell two kinds of GPU apart.
        for name in _ATTRIBUTES:
            if self._layout.has(name):
                texts = encoded_cells(table, self._layout.at(name))
                expected = self._attributes.setdefault(name, texts[0].as_py())
                code = pc.index(texts.dictionary, expected).as_py()
                same = pc.equal(texts.indices, code)
                if not pc.all(same).as_py():
                    raise CellError(
                        pc.index(same, False).as_py(),
                        name,
                        f"it is not {expected!r} as in the first launch: launches of several GPUs cannot be "
                        "told apart in this layout",
                    )
        return np.zeros(table.num_rows, np.int64)


HOST = "Host Name"
_MAJOR = "device__attribute_compute_capability_major"
_MINOR = "device__attribute_compute_capability_minor"
_SM_COUNT = "device__attribute_multiprocessor_count"
_DISPLAY_NAME = "device__attribute_display_name"
_ATTRIBUTES = (_DISPLAY_NAME, _MAJOR, _MINOR, _SM_COUNT)


def devices_of(layout: Layout, table: pa.Table) -> dict[int, Device]:
    """The devices of the given rows by ordinal; without a field "Device" there is one, ordinal 0."""
    devices: dict[int, Device] = {}
    for text, row in _first_rows(layout, table).items():
        if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) >= 2**31:
            continue  # the batch with this row reports it with its line
        attribute = {name: _text(layout, table, name, row) for name in (*_ATTRIBUTES, "CC")}
        capability = attribute["CC"]
        # With --print-fp they are floating-point numbers, such as 8.00 and 6.00.
        major, minor, sm_count = (_whole(attribute[name]) for name in (_MAJOR, _MINOR, _SM_COUNT))
        if not capability and major and minor is not None:
            capability = f"{major}.{minor}"
        devices[int(text)] = Device(
            index=int(text),
            name=attribute[_DISPLAY_NAME],
            compute_capability=capability,
            sm_count=sm_count or None,
        )
    return dict(sorted(devices.items()))


def _first_rows(layout: Layout, table: pa.Table) -> dict[str, int]:
    """The first row of each device, by the device's text."""
    if not layout.has("Device"):
        return {"0": 0}
    encoded = encoded_cells(table, layout.at("Device"))
    rows: dict[str, int] = {}
    for index, text in enumerate(encoded.dictionary.to_pylist()):
        rows.setdefault(text.strip(), pc.index(encoded.indices, index).as_py())
    return rows


def _whole(text: str) -> int | None:
    value = parse_numbers(pa.array([text])).values[0].as_py()
    return None if value is None else int(value)


def has_marked_rows(layout: Layout, table: pa.Table) -> bool:
    """Whether a launch of the table carries the synthetic mark."""
    return layout.has(HOST) and _first_marked(layout, table) >= 0


def _first_marked(layout: Layout, table: pa.Table) -> int:
    """The first row with the synthetic mark, -1 if there is none."""
    hosts = encoded_cells(table, layout.at(HOST))
    mark = pc.index(hosts.dictionary, SYNTHETIC_MARK).as_py()
    row: int = pc.index(hosts.indices, mark).as_py() if mark >= 0 else -1
    return row


def _text(layout: Layout, table: pa.Table, name: str, row: int) -> str:
    """A text cell; "" where the file lacks the field."""
    return str(cells(table, layout.at(name))[row].as_py()) if layout.has(name) else ""
