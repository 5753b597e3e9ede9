"""Joins several recordings; the only place that decides whether files given together may be joined.

They must be of one workload on one kind of GPU, and belong together in one of two ways:

- **windows of one run**: no launch, known by process and ordinal, is in two files;
- **ranks of one job**, which the user must say: each file is a rank, and its processes take the next
  ordinals in the order of the files.

Refused, with the first reason: recordings of two kinds of GPU, the same recording twice (equal launches at
equal times, or without times equal bytes once decompressed), and launches of two files with one identity.
If files share identities but no kernel, the error calls them two workloads. Windows of two workloads whose
ordinals happen not to overlap cannot be told apart.

A device without name, compute capability and number of SMs speaks neither for nor against a kind of GPU.

Source: docs/recordings.md, "Several files in one call". Memory: 100 bytes a launch besides the joined table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.errors import LaunchTableError, NotJoinableError
from assay_sampling.files.reading import content_hash_of
from assay_sampling.launches.in_memory import Launches, sort_launches
from assay_sampling.launches.ranges import extent_of, ranges_with_gaps
from assay_sampling.launches.table import BASE_FIELDS, OPERATION_FIELDS, Names, with_metadata
from assay_sampling.notes.registry import Note, distinct_notes, make_note
from assay_sampling.running.identity import Device, may_be_one_kind

_NAME_LENGTH = 80
# Columns that an export or a launch offset may change: it is still the same recording.
_NOT_CONTENT = (
    "launch", "report_id", "device", "operator_id", "input_shapes_id", "nvtx_id", "call", "operation_id",
)  # fmt: skip


def join(parts: Sequence[Launches], *, ranks: bool = False) -> Launches:
    """Recordings of one level as one table; with ``ranks`` each part is a rank of one job.

    Counter columns are the union; where a part lacks one, its launches have null. Each distinct device has
    one ordinal.

    Raises NotJoinableError with the first reason for parts that are not one workload on one kind of GPU, and
    LaunchTableError where they differ in level, origin or condition, or measured one counter with
    different metrics.
    """
    if len(parts) == 1:
        return parts[0]
    for other in parts[1:]:
        _refuse_other_mark(parts[0], other)
    _refuse_two_kinds(parts)
    _refuse_same_content(parts)
    if not ranks:
        _refuse_overlap(parts)
    return _concatenated(parts, ranks)


def refuse_two_kinds(one: Launches, other: Launches) -> None:
    """Raise NotJoinableError where the launches of one ran on a GPU of another kind than the other's."""
    _refuse_two_kinds([one, other])


def _refuse_two_kinds(parts: Sequence[Launches]) -> None:
    by_device: dict[Device, Launches] = {}
    for part in parts:
        here = {replace(device, index=0, uuid=""): part for device in part.devices()}
        for (device, first), mine in product(by_device.items(), here):
            if not may_be_one_kind(device, mine):
                raise NotJoinableError(
                    "two_kinds_of_gpu",
                    _both(first, part),
                    f"they were made on two kinds of GPU ({_kinds(first)} and {_kinds(part)})",
                    "give recordings of one kind; score a selection made on one of them on the other with: "
                    "assay evaluate",
                )
        by_device = here | by_device


def _kinds(launches: Launches) -> str:
    return ", ".join(dict.fromkeys(launches.device_labels())) or "an unnamed GPU"


def refuse_same_content(one: Launches, other: Launches) -> None:
    """Raise NotJoinableError where both are one recording: the same launches at the same times."""
    _refuse_same_content([one, other])


def _refuse_same_content(parts: Sequence[Launches]) -> None:
    by_hash: dict[bytes, list[Launches]] = {}
    for part in parts:
        alike = by_hash.setdefault(launches_hash(part), [])
        first = next((each for each in alike if _at_the_same_times(each, part)), None)
        if first is not None:
            raise NotJoinableError(
                "same_content",
                _both(first, part),
                "they are the same recording: every launch has the same times and counters",
                "give each recording once",
            )
        alike.append(part)


def launches_hash(launches: Launches) -> bytes:
    """A hash of what was measured of every launch: kernels, shapes, times and counters, in order."""
    digest = hashlib.blake2b(digest_size=16)
    names = (name for name in launches.table.schema.names if name not in _NOT_CONTENT)
    for name in sorted(names):
        if launches.table[name].null_count < len(launches):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(launches.column(name)).tobytes())
    return digest.digest()


def _at_the_same_times(one: Launches, other: Launches) -> bool:
    """Whether equal launches are the same ones: by when they began, else by the bytes of their files.

    Equal numbers alone prove nothing: two windows of a loop may hold them.
    """
    if len(one) and not one.table["start_ns"].null_count:
        return True
    files = [[Path(source) for source in side.sources] for side in (one, other)]
    if not all(paths and all(path.is_file() for path in paths) for paths in files):
        return False
    hashes = [[content_hash_of(path) for path in paths] for paths in files]
    return hashes[0] == hashes[1]


def _refuse_other_mark(one: Launches, other: Launches) -> None:
    for what in ("level", "origin", "condition"):
        ours, theirs = getattr(one.metadata, what), getattr(other.metadata, what)
        if ours != theirs:
            raise LaunchTableError(
                ", ".join(other.sources),
                f"its {what} ({theirs}) differs from that of {', '.join(one.sources)} ({ours})",
                "join only recordings of one kind; a light recording goes with --light",
            )


@dataclass(frozen=True)
class _Shared:
    """Launches with one identity in two recordings: how many, the first, and its kernel in either."""

    launches: int
    process: int
    launch: int
    kernels: tuple[str, str]


def _refuse_overlap(parts: Sequence[Launches]) -> None:
    process = np.concatenate([part.column("process") for part in parts])
    launch = np.concatenate([part.column("launch") for part in parts])
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.lexsort((owner, launch, process))
    same = (np.diff(process[order]) == 0) & (np.diff(launch[order]) == 0)
    if same.any():
        at = int(np.argmax(same))
        one, other = sorted(int(owner[order[row]]) for row in (at, at + 1))
        _refuse_overlapping(parts[one], parts[other])


def _refuse_overlapping(one: Launches, other: Launches) -> None:
    shared = _shared(one, other)
    where = f"both hold launch {shared.launch} of process {shared.process}"
    apart = np.intersect1d(one.column("kernel_id"), other.column("kernel_id")).size == 0
    if apart:
        ours, theirs = (name[:_NAME_LENGTH] for name in shared.kernels)
        raise NotJoinableError(
            "two_workloads",
            _both(one, other),
            f"they are of two workloads: {where}, which is {ours!r} in one and {theirs!r} in the other, and "
            "they have no kernel in common",
            "give the recordings of one workload",
        )
    more = f" and {shared.launches - 1:,} more in common" if shared.launches > 1 else ""
    raise NotJoinableError(
        "overlapping_launches",
        _both(one, other),
        f"{where}{more}, so they are not windows of one run",
        "give one of them; add --ranks if each file is a rank of one job, and for slices that were "
        "profiled with --launch-skip add --launch-offset once for each FILE",
    )


def _shared(one: Launches, other: Launches) -> _Shared:
    """The launches that two recordings share by process and ordinal, at least one."""
    overlap: _Shared | None = None
    ours, theirs = _by_process(one), _by_process(other)
    for process in sorted(ours.keys() & theirs.keys()):
        left, right = ours[process], theirs[process]
        common, at_left, at_right = np.intersect1d(
            one.column("launch")[left],
            other.column("launch")[right],
            assume_unique=True,
            return_indices=True,
        )
        if not len(common):
            continue
        if overlap is None:
            kernels = _kernel(one, left.start + at_left[0]), _kernel(other, right.start + at_right[0])
            overlap = _Shared(0, process, int(common[0]), kernels)
        overlap = replace(overlap, launches=overlap.launches + len(common))
    assert overlap is not None
    return overlap


def _by_process(launches: Launches) -> dict[int, slice]:
    """The rows of each process; a table is sorted by process."""
    ordinals, starts = np.unique(launches.column("process"), return_index=True)
    ends = [*starts[1:], len(launches)]
    return {
        int(process): slice(int(start), int(end))
        for process, start, end in zip(ordinals, starts, ends, strict=True)
    }


def _kernel(launches: Launches, row: int) -> str:
    return launches.names[launches.table["kernel_id"][int(row)].as_py()]


def _both(one: Launches, other: Launches) -> str:
    return " and ".join(", ".join(side.sources) or "launches" for side in (one, other))


def _concatenated(parts: Sequence[Launches], ranks: bool) -> Launches:
    names = Names()
    devices: list[Device] = []
    tables, first_process = [], 0
    for part in parts:
        names.update(dict(part.names.items()))
        table = _set(
            part.table, "process", pc.add(part.table["process"], pa.scalar(first_process, pa.int32()))
        )
        ordinals = {device.index: ordinal_among(device, devices) for device in part.devices()}
        tables.append(_set(table, "device", renumbered(table["device"], ordinals)))
        if ranks and len(part):
            first_process += int(pc.max(part.table["process"]).as_py()) + 1
    schema = _union_schema([table.schema for table in tables], parts)
    schema = with_metadata(schema, replace(parts[0].metadata, devices=tuple(devices)))
    aligned = [_with_columns(table, schema) for table in tables]
    sources = tuple(source for part in parts for source in part.sources)
    return Launches(
        sort_launches(pa.concat_tables(aligned), sources),
        names,
        sources,
        distinct_notes([*(note for part in parts for note in part.notes), *_doubts(parts, ranks)]),
        len(parts) if ranks else 1,
        ranges_with_gaps(
            extent_of(table["process"].to_numpy(), table["launch"].to_numpy()) for table in tables
        ),
    )


def _doubts(parts: Sequence[Launches], ranks: bool) -> Iterator[Note]:
    """Notes on what makes joining the parts doubtful."""
    bare = [part for part in parts if not any(_is_known(device) for device in part.devices())]
    if bare:
        yield make_note("gpu_unknown", files=_files(bare))
    if ranks:
        kernels = [np.unique(part.column("kernel_id")) for part in parts]
        _, launched_by = np.unique(np.concatenate(kernels), return_inverse=True)
        shared = np.split(
            np.bincount(launched_by)[launched_by] > 1, np.cumsum([len(k) for k in kernels])[:-1]
        )
        strange = [part for part, common in zip(parts, shared, strict=True) if not common.any()]
        if strange:
            yield make_note("ranks_share_no_kernel", files=_files(strange))


def _is_known(device: Device) -> bool:
    return bool(device.name or device.compute_capability or device.sm_count)


def _files(parts: Sequence[Launches]) -> tuple[str, ...]:
    return tuple(source for part in parts for source in part.sources)


def ordinal_among(device: Device, devices: list[Device]) -> int:
    """The ordinal of a device among ``devices``, which it joins; a new one takes its own or the next free."""
    for other in devices:
        if replace(other, index=device.index) == device and (device.uuid or other.index == device.index):
            return other.index
    ordinals = {other.index for other in devices}
    index = device.index if device.index not in ordinals else max(ordinals) + 1
    devices.append(replace(device, index=index))
    return index


def renumbered(column: pa.ChunkedArray | pa.Array, ordinals: Mapping[int, int]) -> pa.ChunkedArray | pa.Array:
    """A column of device ordinals under new ones; null stays null."""
    new_column = column
    for old, new in ordinals.items():
        if old != new:
            new_column = pc.if_else(pc.equal(column, old), pa.scalar(new, column.type), new_column)
    return new_column


def _set(table: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    position = table.schema.get_field_index(name)
    return table.set_column(position, table.schema.field(position), values)


def _union_schema(schemas: Sequence[pa.Schema], parts: Sequence[Launches]) -> pa.Schema:
    merged = schemas[0]
    for schema, part in zip(schemas[1:], parts[1:], strict=True):
        for item in schema:
            if item.name not in merged.names:
                merged = merged.append(item)
            elif merged.field(item.name).metadata != item.metadata:
                raise LaunchTableError(
                    ", ".join(part.sources),
                    f"it measured {item.name!r} with another metric than the other files",
                    "join only recordings made with the same metrics",
                )
    # Operations stand between the base columns and the counters, whichever file had them first.
    base = [item.name for item in (*BASE_FIELDS, *OPERATION_FIELDS) if item.name in merged.names]
    counters = [name for name in merged.names if name not in base]
    return pa.schema([merged.field(name) for name in (*base, *counters)], merged.metadata)


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table[f.name] if f.name in table.schema.names else pa.nulls(table.num_rows, f.type) for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
