"""Whether two labs hold the same launches and the same results, row for row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers import read_launches

# Which GPU of the lab measured a launch, and where it is in that tool's report.
_OF_THE_BOX = ("device", "report_id")
# Changes with the GPU that is named in the file; the file itself is compared row by row.
_OF_ITS_BYTES = {"content_hash"}
_MOST_NAMED = 20


@dataclass
class Difference:
    """How a disturbed lab differs from an undisturbed one; everything zero: not at all."""

    launches: int = 0
    lost: int = 0
    duplicated: int = 0
    changed: int = 0
    files_missing: int = 0
    files_unknown: int = 0
    names: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether records and results are the same."""
        found = (self.lost, self.duplicated, self.changed, self.files_missing, self.files_unknown)
        return not any(found) and not self.results

    def note(self, name: str) -> None:
        """Remember an example."""
        if len(self.names) < _MOST_NAMED:
            self.names.append(name)


def compare_records(whole: Path, other: Path, found: Difference) -> None:
    """Compare all published files of two record folders, all columns that do not name a box."""
    ours, theirs = _files(whole), _files(other)
    for name in ours.keys() - theirs.keys():
        found.files_missing += 1
        found.lost += len(_keys(ours[name]))
        found.note(f"{name} is missing")
    for name in theirs.keys() - ours.keys():
        found.files_unknown += 1
        found.note(f"{name} should not be there")
    for name in sorted(ours.keys() & theirs.keys()):
        _compare_file(name, ours[name], theirs[name], found)


def _files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in folder.glob("*/*.parquet")}


def _compare_file(name: str, whole: Path, other: Path, found: Difference) -> None:
    wanted_keys, got_keys = _keys(whole), _keys(other)
    found.launches += len(wanted_keys)
    if whole.read_bytes() == other.read_bytes():
        return
    lost = len(np.setdiff1d(wanted_keys, got_keys))
    duplicated = len(got_keys) - len(np.unique(got_keys))
    changed = 0 if lost or duplicated else _changed_rows(read_launches(whole), read_launches(other))
    found.lost += lost
    found.duplicated += duplicated
    found.changed += changed
    if lost or duplicated or changed:
        found.note(f"{name}: {lost} lost, {duplicated} duplicated, {changed} changed")


def _keys(path: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One number a launch: process and number within it. Our own reader refuses a launch that comes twice."""
    table = pq.read_table(path, columns=["process", "launch"])
    process, launch = (np.asarray(table[name], np.int64) for name in ("process", "launch"))
    return process * (1 << 40) + launch


def _changed_rows(expected: Launches, got: Launches) -> int:
    """Rows of which any value differs; all of them if columns, names or metadata do."""
    ours, theirs = (_content(each) for each in (expected, got))
    if ours.schema.names != theirs.schema.names or ours.num_rows != theirs.num_rows:
        return max(len(expected), len(got))
    if dict(expected.names.items()) != dict(got.names.items()) or _about(expected) != _about(got):
        return len(expected)
    differs = np.zeros(ours.num_rows, bool)
    for column in ours.schema.names:
        left, right = ours[column], theirs[column]
        if not left.equals(right):
            same = pc.or_kleene(pc.equal(left, right), pc.and_(pc.is_null(left), pc.is_null(right)))
            differs |= ~np.asarray(pc.fill_null(same, False))
    return int(differs.sum())


def _content(launches: Launches) -> pa.Table:
    table = launches.table.combine_chunks()
    return table.select([name for name in table.schema.names if name not in _OF_THE_BOX])


def _about(launches: Launches) -> tuple[object, ...]:
    metadata = launches.metadata
    return metadata.level, metadata.condition, metadata.origin, tuple(d.name for d in metadata.devices)


def compare_results(whole: Any, other: Any, found: Difference, where: str = "report") -> None:
    """Compare two report documents, each number and flag, and name the places that differ."""
    found.results += list(_differences(whole, other, where))[:_MOST_NAMED]


def _differences(left: Any, right: Any, where: str) -> Iterator[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted((left.keys() | right.keys()) - _OF_ITS_BYTES):
            yield from _differences(left.get(key), right.get(key), f"{where}.{key}")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (a, b) in enumerate(zip(left, right, strict=True)):
            yield from _differences(a, b, f"{where}[{number}]")
    elif left != right:
        yield f"{where}: {json.dumps(left)[:100]} became {json.dumps(right)[:100]}"
