"""Opens a file with the reader that recognises its content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from assay_sampling.errors import AssayError, InputError
from assay_sampling.files.reading import PlainFile, is_folder, read_head, require_file
from assay_sampling.gathering.from_batches import gather
from assay_sampling.gathering.named_range import (
    as_window,
    batch_in_window,
    restricted,
    rows_in_window,
    window_ids,
)
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES, Launches
from assay_sampling.readers.accel_sim import AccelSimReader
from assay_sampling.readers.assay_parquet import AssayParquetReader
from assay_sampling.readers.base import DEFAULT_OPTIONS, ProfileReader, ReadOptions, Recording, ToolReport
from assay_sampling.readers.exported import ExportedRecording
from assay_sampling.readers.kineto.reader import KinetoReader
from assay_sampling.readers.known_files import (
    RECORDING,
    SIMULATOR_OUTPUT,
    FileKind,
    known_file,
    known_file_at,
)
from assay_sampling.readers.ncu.container import MAGIC, read_container
from assay_sampling.readers.ncu.details_page import NcuDetailsReader
from assay_sampling.readers.ncu.raw_page import NcuCsvReader
from assay_sampling.readers.ncu.report import NcuReportReader, can_read_reports
from assay_sampling.readers.nsys.parquet_export import NsysParquetReader
from assay_sampling.readers.nsys.sqlite_export import NsysSqliteReader

# The order matters: text is tried last, because its header may be far down in the file.
READERS: tuple[ProfileReader, ...] = (
    AssayParquetReader(),
    NsysSqliteReader(),
    NcuReportReader(),
    KinetoReader(),
    AccelSimReader(),
    NcuDetailsReader(),
    NcuCsvReader(),
)

_FOLDERS = NsysParquetReader()

# Reports by suffix, for those that no reader knows by their content.
_REPORTS: dict[str, Literal["ncu", "nsys"]] = {
    ".ncu-rep": "ncu",
    ".ncu-repz": "ncu",
    ".nsys-rep": "nsys",
    ".qdrep": "nsys",
}

# First bytes of common files that Assay does not read, each with cause and remedy.
_REFUSED: tuple[tuple[bytes, str, str], ...] = (
    (
        b"version https://git-lfs",
        "it is a Git LFS pointer, not the file itself",
        "fetch it with: git lfs pull",
    ),
    (b"\xff\xfe", "it is UTF-16 text", "convert it to UTF-8, or redirect it with a shell that keeps bytes"),
    (b"\xfe\xff", "it is UTF-16 text", "convert it to UTF-8, or redirect it with a shell that keeps bytes"),
    (b"PK\x03\x04", "it is a zip archive", "unpack it and name the recording in it"),
)
_KINDS = (
    "Assay reads reports (.ncu-rep) and CSV pages (raw, details) of Nsight Compute, SQLite and Parquet "
    "exports of Nsight Systems, Kineto traces of the PyTorch profiler (JSON), the standard output of "
    "Accel-Sim, and its own Parquet files; single files also compressed by gzip or zstd. A table of "
    "another tool becomes a recording with: assay import table FILE --map MAPPING"
)


def open_recording(path: str | Path, options: ReadOptions = DEFAULT_OPTIONS) -> Recording:
    """Open a profile file of any known kind; the kind is found by content.

    Raises InputError where the file is missing, empty, unreadable, damaged, or of no known kind.
    """
    path = Path(path)
    if is_folder(path) and _FOLDERS.recognises(path, b""):
        return _FOLDERS.open(path, options)
    require_file(path)
    head = read_head(path)
    if not head:
        raise InputError(path, "it is empty once decompressed", "record it again")
    for magic, cause, remedy in _REFUSED:
        if head.startswith(magic):
            raise InputError(path, cause, remedy)
    kind = known_file(head)
    if kind is not None and kind is not SIMULATOR_OUTPUT:
        raise InputError(path, kind.explained, _KINDS)
    for reader in READERS:
        if reader.recognises(path, head):
            by_tool = isinstance(reader, NcuReportReader) and options.export and not can_read_reports()
            return _exported(path, "ncu", options, head) if by_tool else reader.open(path, options)
    tool = _REPORTS.get(path.suffix)
    if tool is not None and options.export is not None:
        return _exported(path, tool, options, head)
    if tool == "nsys" or path.suffix == ".qdstrm":
        raise InputError(
            path,
            "it is a binary report of Nsight Systems, which only its tool reads",
            "export it: nsys export -t sqlite REPORT",
        )
    raise InputError(path, "it is not a profile file of a known kind", _KINDS)


def _exported(
    path: Path, tool: Literal["ncu", "nsys"], options: ReadOptions, head: bytes
) -> ExportedRecording:
    """A report as its tool exports it; that of Nsight Compute is first checked to be whole."""
    plain = PlainFile(path)
    try:
        report, results = ToolReport(path, plain.path, tool), 0
        if head.startswith(MAGIC):
            container = read_container(path, plain.path)
            report = replace(report, written_by=container.tool_version)
            results = len(container.process_ids)
        return ExportedRecording(report, options, open_recording, results)
    finally:
        plain.close()


def what_is_this(path: Path) -> FileKind | None:
    """The kind of any file that a verb of Assay reads or writes; None if it is none, or cannot be read."""
    kind = known_file_at(path)
    if kind is not None:
        return kind
    try:
        if is_folder(path):
            return RECORDING if _FOLDERS.recognises(path, b"") else None
        head = read_head(path) if path.is_file() else b""
        return RECORDING if head and any(each.recognises(path, head) for each in READERS) else None
    except (AssayError, OSError, ValueError):
        return None


def read_launches(
    path: str | Path,
    options: ReadOptions = DEFAULT_OPTIONS,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    *,
    spill_beyond_bytes: int | None = None,
    whole: bool = False,
) -> Launches:
    """All launches of a file, in the order of (process, launch): in memory, or beyond the limit on disk
    (:func:`assay_sampling.gathering.from_batches.gather`). Of a light recording only those in the program's
    own window, if it names one (:mod:`assay_sampling.gathering.named_range`), unless all are wanted
    (``whole``).

    Raises InputError as :func:`open_recording`, RefusedError over the memory limit.
    """
    with open_recording(path, options) as recording:
        launches = gather(
            recording.batches(),
            recording.schema,
            sources=[str(path)],
            memory_limit_bytes=memory_limit_bytes,
            spill_beyond_bytes=spill_beyond_bytes,
            expected_launches=getattr(recording, "expected_launches", 0),
        )
        launches = replace(launches, notes=tuple(recording.notes))
    rows = np.empty(0, np.int64) if whole else rows_in_window(launches)
    if not len(rows):
        return launches
    if not launches.is_on_disk:
        return restricted(launches, rows)
    ids = window_ids(launches.names)
    with open_recording(path, options) as recording:
        batches = (batch_in_window(batch, ids) for batch in recording.batches())
        inside = gather(batches, recording.schema, sources=[str(path)], memory_limit_bytes=memory_limit_bytes)
        return as_window(replace(inside, notes=tuple(recording.notes)), len(launches))
