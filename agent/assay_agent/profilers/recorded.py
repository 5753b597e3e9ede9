"""The recorded profiler: plays a file of a real run back, at full speed or in recorded time.

Everything after it (spool, wire, store, analysis) cannot tell it from a live run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from assay_agent.execution.errors import ProfilerError
from assay_agent.profilers.pacing import Pace
from assay_core.records.attempt import AttemptLog
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import RecordedSource, Work
from assay_sampling.errors import AssayError
from assay_sampling.launches.checks import referenced_ids
from assay_sampling.launches.table import (
    LaunchBatch,
    TableMetadata,
    counter_columns,
    table_metadata,
    with_metadata,
)
from assay_sampling.notes.registry import flags_of
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.identity import condition_conflict, origin_of

if TYPE_CHECKING:
    from assay_sampling.readers.base import Recording


class RecordedProfiler:
    """Plays back ``work.recorded``; see :class:`assay_agent.profilers.seam.Profiler`."""

    name = "recorded"

    def plan(self, work: Work) -> list[str] | None:
        _source(work)
        return None

    def run(self, work: Work, cancelled: threading.Event) -> RecordedMeasurement:
        """Open the file, a report of Nsight through this box's own tool.

        Raises ProfilerError if the run cannot use it.
        """
        from assay_core.processes.tool_exports import export_report  # noqa: PLC0415
        from assay_sampling.readers.base import ReadOptions  # noqa: PLC0415
        from assay_sampling.readers.opening import open_recording  # noqa: PLC0415

        source = _source(work)
        try:
            recording = open_recording(source.path, ReadOptions(export=export_report))
        except AssayError as error:
            raise _unreadable(error) from error
        try:
            return RecordedMeasurement(work, source, recording, cancelled)
        except BaseException:
            recording.close()
            raise


def _source(work: Work) -> RecordedSource:
    if work.recorded is None or not work.recorded.path.is_absolute():
        path = "none" if work.recorded is None else repr(str(work.recorded.path))
        raise ProfilerError(
            FailureClass.INPUT_UNREADABLE,
            str(work.key),
            f"a recorded run needs the absolute path of a recording, but {path} was given",
            "name a file in the campaign",
        )
    if min(work.launch_skip, work.launch_count) < 0:
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            str(work.key),
            f"its window of launches (skip {work.launch_skip}, count {work.launch_count}) is negative",
        )
    return work.recorded


def _unreadable(error: AssayError) -> ProfilerError:
    return ProfilerError(FailureClass.INPUT_UNREADABLE, error.subject, error.cause, error.remedy)


class RecordedMeasurement:
    """One playing of one file; see :class:`assay_agent.profilers.seam.Measurement`."""

    def __init__(
        self, work: Work, source: RecordedSource, recording: Recording, cancelled: threading.Event
    ) -> None:
        self._recording = recording
        self._cancelled = cancelled
        self._skip = work.launch_skip
        self._rest = work.launch_count or None
        self._schema = with_metadata(recording.schema, _metadata_for(work, recording))
        self._pace = Pace(cancelled) if source.recorded_time else None
        self._unsent_names: dict[int, str] = {}
        self._counts = _LaunchCounts(self._schema)

    def batches(self) -> Iterator[LaunchBatch]:
        try:
            for batch in self._recording.batches():
                for records, names in self._window(batch):
                    yield from self._played(records, names)
                    self._counts.add(records)
                if self._rest == 0 or self._cancelled.is_set():
                    break
        except AssayError as error:
            raise _unreadable(error) from error
        if not self._counts.launches and not self._cancelled.is_set():
            raise ProfilerError(
                FailureClass.NOTHING_PROFILED,
                str(self._recording.path),
                "there is no launch in it, or none in the window of launches that was asked for",
                "check the recording with: assay inspect FILE",
            )

    def _window(self, batch: LaunchBatch) -> Iterator[tuple[pa.RecordBatch, Mapping[int, str]]]:
        """The part of a batch that is in the window, with the run's metadata and the names it needs."""
        records = batch.records
        skipped = min(self._skip, records.num_rows)
        self._skip -= skipped
        records = records.slice(skipped, self._rest)
        if self._rest is not None:
            self._rest -= records.num_rows
        cut = records.num_rows != batch.records.num_rows
        if cut or self._unsent_names:
            self._unsent_names.update(batch.new_names)
            used = referenced_ids(records).tolist()
            names = {i: self._unsent_names.pop(i) for i in used if i in self._unsent_names}
        else:
            names = dict(batch.new_names)
        if records.num_rows:
            yield pa.RecordBatch.from_arrays(records.columns, schema=self._schema), names

    def _played(self, records: pa.RecordBatch, names: Mapping[int, str]) -> Iterator[LaunchBatch]:
        if self._pace is None:
            yield LaunchBatch(records, names)
            return
        for position, piece in enumerate(self._pace.pieces(records)):
            yield LaunchBatch(piece, names if position == 0 else {})

    @property
    def flags(self) -> tuple[ValidityFlag, ...]:
        flags = self._counts.flags()
        if table_metadata(self._schema).units_assumed:
            flags.append(ValidityFlag("units_assumed", "the file gives no units; base units were assumed"))
        if self._pace is not None and not self._counts.timed:
            flags.append(
                ValidityFlag(
                    "recorded_time_unavailable",
                    "the recording has no start times, so it was played back at full speed",
                )
            )
        flag_names = {flag.name for flag in flags}
        noted = flags_of(self._recording.notes).items()
        return (*flags, *(ValidityFlag.of_kind(name, text) for name, text in noted if name not in flag_names))

    @property
    def log(self) -> AttemptLog:
        lines = [
            f"played back {self._recording.path} ({self._recording.format})",
            f"{self._counts.launches:,} launches",
            *(f"note: {note.text}" for note in self._recording.notes),
        ]
        return AttemptLog(text="\n".join(lines))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recording.close()


class _LaunchCounts:
    """Counts over the launches so far, for the validity flags."""

    def __init__(self, schema: pa.Schema) -> None:
        self.launches = 0
        self.timed = False
        self._missing = {counter.name: 0 for counter in counter_columns(schema)}
        self._totals_only = 0

    def add(self, records: pa.RecordBatch) -> None:
        self.launches += records.num_rows
        self.timed = self.timed or records.column("start_ns").null_count < records.num_rows
        for name in self._missing:
            self._missing[name] += records.column(name).null_count
        lacking = [records.column(name).is_null() for name in ("grid_y", "block_y")]
        self._totals_only += pc.sum(pc.or_(*lacking)).as_py() or 0

    def flags(self) -> list[ValidityFlag]:
        flags = []
        missing = [f"{name}: {n:,} of {self.launches:,} launches" for name, n in self._missing.items() if n]
        if missing:
            flags.append(ValidityFlag("counters_nan", "not measured (n/a or NaN): " + "; ".join(missing)))
        if self._totals_only:
            flags.append(
                ValidityFlag(
                    "shapes_totals_only",
                    f"{self._totals_only:,} of {self.launches:,} launches have only the total of blocks or "
                    "threads, not the three dimensions",
                )
            )
        return flags


def _metadata_for(work: Work, recording: Recording) -> TableMetadata:
    """The recording's metadata with the run's condition and synthetic mark; raises if they contradict."""
    metadata = table_metadata(recording.schema)
    if metadata.level != work.table_level:
        raise _contradiction(recording, "level", metadata.level, work.table_level)
    planned = origin_of(synthetic=work.synthetic)
    if metadata.simulated or (metadata.synthetic and not work.synthetic):
        raise _contradiction(recording, "origin", metadata.origin, planned)
    part = condition_conflict(metadata.condition, work.condition)
    if part is not None:
        recorded, expected = getattr(metadata.condition, part), getattr(work.condition, part)
        raise _contradiction(recording, f"condition ({part})", recorded, expected)
    condition = replace(
        metadata.condition, **{k: v for k, v in work.condition.to_dict().items() if v is not None}
    )
    return replace(metadata, condition=condition, origin=planned)


def _contradiction(recording: Recording, what: str, recorded: object, expected: object) -> ProfilerError:
    return ProfilerError(
        FailureClass.INPUT_UNREADABLE,
        str(recording.path),
        f"its {what} is {recorded}, but the campaign says {expected}",
        "correct the campaign file: data of another kind never replace what was asked for",
    )
