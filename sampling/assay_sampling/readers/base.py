"""Protocols and options of the readers of profile files, and helpers that they share.

A reader turns one file into a stream of launch batches. It never holds the whole file as text; its module's
docstring says how many bytes a launch its state (a join, a sort) takes.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.counters.plausibility import Plausibility
from assay_sampling.errors import InputError, LaunchTableError
from assay_sampling.files.watching import note_launches
from assay_sampling.launches.table import (
    Condition,
    Device,
    LaunchBatch,
    Level,
    Names,
    Origin,
    TableMetadata,
    check_name,
    origin_of,
    text_columns,
)
from assay_sampling.notes.registry import Note, make_note

DEFAULT_MAX_LAUNCHES = 65536


@dataclass(frozen=True)
class ToolReport:
    """A report that only its tool reads.

    Args:
        path: the file as the user named it, for messages.
        plain: the file to read (a decompressed copy, or ``path`` itself).
        tool: which tool reads it.
        written_by: the release that wrote it, "" if unknown.
    """

    path: Path
    plain: Path
    tool: Literal["ncu", "nsys"]
    written_by: str = ""


# Lets the tool export a report into a folder, as a file that a reader knows; raises AssayError.
ReportExport = Callable[[ToolReport, Path], Path]


@dataclass(frozen=True)
class ReadOptions:
    """Facts that the user knows about a file and the file does not say.

    ``synthetic`` marks data that no silicon produced. ``launch_offset`` is the number of launches that
    the profiler skipped: launches are then numbered from it in row order within each process.
    ``condition`` is the condition the run was made under. ``metrics`` are metrics of the file to keep as
    counters under their own names, though the registry does not know them. ``export`` lets tools of this
    machine read their own reports where we cannot; None: such reports are refused. ``operations`` False: only
    launches are wanted, and a reader need not find their operators and operations where that takes time.
    """

    synthetic: bool | None = None
    launch_offset: int | None = None
    condition: Condition | None = None
    metrics: tuple[str, ...] = ()
    export: ReportExport | None = None
    operations: bool = True


DEFAULT_OPTIONS = ReadOptions()


class Recording(Protocol):
    """One opened file. A context manager; :meth:`batches` may be called again and starts afresh.

    ``notes`` tell the user what to know about the file; they are complete once all batches were read.
    """

    path: Path
    format: str
    schema: pa.Schema
    notes: list[Note]

    def batches(self, max_launches: int = DEFAULT_MAX_LAUNCHES) -> Iterator[LaunchBatch]:
        """The launches, at most ``max_launches`` in a batch; raises InputError where the file is damaged."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ProfileReader(Protocol):
    """A kind of file: recognised by what is in it, never by its name."""

    format: str

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a file that begins with ``head`` (decompressed) is of this kind."""
        ...

    def open(self, path: Path, options: ReadOptions) -> Recording:
        """Open it; raises InputError."""
        ...


class OpenRecording:
    """Base class of all readers' recordings."""

    def __init__(self, path: Path, format_: str, schema: pa.Schema) -> None:
        self.path = path
        self.format = format_
        self.schema = schema
        self.notes: list[Note] = []
        # How many launches it holds, if the file says so; 0 where it does not.
        self.expected_launches = 0
        # The file's lines that hold the launches of the latest batch, where the reader knows them.
        self._lines: np.ndarray | None = None

    def batches(self, max_launches: int = DEFAULT_MAX_LAUNCHES) -> Iterator[LaunchBatch]:
        """See :class:`Recording`; also raises InputError for numbers that no GPU can have counted."""
        plausibility = Plausibility(self.path, self.schema)
        self.notes.clear()
        batches = self._read(max_launches)
        while (batch := self._next(batches)) is not None:
            self._check_names(batch)
            plausibility.check(batch.records, self._lines)
            note_launches(self.path, batch.records.num_rows)
            yield batch
        self.notes.extend(plausibility.notes())

    def _next(self, batches: Iterator[LaunchBatch]) -> LaunchBatch | None:
        try:
            return next(batches, None)
        except LaunchTableError as error:
            raise InputError(self.path, error.cause, error.remedy) from error

    def _check_names(self, batch: LaunchBatch) -> None:
        """Raises InputError for a name that is too long, with the line of the first launch that has it."""
        for identifier, text in batch.new_names.items():
            try:
                check_name(text)
            except LaunchTableError as error:
                line = self._line_of(batch.records, identifier)
                raise InputError(self.path, error.cause, error.remedy, line=line) from error

    def _line_of(self, records: pa.RecordBatch, identifier: int) -> int | None:
        if self._lines is None:
            return None
        scalar = pa.scalar(identifier, pa.uint64())
        rows = [pc.index(records.column(name), scalar).as_py() for name in text_columns(records.schema)]
        return min((int(self._lines[row]) for row in rows if row >= 0), default=None)

    @abstractmethod
    def _read(self, max_launches: int) -> Iterator[LaunchBatch]:
        """The launches as the file has them; ``notes`` is empty at first, and complete at the end."""

    def close(self) -> None:
        """Close the files it holds open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def foreign_metadata(
    options: ReadOptions,
    *,
    level: Level,
    format_: str,
    tool: str,
    devices: tuple[Device, ...] = (),
    tool_version: str = "",
    units_assumed: bool = False,
    marked_synthetic: bool = False,
    origin: Origin | None = None,
) -> TableMetadata:
    """Table metadata of a file that another tool wrote. ``marked_synthetic``: the file itself says so;
    ``origin`` is None where the file and the user decide between measured and synthetic."""
    return TableMetadata(
        level=level,
        origin=origin or origin_of(synthetic=marked_synthetic or bool(options.synthetic)),
        condition=options.condition or Condition(),
        devices=devices,
        format=format_,
        tool=tool,
        tool_version=tool_version,
        units_assumed=units_assumed,
    )


# The tools' own words for events that they could not keep.
_LOST = re.compile(r"\b(drop(s|ped|ping)?|lost)\b", re.IGNORECASE)


def said_by_profiler(message: str) -> Note:
    """A profiler's message as a note; the only place that interprets a tool's words."""
    return make_note("profiler_lost_events" if _LOST.search(message) else "profiler_message", message=message)


class NameTracker:
    """Interns texts and remembers which ones the batch under construction is the first to use."""

    def __init__(self) -> None:
        self._names = Names()
        # Texts come again with every batch, and hashing them costs more than looking them up.
        self._identifiers: dict[str, int] = {}
        self._new: dict[int, str] = {}

    def intern(self, text: str) -> int:
        identifier = self._identifiers.get(text)
        if identifier is None:
            identifier = self._identifiers[text] = self._names.keep(text)
            self._new[identifier] = text
        return identifier

    def intern_indices(self, texts: list[str], indices: np.ndarray) -> pa.Array:
        """Ids of ``texts[indices]``, shape (n,), uint64; null where the index is negative.

        Interns only the texts that ``indices`` refer to.
        """
        used = np.flatnonzero(np.bincount(indices[indices >= 0]))
        identifiers = np.zeros(len(texts) + 1, np.uint64)
        for index in used.tolist():
            identifiers[index] = self.intern(texts[index])
        return pa.array(identifiers[indices], pa.uint64(), mask=indices < 0)

    def take_new(self) -> dict[int, str]:
        """The texts that came up since the last call, by id."""
        new, self._new = self._new, {}
        return new


class LaunchNumbers:
    """Numbers launches within each process, over many batches: ``offset``, ``offset`` + 1, ..."""

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset
        self._next: dict[int, int] = {}

    def number(self, process: np.ndarray) -> np.ndarray:
        """Launch ordinals for rows of the given process ordinals, both shape (n,)."""
        numbers = np.empty(len(process), np.int64)
        for ordinal in np.unique(process).tolist():
            rows = np.flatnonzero(process == ordinal)
            first = self._next.get(ordinal, self._offset)
            numbers[rows] = np.arange(first, first + len(rows))
            self._next[ordinal] = first + len(rows)
        return numbers


class CallNumbers:
    """Numbers calls, which go by their first launches, as those launches are numbered anew, over many
    batches. Memory: 16 bytes for each stretch of launches that had ordinals in a row."""

    def __init__(self) -> None:
        # By process, shape (s,) each: first and last ordinal of each stretch, and the new one of the first.
        self._stretches: dict[int, np.ndarray] = {}
        self._without_first: dict[tuple[int, int], int] = {}

    def number(
        self, process: np.ndarray, was: np.ndarray, launch: np.ndarray, call: np.ndarray
    ) -> np.ndarray:
        """The call of each launch, shape (n,): ``was`` and ``launch`` are its old and new ordinal, ``call``
        the old call, -1 for none. A call whose first launch is not in the file takes the first that is."""
        numbers = np.full(len(call), -1, np.int64)
        for ordinal in np.unique(process).tolist():
            rows = np.flatnonzero(process == ordinal)
            first, last, new = self._extended(ordinal, was[rows], launch[rows])
            inside = rows[call[rows] >= 0]
            place = np.maximum(np.searchsorted(first, call[inside], "right") - 1, 0)
            beyond = call[inside] - first[place]
            numbers[inside] = new[place] + beyond
            missing = inside[(beyond < 0) | (call[inside] > last[place])]
            for row in missing.tolist():
                key = ordinal, int(call[row])
                numbers[row] = self._without_first.setdefault(key, int(launch[row]))
        return numbers

    def _extended(self, process: int, was: np.ndarray, launch: np.ndarray) -> np.ndarray:
        begins = np.append(True, np.diff(was) != 1)
        ends = np.append(begins[1:], True)
        stretches = np.stack([was[begins], was[ends], launch[begins]])
        before = self._stretches.get(process)
        goes_on = before is not None and np.array_equal(
            [before[1, -1] + 1, before[2, -1] + before[1, -1] - before[0, -1] + 1], stretches[[0, 2], 0]
        )
        if before is not None and goes_on:
            before[1, -1] = stretches[1, 0]
            stretches = stretches[:, 1:]
        if before is not None:
            stretches = np.concatenate([before, stretches], axis=1)
            stretches = stretches[:, np.argsort(stretches[0], kind="stable")]
        self._stretches[process] = stretches
        return stretches


def check_offset(path: Path, options: ReadOptions) -> None:
    """Raises InputError for a negative launch offset."""
    if options.launch_offset is not None and options.launch_offset < 0:
        raise InputError(path, f"the launch offset {options.launch_offset} is negative", "give 0 or more")


def check_mark(path: Path, options: ReadOptions, *, marked_synthetic: bool) -> None:
    """Raises InputError where the user calls data measured that the file marks as synthetic."""
    if marked_synthetic and options.synthetic is False:
        raise InputError(path, "it is marked synthetic, and that mark cannot be removed")


def refuse_synthetic_mark(path: Path, options: ReadOptions) -> None:
    """Raises InputError where the user calls a simulator's run synthetic."""
    if options.synthetic:
        raise InputError(
            path, "it is a simulator's run, which is neither measured nor synthetic", "leave out --synthetic"
        )
