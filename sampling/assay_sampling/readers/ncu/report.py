"""Reader of Nsight Compute's binary reports (``.ncu-rep``, also zstd-compressed ``.ncu-repz``).

The container is checked first (:mod:`assay_sampling.readers.ncu.container`); then the package
``ncu_report`` (extra ``ncu-report``) reads the results in a separate process, and must return exactly as
many as the container holds. They are read like a raw page in the report's units. Process IDs come from the
container, because the package does not give them.

Memory here: one batch, and 24 bytes a launch for its process. The text cells are in a temporary file of
about 1 KB a launch.

Source: docs/reading-recordings.md, "Reports".
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.errors import InputError, MissingExtraError, StorageError
from assay_sampling.files.reading import PlainFile
from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK
from assay_sampling.launches.table import LaunchBatch, launch_schema
from assay_sampling.readers.base import (
    OpenRecording,
    ReadOptions,
    check_mark,
    check_offset,
    foreign_metadata,
)
from assay_sampling.readers.ncu import report_worker as worker
from assay_sampling.readers.ncu.columns import ColumnError, make_layout
from assay_sampling.readers.ncu.container import MAGIC, Container, read_container
from assay_sampling.readers.ncu.launches import HOST, LaunchMaker, devices_of
from assay_sampling.readers.ncu.ranges import Stacks, stacks_of_lists
from assay_sampling.readers.ncu.report_units import resolve_units

FORMAT = "ncu-report"
_EXPORT = "export it with the Nsight Compute that wrote it: ncu --import REPORT --csv --page raw"
_NEWER = f"install an ncu-report as new as the profiler, or {_EXPORT}"
_MODULE = "ncu_report"


def can_read_reports() -> bool:
    """Whether the package ``ncu_report`` is installed."""
    return _MODULE in sys.modules or importlib.util.find_spec(_MODULE) is not None


class NcuReportReader:
    """Recognises a report by its first bytes."""

    format = FORMAT

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC)

    def open(self, path: Path, options: ReadOptions) -> NcuReportRecording:
        check_offset(path, options)
        return NcuReportRecording(path, options)


class NcuReportRecording(OpenRecording):
    """A report; see the module. Raises MissingExtraError where the package is not installed."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._options = options
        plain = PlainFile(path)
        try:
            self._container = read_container(path, plain.path)
            marked = SYNTHETIC_MARK in self._container.hosts
            check_mark(path, options, marked_synthetic=marked)
            self._directory = tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True)
            try:
                self._out = Path(self._directory.name) / "results"
                answer = _read_results(path, plain.path, self._out, options.metrics)
                self._sheet = _Sheet(
                    path, self._out.with_suffix(".arrow"), answer, self._container, options.metrics
                )
                self._marked_synthetic = marked
                self._devices = devices_of(self._sheet.layout, self._sheet.table(slice(None)))
            except BaseException:
                self._directory.cleanup()
                raise
        finally:
            plain.close()
        metadata = foreign_metadata(
            options,
            level="detailed",
            format_=FORMAT,
            tool="Nsight Compute",
            tool_version=self._container.tool_version,
            devices=tuple(self._devices.values()),
            marked_synthetic=marked,
        )
        counters = [source.column for source in self._sheet.layout.counters]
        schema = launch_schema(metadata, counters, operations=self._sheet.has_ranges)
        super().__init__(path, FORMAT, schema)

    def _read(self, max_launches: int) -> Iterator[LaunchBatch]:
        maker = LaunchMaker(
            self.path,
            self._sheet.layout,
            self._options,
            self._devices,
            marked_synthetic=self._marked_synthetic,
            place="result",
        )
        for start in range(0, self._sheet.results, max_launches):
            part = slice(start, min(start + max_launches, self._sheet.results))
            places = np.arange(part.start, part.stop)
            yield maker.batch(self.schema, self._sheet.table(part), places, self._sheet.ranges(part))
        self.notes.extend(maker.notes())

    def close(self) -> None:
        self._sheet.close()
        self._directory.cleanup()


def _read_results(path: Path, plain: Path, out: Path, metrics: Sequence[str]) -> dict[str, Any]:
    """Let the worker read the report; returns its answer."""
    if not can_read_reports():
        raise MissingExtraError(f"reading {path}", _MODULE, "ncu-report")
    command = [sys.executable, "-P", "-m", worker.__name__, str(plain.absolute()), str(out), *metrics]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(out.with_suffix(".json").read_bytes())
    except (OSError, ValueError) as error:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        if lines and "No space left" in lines[0]:
            raise StorageError(
                str(path), f"{out.parent} has no room to read it", "free space, or point TMPDIR elsewhere"
            ) from error
        raise InputError(
            path,
            f"the package ncu-report crashed (status {ended.returncode}{': ' + lines[0] if lines else ''})",
            _NEWER,
        ) from error
    if "error" in answer:
        raise InputError(path, str(answer["error"]), _NEWER)
    return answer


class _Sheet:
    """The worker's text cells with the container's identities, as columns named by position."""

    def __init__(
        self,
        path: Path,
        arrow: Path,
        answer: dict[str, Any],
        container: Container,
        metrics: Sequence[str],
    ) -> None:
        self._source = pa.memory_map(str(arrow))
        reader = pa.ipc.open_file(self._source)
        self._cells = reader.read_all()
        self.results = self._cells.num_rows
        self._container = container
        if self.results != len(container.process_ids):
            raise InputError(
                path,
                f"the report holds {len(container.process_ids)} results, but the package ncu-report reads "
                f"{self.results} of them",
                _NEWER,
            )
        self._check_order(path)
        fields = ("ID", "Process ID", HOST, worker.NAME)
        try:
            report_units = resolve_units(answer["units"], answer["not_numbers"])
            self._metrics = [name for name in worker.wanted_metrics(metrics) if name in report_units.units]
            named = [worker.FIELDS.get(name, name) for name in self._metrics]
            units = [report_units.units[name] for name in self._metrics]
            layout = make_layout((*fields, *named), [""] * len(fields) + units, metrics)
            self.layout = replace(layout, notes=(*layout.notes, *report_units.notes))
        except ColumnError as error:
            raise InputError(path, error.cause, error.remedy, field=error.name) from error

    def _check_order(self, path: Path) -> None:
        """Processes are assigned to results by position, so the order must be the container's."""
        if len(set(self._container.process_ids)) == 1:
            return
        names = self._cells[worker.MANGLED].to_pylist()
        for number, (ours, theirs) in enumerate(zip(self._container.mangled_names, names, strict=True)):
            if ours and theirs and ours != theirs:
                raise InputError(
                    path,
                    f"result {number} of several processes is {ours!r}, but the package ncu-report gives "
                    f"{theirs!r}: launches cannot be assigned to their processes",
                    _EXPORT,
                )

    def table(self, part: slice) -> pa.Table:
        """Text cells of some results, columns named by position."""
        start, stop, _ = part.indices(self.results)
        cells = self._cells.slice(start, stop - start)
        columns = [
            pa.array([str(number) for number in range(start, stop)], pa.string()),
            pa.array(self._container.process_ids[start:stop], pa.string()),
            pa.array(self._container.hosts[start:stop], pa.string()),
            cells[worker.NAME],
            *(cells[name] for name in self._metrics),
        ]
        return pa.table(columns, names=[str(index) for index in range(len(columns))])

    @property
    def has_ranges(self) -> bool:
        """Whether any result was launched inside of an NVTX range."""
        return bool(pc.any(pc.not_equal(self._cells[worker.RANGES], "")).as_py())

    def ranges(self, part: slice) -> Stacks:
        """The NVTX ranges of some results."""
        texts = self._cells[worker.RANGES].slice(part.start, part.stop - part.start)
        return stacks_of_lists(texts.combine_chunks())

    def close(self) -> None:
        self._source.close()
