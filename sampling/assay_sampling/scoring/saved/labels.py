"""Which launch is in which group, small enough for a selection's JSON; and where two recordings diverge.

Labels are the smallest unsigned integers that hold the groups, little-endian, compressed by zlib, in
base64, in the order of (process, launch). *Checkpoints* are 32-bit hashes of what was launched in each of
at most 1,024 blocks of launches: if a recording is not that of the selection, they tell from which launch
on.

Format: ``docs/selection-format.md``, "Labels".
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay_sampling.documents.selection import LABELS_VERSION, CellsEntry, CheckpointsEntry, LabelsEntry
from assay_sampling.engines.columns import blocks
from assay_sampling.errors import InputError
from assay_sampling.launches.in_memory import EXACT_IDENTITY, NAME_BLOCK_IDENTITY, Launches
from assay_sampling.launches.row_hash import hash_rows
from assay_sampling.scoring.error_parts.cells import CellTimes
from assay_sampling.scoring.error_parts.decomposition import ORIGINS, UNKNOWN_GROUP

_ENCODING = "zlib+base64"
_TYPES: dict[str, np.dtype[Any]] = {
    "uint8": np.dtype("<u1"),
    "uint16": np.dtype("<u2"),
    "uint32": np.dtype("<u4"),
}
_MOST_BLOCKS = 1024
# Labels in memory take 8 bytes a launch, and up to 4 more while they are unpacked.
MOST_LAUNCHES = 50_000_000
_COLUMNS = {"exact": EXACT_IDENTITY, "name_block": NAME_BLOCK_IDENTITY}


@dataclass(frozen=True)
class Checkpoints:
    """Hashes of consecutive blocks of ``launches_per_block`` launches, base64 of little-endian uint32."""

    launches_per_block: int
    exact: str
    name_block: str

    @classmethod
    def of(cls, launches: Launches) -> Checkpoints:
        size = max(1, -(-len(launches) // _MOST_BLOCKS))
        return cls(size, **{kind: _text(_block_hashes(launches, kind, size)) for kind in _COLUMNS})

    def document(self) -> CheckpointsEntry:
        """As a selection's document has them."""
        return CheckpointsEntry(
            launches_per_block=self.launches_per_block, exact=self.exact, name_block=self.name_block
        )


def labels_document(
    labels: np.ndarray,
    groups: int,
    checkpoints: Checkpoints | None = None,
    *,
    origins: np.ndarray | None = None,
    right: np.ndarray | None = None,
    times: CellTimes | None = None,
) -> LabelsEntry:
    """Labels, shape (n,), 0-based, below ``groups``, as a selection's document has them; ``origins`` and
    ``right``, shape (n,), say with two levels where each came from and which group counters give, ``times``
    the light time by group, kernel and size."""
    name = next(name for name, kind in _TYPES.items() if groups - 1 <= np.iinfo(kind).max)
    return LabelsEntry(
        version=LABELS_VERSION,
        launches=len(labels),
        type=name,
        encoding=_ENCODING,
        data=_packed(labels.astype(_TYPES[name])),
        checkpoints=None if checkpoints is None else checkpoints.document(),
        **({} if origins is None else {"origins": _packed(origins.astype(np.uint8))}),
        **({} if right is None else {"right": _packed((right - UNKNOWN_GROUP).astype("<u4"))}),
        **({} if times is None else {"cells": _cells_document(times)}),
    )


def _cells_document(times: CellTimes) -> CellsEntry:
    return CellsEntry(
        cells=len(times.launches),
        launches=_packed(times.launches.astype("<i8")),
        light_time=_packed(times.light_time.astype("<f8")),
    )


def _packed(values: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(values.tobytes(), 6)).decode("ascii")


def origins_from(entry: LabelsEntry | None) -> np.ndarray | None:
    """Where the labels of a saved selection came from, shape (n,): numbers of ORIGINS. None where it does not
    say, and where the text cannot be read: scores do not depend on it."""
    if entry is None or entry.origins is None or not 0 <= entry.launches <= MOST_LAUNCHES:
        return None
    origins = _unpacked(entry.origins, "u1", entry.launches)
    return origins if origins is not None and int(origins.max(initial=0)) < len(ORIGINS) else None


def right_labels_from(entry: LabelsEntry | None, groups: int) -> np.ndarray | None:
    """The groups that counters give, shape (n,), as saved with labels of ``groups`` groups; None where the
    selection does not say, and where the text cannot be read."""
    if entry is None or entry.right is None or not 0 <= entry.launches <= MOST_LAUNCHES:
        return None
    labels = _unpacked(entry.right, "<u4", entry.launches)
    if labels is None or int(labels.max(initial=0)) + UNKNOWN_GROUP >= groups:
        return None
    return labels.astype(np.int64) + UNKNOWN_GROUP


def cell_times_from(entry: LabelsEntry | None) -> CellTimes | None:
    """The light time by group, kernel and size; None where the selection does not say, and where it cannot be
    read: only the parts of errors depend on it."""
    if entry is None or entry.cells is None or not 0 < entry.cells.cells <= entry.launches <= MOST_LAUNCHES:
        return None
    launches = _unpacked(entry.cells.launches, "<i8", entry.cells.cells)
    light_time = _unpacked(entry.cells.light_time, "<f8", entry.cells.cells)
    if launches is None or light_time is None or not np.isfinite(light_time).all():
        return None
    return CellTimes(launches, light_time) if launches.min() > 0 and light_time.min() >= 0 else None


def _unpacked(text: str, kind: str, count: int) -> np.ndarray | None:
    """``count`` numbers of a packed text; None where it has others, or cannot be read."""
    size = count * np.dtype(kind).itemsize
    try:
        unpacked = zlib.decompressobj()
        data = unpacked.decompress(base64.b64decode(text, validate=True), size + 1)
    except (ValueError, binascii.Error, zlib.error):
        return None
    return np.frombuffer(data, kind) if len(data) == size and unpacked.eof else None


def labels_from(entry: LabelsEntry | None, group_launches: np.ndarray) -> np.ndarray | None:
    """Labels of a saved selection, shape (n,); None without labels or for an unknown version.

    ``group_launches``, shape (g,), are its groups' numbers of launches. Raises InputError if labels and
    groups disagree, or the labels cannot be read. Never holds more labels than the groups have launches.
    """
    if entry is None or entry.version != LABELS_VERSION:
        return None
    # A few bytes can announce any number of launches, group by group.
    counted = [int(count) for count in group_launches]
    launches = sum(counted)
    try:
        if min(counted, default=0) < 0 or launches > MOST_LAUNCHES:
            raise ValueError(f"a group has fewer than 0 launches, or all have more than {MOST_LAUNCHES:,}")
        kind = _TYPES[entry.type]
        if entry.encoding != _ENCODING or entry.launches != launches:
            raise ValueError(f"they are not {_ENCODING} of {launches:,} launches")
        size = launches * kind.itemsize
        unpacked = zlib.decompressobj()
        data = unpacked.decompress(base64.b64decode(entry.data, validate=True), size + 1)
        if len(data) != size or not unpacked.eof:
            raise ValueError(f"they are not {size:,} bytes")
        labels: np.ndarray = np.frombuffer(data, kind).astype(np.int64)
        counts = np.bincount(labels, minlength=len(group_launches))
        if len(counts) != len(group_launches) or not np.array_equal(counts, group_launches):
            raise ValueError("they disagree with the launches of the groups")
    except (KeyError, ValueError, binascii.Error, zlib.error) as error:
        raise InputError(
            "selection",
            f"its labels cannot be read: {type(error).__name__} {error}",
            "write it again with: assay select METHOD FILE -o selection.json",
            field="labels",
        ) from error
    return labels


def first_difference(entry: LabelsEntry | None, launches: Launches, kind: str) -> str | None:
    """Where a recording first differs from the one of the saved labels, for people.

    ``kind`` is "exact" or "name_block". None without saved checkpoints, or if they do not differ.
    """
    saved = None if entry is None else entry.checkpoints
    if saved is None or saved.launches_per_block < 1:
        return None
    try:
        text = saved.exact if kind == "exact" else saved.name_block
        saved_hashes = np.frombuffer(base64.b64decode(text, validate=True), "<u4")
    except (ValueError, binascii.Error):
        return None
    size = min(saved.launches_per_block, max(1, len(launches)))
    here = _block_hashes(launches, kind, size)
    if len(here) != len(saved_hashes) or np.array_equal(here, saved_hashes):
        return None
    first = int(np.argmax(here != saved_hashes)) * size
    last = min(first + size, len(launches)) - 1
    if first == last:
        return f"{_where(launches, first)} is {_what(launches, first)} here"
    return f"between {_where(launches, first)} and {_where(launches, last)}"


def _block_hashes(launches: Launches, kind: str, size: int) -> np.ndarray:
    """Hash of each block of launches, shape (blocks,), uint32."""
    if not len(launches):
        return np.empty(0, "<u4")
    hashes = np.zeros(-(-len(launches) // size), np.uint64)
    first = 0
    for columns in launches.batches(("process", *_COLUMNS[kind])):
        for part in blocks(len(columns[0])):
            ordinal = np.arange(first + part.start, first + part.stop)
            rows = hash_rows([ordinal, *(column[part] for column in columns)])
            block, begins = np.unique(ordinal // size, return_index=True)
            hashes[block] += np.add.reduceat(rows, begins)  # modulo 2**64, so in any parts
        first += len(columns[0])
    return (hashes >> np.uint64(32)).astype("<u4")


def _text(hashes: np.ndarray) -> str:
    return base64.b64encode(hashes.tobytes()).decode("ascii")


def _where(launches: Launches, row: int) -> str:
    process, launch = launches.table["process"][row].as_py(), launches.table["launch"][row].as_py()
    return f"process {process} launch {launch}"


def _what(launches: Launches, row: int) -> str:
    one = launches.slice(row, 1)
    kernel = one.names[int(one.column("kernel_id")[0])]
    shapes = (
        f"{what} {[int(v) for axis in 'xyz' if (v := one.column(f'{what}_{axis}')[0]) > 0]}"
        for what in ("grid", "block")
    )
    return f"{kernel[:80]!r}, {', '.join(shapes)}"
