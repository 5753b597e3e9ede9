"""Which launch is in which group, small enough for a selection's JSON; and where two recordings part.

Labels are the smallest unsigned integers that hold the groups, little-endian, compressed by zlib, in
base64, in the order of (process, launch). *Checkpoints* are 32-bit hashes of what was launched in each of
at most 1,024 blocks of launches: where a recording is not the one of the selection, they tell from which
launch on.

Format: ``docs/selection-format.md``, "Labels".
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay_sampling.errors import InputError
from assay_sampling.launches import EXACT_IDENTITY, NAME_BLOCK_IDENTITY, Launches
from assay_sampling.row_hash import hash_rows

VERSION = 1
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

    def to_dict(self) -> dict[str, Any]:
        return {
            "launches_per_block": self.launches_per_block,
            "exact": self.exact,
            "name_block": self.name_block,
        }


def labels_document(
    labels: np.ndarray, groups: int, checkpoints: Checkpoints | None = None
) -> dict[str, Any]:
    """Labels, shape (n,), 0-based, below ``groups``, as JSON."""
    name = next(name for name, kind in _TYPES.items() if groups - 1 <= np.iinfo(kind).max)
    data = zlib.compress(labels.astype(_TYPES[name]).tobytes(), 6)
    return {
        "version": VERSION,
        "launches": len(labels),
        "type": name,
        "encoding": _ENCODING,
        "data": base64.b64encode(data).decode("ascii"),
        "checkpoints": None if checkpoints is None else checkpoints.to_dict(),
    }


def labels_from(document: Any, group_launches: np.ndarray) -> np.ndarray | None:
    """Labels of a saved selection, shape (n,); None where it has none, or a version not known here.

    ``group_launches``, shape (g,), is what its groups say. Raises InputError where both disagree, or the
    labels cannot be read. Never holds more than the labels of the launches that the groups have.
    """
    if not isinstance(document, Mapping) or document.get("version") != VERSION:
        return None
    # A few bytes may announce any number of launches, group by group.
    counted = [int(count) for count in group_launches]
    launches = sum(counted)
    try:
        if min(counted, default=0) < 0 or launches > MOST_LAUNCHES:
            raise ValueError(f"groups have 0 launches or more, all of them at most {MOST_LAUNCHES:,}")
        kind = _TYPES[document["type"]]
        if document["encoding"] != _ENCODING or document["launches"] != launches:
            raise ValueError(f"they are not {_ENCODING} of {launches:,} launches")
        size = launches * kind.itemsize
        unpacked = zlib.decompressobj()
        data = unpacked.decompress(base64.b64decode(document["data"], validate=True), size + 1)
        if len(data) != size or not unpacked.eof:
            raise ValueError(f"they are not {size:,} bytes")
        labels: np.ndarray = np.frombuffer(data, kind).astype(np.int64)
        counts = np.bincount(labels, minlength=len(group_launches))
        if len(counts) != len(group_launches) or not np.array_equal(counts, group_launches):
            raise ValueError("they disagree with the launches of the groups")
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise InputError(
            "selection",
            f"its labels cannot be read: {type(error).__name__} {error}",
            "write it again with: assay select METHOD FILE -o selection.json",
            field="labels",
        ) from error
    return labels


def first_difference(document: Any, launches: Launches, kind: str) -> str | None:
    """Where a recording first differs from the one that labels were saved of, for people.

    ``kind`` is "exact" or "name_block". None where no checkpoints were saved, or they do not differ.
    """
    saved = document.get("checkpoints") if isinstance(document, Mapping) else None
    try:
        size = int(saved["launches_per_block"])  # type: ignore[index]
        wanted = np.frombuffer(base64.b64decode(saved[kind], validate=True), "<u4")  # type: ignore[index]
        if size < 1:
            return None
    except (KeyError, TypeError, ValueError, OverflowError, binascii.Error):
        return None
    size = min(size, max(1, len(launches)))
    here = _block_hashes(launches, kind, size)
    if len(here) != len(wanted) or np.array_equal(here, wanted):
        return None
    first = int(np.argmax(here != wanted)) * size
    last = min(first + size, len(launches)) - 1
    if first == last:
        return f"{_where(launches, first)} is {_what(launches, first)} here"
    return f"between {_where(launches, first)} and {_where(launches, last)}"


def _block_hashes(launches: Launches, kind: str, size: int) -> np.ndarray:
    """Hash of each block of launches, shape (blocks,), uint32."""
    if not len(launches):
        return np.empty(0, "<u4")
    columns = [launches.column(name) for name in ("process", *_COLUMNS[kind])]
    rows = hash_rows([np.arange(len(launches)), *columns])
    sums: np.ndarray = np.add.reduceat(rows, np.arange(0, len(rows), size)) >> np.uint64(32)
    return sums.astype("<u4")


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
