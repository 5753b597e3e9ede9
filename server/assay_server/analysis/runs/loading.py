"""Reads a run's launches back from the record store and joins its slices, and the cycles measured apart.

Slices of one run may come from several GPUs. Model, tool, driver and condition are compared from the tables'
metadata; the speed of the GPUs and the sequences of kernels need the launches.

True cycles may come from a run in one pass, features from another run: the two are joined launch by launch.
Replaying a launch for several passes saves and restores its memory between them, which disturbs its caches;
a single pass does not. Source: docs/nvidia-tools.md, "What makes two measurements comparable" and "Passes".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.errors import AssayError, InputError, LaunchTableError, MisalignedError, RefusedError
from assay_sampling.gathering.from_batches import gather
from assay_sampling.gathering.named_range import restricted, rows_in_window
from assay_sampling.launches.alignment import LEAST_MATCH_PERCENT, Alignment, align_window, require_match
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.joining import ordinal_among, renumbered
from assay_sampling.launches.levels import refuse_other_kind, source_of
from assay_sampling.launches.ranges import Extent, extent_of, joined_extent, ranges_with_gaps
from assay_sampling.launches.table import (
    Device,
    LaunchBatch,
    TableMetadata,
    counter_columns,
    table_metadata,
    with_metadata,
)
from assay_sampling.notes.registry import Note, distinct_notes, make_note
from assay_sampling.readers.opening import open_recording
from assay_sampling.running.identity import origin_of
from assay_server.analysis.runs.request import RunData

# The run in one pass measures these better.
COSTS = (
    "cycles_gpc_avg", "cycles_gpc_max", "cycles_sys_avg", "cycles_sm_active_avg", "profiled_duration_ns",
    "clock_gpc_hz", "instructions",
)  # fmt: skip
MOST_CLOCK_DIFFERENCE_PERCENT = 5.0
_NS_TO_MHZ = 1e3


def load_run(run: RunData, memory_limit_bytes: int) -> Launches:
    """All launches of a run, in order, with cycles from the run that measured them apart, if there is one.

    Raises the errors of :func:`load_plain_run`, and MisalignedError if the two runs' launches differ.
    """
    launches = load_plain_run(run, memory_limit_bytes)
    if run.cycles is None:
        return launches
    return with_true_cycles(launches, load_plain_run(run.cycles, memory_limit_bytes - launches.table.nbytes))


def load_plain_run(run: RunData, memory_limit_bytes: int) -> Launches:
    """All launches of a run, in order; its source is the run's name, never a path.

    If slices were made on several GPUs of one kind, the table names each.
    Raises InputError for a damaged file, LaunchTableError if slices do not fit together, RefusedError over
    the memory limit or if the records' own mark or level contradicts the run's; OSError if the system cannot
    read a file, which says nothing about the run and so is for no report.
    """
    if not run.files:
        raise RefusedError(f"run {run.run_id}", "the store has no records of it", "run it again")
    _refuse_gaps(run)
    notes: dict[Note, None] = {}
    extents: list[Extent] = []
    try:
        schema, ordinals = _schema_and_ordinals(run)
        launches = gather(
            _batches(run, schema, ordinals, notes, extents), schema,
            sources=(run.run_id,), memory_limit_bytes=memory_limit_bytes,
            expected_launches=run.launches if run.rank is None else 0,
        )  # fmt: skip
    except AssayError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno:
            raise error.__cause__ from error
        if not isinstance(error, InputError):
            raise
        # About the run instead of its file: reports name no paths of the server's disk.
        where = f"run {run.run_id}" if error.field is None else f"run {run.run_id}: field {error.field!r}"
        raise LaunchTableError(where, error.cause, error.remedy) from error
    _check_against_plan(run, launches)
    if len(run.files) > 1:
        require_equal_clocks(launches)
    for name, detail, _ in run.flags:
        if name == "light_window":  # it was ended at its limit
            notes[make_note("light_window", window=detail)] = None
    launches = replace(launches, notes=tuple(notes), ranges=ranges_with_gaps(extents))
    rows = rows_in_window(launches)
    return restricted(launches, rows) if len(rows) else launches


def _refuse_gaps(run: RunData) -> None:
    """If a workload ended before a slice, a later slice cannot have launches."""
    empty = next((i for i, launches in enumerate(run.slice_launches) if not launches), None)
    if empty is None or not any(run.slice_launches[empty:]):
        return
    raise LaunchTableError(
        f"run {run.run_id}",
        f"its slice {empty} has no launches but a later one has: the workload differed between slices",
        "make the workload launch the same kernels every time, with library autotuning off",
    )


def _schema_and_ordinals(run: RunData) -> tuple[pa.Schema, list[dict[int, int]]]:
    """The schema of a run over all its slices, and for each file its devices' ordinals in that schema; raises
    LaunchTableError if the slices differ in anything else."""
    schemas = []
    for path in run.files:
        with open_recording(path) as recording:
            schemas.append(recording.schema)
    devices: list[Device] = []
    ordinals = []
    first = table_metadata(schemas[0])
    for schema in schemas:
        metadata = table_metadata(schema)
        plain = with_metadata(schema, replace(metadata, devices=first.devices))
        if not plain.equals(schemas[0], check_metadata=True) or _kinds(metadata) != _kinds(first):
            raise LaunchTableError(
                f"run {run.run_id}",
                "its slices differ in counters, level, condition or device"
                f" ({', '.join(_differences(schemas[0], schema)) or 'their schemas'})",
                "run it again on GPUs of one kind with one tool and driver",
            )
        ordinals.append({device.index: ordinal_among(device, devices) for device in metadata.devices})
    return with_metadata(schemas[0], replace(first, devices=tuple(devices))), ordinals


def _differences(first: pa.Schema, other: pa.Schema) -> Iterator[str]:
    """What two slices differ in, with both values."""
    ours, theirs = table_metadata(first), table_metadata(other)
    for name in ("level", "origin", "condition", "tool", "tool_version", "driver_version"):
        pair = getattr(ours, name), getattr(theirs, name)
        if pair[0] != pair[1]:
            yield f"{name.replace('_', ' ')} {pair[0] or 'unknown'} and {pair[1] or 'unknown'}"
    if _kinds(ours) != _kinds(theirs):
        names = [", ".join(sorted(device.label() for device in side.devices)) for side in (ours, theirs)]
        yield f"GPU {names[0]} and {names[1]}"
    metrics = [{c.name: c.metric for c in counter_columns(schema)} for schema in (first, other)]
    for name in sorted(metrics[0].keys() | metrics[1].keys()):
        pair = metrics[0].get(name, "nothing"), metrics[1].get(name, "nothing")
        if pair[0] != pair[1]:
            yield f"{name} measured by {pair[0]} and {pair[1]}"


def _kinds(metadata: TableMetadata) -> set[tuple[str, str, int | None]]:
    return {(device.name, device.compute_capability, device.sm_count) for device in metadata.devices}


def _batches(
    run: RunData,
    schema: pa.Schema,
    ordinals: Sequence[dict[int, int]],
    notes: dict[Note, None],
    extents: list[Extent],
) -> Iterator[LaunchBatch]:
    """The batches of all slices, opening one file at a time, in the run's schema with its devices' ordinals;
    fills ``notes``, each note once, and ``extents``, what each file covers."""
    device = schema.get_field_index("device")
    for path, own_ordinals in zip(run.files, ordinals, strict=True):
        extents.append({})
        with open_recording(path) as recording:
            for batch in recording.batches():
                records = batch.records
                if run.rank is not None:
                    records = records.filter(pc.equal(records["process"], run.rank))
                if len(run.files) > 1:
                    places = (records["process"].to_numpy(), records["launch"].to_numpy())
                    extents[-1] = joined_extent(extents[-1], extent_of(*places))
                columns = list(records.columns)
                columns[device] = renumbered(columns[device], own_ordinals)
                yield LaunchBatch(pa.RecordBatch.from_arrays(columns, schema=schema), batch.new_names)
            notes.update(dict.fromkeys(recording.notes))


def _check_against_plan(run: RunData, launches: Launches) -> None:
    metadata = launches.metadata
    planned = origin_of(synthetic=run.synthetic)
    if metadata.origin != planned:
        raise RefusedError(
            f"run {run.run_id}",
            f"its records are {metadata.origin}, the run is {planned}",
            "run it in a separate campaign: synthetic and measured data never mix",
        )
    if metadata.level != run.level:
        raise LaunchTableError(
            f"run {run.run_id}",
            f"its records are of the {metadata.level} level, but the {run.level} level was planned",
            f"name the recording under '{metadata.level}' in the campaign file",
        )
    if not len(launches) and run.rank is not None:
        cause = f"its rank {run.rank} launched no kernel"
        raise RefusedError(
            f"run {run.run_id}", cause, "name ranks that launch kernels under 'ranks', or 'each'"
        )
    if not len(launches):
        raise RefusedError(f"run {run.run_id}", "it has no launches", "see the run's log for the cause")


def with_true_cycles(features: Launches, cycles: Launches) -> Launches:
    """The launches that both runs have: those of ``features`` with the costs that ``cycles`` measured.

    ``replay_passes`` stays that of the features. Raises RefusedError if the runs are of different kinds,
    MisalignedError if fewer than 99 % of their launches are the same.
    """
    subject = f"{source_of(features)} and {source_of(cycles)}"
    refuse_other_kind(subject, features, cycles)
    # A window without a fixed end may end at different launches in the two runs.
    if len(features) <= len(cycles):
        matched = align_window(features, cycles)
        rows, cost_rows = matched.left_rows, matched.right_rows
    else:
        matched = align_window(cycles, features)
        rows, cost_rows = matched.right_rows, matched.left_rows
    require_match(matched, subject=subject)
    table, costs = features.take(rows).table, cycles.take(cost_rows).table
    for name in COSTS:
        if name in costs.schema.names:
            field, place = costs.schema.field(name), table.schema.get_field_index(name)
            if place < 0:
                table = table.append_column(field, costs[name])
            else:
                table = table.set_column(place, field, costs[name])
    notes = (*features.notes, *_notes(features, cycles, len(rows)))
    return replace(features, table=table, notes=distinct_notes(notes))


def _notes(features: Launches, cycles: Launches, joined: int) -> list[Note]:
    notes = [make_note("cycles_of_another_run", cycles=source_of(cycles), counters=source_of(features))]
    if joined < len(features):
        notes.append(make_note("launches_in_both", joined=joined, launches=len(features)))
    passes = cycles.column("replay_passes") if "replay_passes" in cycles.table.schema.names else np.ones(1)
    if np.nanmax(passes, initial=1.0) > 1:
        notes.append(make_note("cycles_disturbed", run=source_of(cycles), passes=float(np.nanmax(passes))))
    return notes


def clock_mhz(launches: Launches, rows: np.ndarray | None = None) -> float | None:
    """The mean SM clock over the time in which launches were profiled; None where it was not measured.

    ``rows``: of these launches, as a mask of shape (n,); None: of all.
    """
    names = launches.table.schema.names
    if "cycles_gpc_avg" not in names or "profiled_duration_ns" not in names:
        return None
    cycles, nanoseconds = launches.column("cycles_gpc_avg"), launches.column("profiled_duration_ns")
    measured = np.isfinite(cycles) & np.isfinite(nanoseconds) & (nanoseconds > 0)
    if rows is not None:
        measured &= rows
    if not measured.any():
        return None
    return _NS_TO_MHZ * float(cycles[measured].sum()) / float(nanoseconds[measured].sum())


def require_equal_clocks(launches: Launches) -> None:
    """Raise LaunchTableError if the GPUs' SM clocks, over all their launches, are more than 5 % apart.

    A GPU's clock is its cycles over its time, both from one run; without them nothing is compared.
    """
    if clock_mhz(launches) is None:
        return
    by_gpu = {label: clock_mhz(launches, rows) for label, rows in _by_gpu(launches).items()}
    clocks = {label: mhz for label, mhz in by_gpu.items() if mhz is not None}
    slowest, fastest = min(clocks.values(), default=0.0), max(clocks.values(), default=0.0)
    if fastest <= (1 + MOST_CLOCK_DIFFERENCE_PERCENT / 100) * slowest:
        return
    listing = ", ".join(f"{label} {mhz:,.0f} MHz" for label, mhz in clocks.items())
    raise LaunchTableError(
        ", ".join(launches.sources) or "launches",
        f"its slices were made side by side, and the SM clocks of the GPUs are more than "
        f"{MOST_CLOCK_DIFFERENCE_PERCENT:g} % apart ({listing})",
        "cool the GPUs evenly or lock their clocks, and run it again, or profile it on one GPU",
    )


def require_equal_sequences(detailed: Launches, alignment: Alignment) -> None:
    """Raise MisalignedError if the slices of one of the GPUs do not match the light run.

    ``alignment`` aligns the window (left) with the light run; for a single GPU it suffices by itself.
    """
    by_gpu = _by_gpu(detailed)
    if len(by_gpu) < 2:
        return
    matched = np.zeros(len(detailed), bool)
    matched[alignment.left_rows] = True
    for label, rows in by_gpu.items():
        percent = 100.0 * float(matched[rows].mean())
        if percent < LEAST_MATCH_PERCENT:
            raise MisalignedError(
                ", ".join(detailed.sources) or "launches",
                f"its slices were made side by side, and only {percent:.2f} % of the launches of {label} "
                f"match the light run ({LEAST_MATCH_PERCENT:g} % are needed)",
                "make the workload launch the same kernels every time, with library autotuning off",
                alignment.differences,
            )


def _by_gpu(launches: Launches) -> dict[str, np.ndarray]:
    """The rows made on each GPU, by the GPU's name; shape (n,) each."""
    ordinals = launches.column("device")
    devices = {device.index: device for device in launches.metadata.devices}
    rows = {}
    for ordinal in np.unique(ordinals).tolist():
        device = devices.get(ordinal)
        label = f"GPU {ordinal}" if device is None else f"{device.name} {device.uuid or ordinal}"
        rows[label] = ordinals == ordinal
    return rows
