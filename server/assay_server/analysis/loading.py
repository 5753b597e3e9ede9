"""Reads a run's launches back from the record store, slices put together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from assay_sampling.errors import AssayError, InputError, LaunchTableError, RefusedError
from assay_sampling.launch_table import LaunchBatch
from assay_sampling.launches import Launches, gather
from assay_sampling.readers import open_recording
from assay_server.analysis.request import RunData


def load_run(run: RunData, memory_limit_bytes: int) -> Launches:
    """All launches of a run, in order; its source is the run's name, never a path.

    Raises InputError for a damaged file, LaunchTableError where slices do not fit together, RefusedError
    over the memory limit or where the records' own mark or level contradicts the run's.
    """
    if not run.files:
        raise RefusedError(f"run {run.run_id}", "the store holds no records of it", "run it again")
    notes: dict[str, None] = {}
    try:
        with open_recording(run.files[0]) as first:
            schema = first.schema
        launches = gather(
            _batches(run, schema, notes), schema,
            sources=(run.run_id,), memory_limit_bytes=memory_limit_bytes,
        )  # fmt: skip
    except AssayError as error:
        raise _without_paths(error, run) from error
    _check_against_plan(run, launches)
    return replace(launches, notes=tuple(notes))


def _batches(run: RunData, schema: pa.Schema, notes: dict[str, None]) -> Iterator[LaunchBatch]:
    """The batches of all slices, one file open at a time; fills ``notes``, each note once."""
    for path in run.files:
        with open_recording(path) as recording:
            if not recording.schema.equals(schema, check_metadata=True):
                raise LaunchTableError(
                    f"run {run.run_id}",
                    "its slices differ in counters, level, condition or device",
                    "run it again on one GPU with one tool",
                )
            yield from recording.batches()
            notes.update(dict.fromkeys(recording.notes))


def _without_paths(error: AssayError, run: RunData) -> AssayError:
    """The same error speaking of the run: reports name no paths of the server's disk."""
    if isinstance(error, InputError):
        where = f"run {run.run_id}" if error.field is None else f"run {run.run_id}: field {error.field!r}"
        return LaunchTableError(where, error.cause, error.remedy)
    return error


def _check_against_plan(run: RunData, launches: Launches) -> None:
    metadata = launches.metadata
    if metadata.synthetic != run.synthetic:
        raise RefusedError(
            f"run {run.run_id}",
            f"its records are marked synthetic={metadata.synthetic}, the run synthetic={run.synthetic}",
            "synthetic and measured data never meet: run it in a campaign of its own",
        )
    if metadata.level != run.level:
        raise LaunchTableError(
            f"run {run.run_id}",
            f"its records are of the {metadata.level} level where the {run.level} level was planned",
            "give the recording under the level that it has",
        )
    if not len(launches):
        raise RefusedError(f"run {run.run_id}", "it has no launches", "see the run's log for the cause")
