"""Whether two labs hold the same launches and the same results, byte for byte.

Nothing is left out. Where bytes differ, launches and numbers are compared, to say what differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers.opening import read_launches

_MOST_NAMED = 20
# By campaign, and by the form of the report: "json", "html".
Reports = Mapping[str, Mapping[str, bytes]]


@dataclass
class Difference:
    """How a disturbed lab differs from an undisturbed one; everything zero: not at all."""

    launches: int = 0
    lost: int = 0
    duplicated: int = 0
    changed: int = 0
    other_bytes: int = 0  # files with the same launches in other bytes
    files_missing: int = 0
    files_unknown: int = 0
    names: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether records and results are the same."""
        rows = (self.lost, self.duplicated, self.changed, self.other_bytes)
        return not any((*rows, self.files_missing, self.files_unknown)) and not self.results

    def note(self, name: str) -> None:
        """Remember an example."""
        if len(self.names) < _MOST_NAMED:
            self.names.append(name)


def compare_records(whole: Path, other: Path, found: Difference) -> None:
    """Compare all published files of two record folders."""
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
    else:
        found.other_bytes += 1
        found.note(f"{name}: the same launches in other bytes")


def _keys(path: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One number a launch: process and number within it. Our own reader refuses a launch that comes twice."""
    table = pq.read_table(path, columns=["process", "launch"])
    process, launch = (np.asarray(table[name], np.int64) for name in ("process", "launch"))
    return process * (1 << 40) + launch


def _changed_rows(expected: Launches, got: Launches) -> int:
    """Rows of which any value differs; all of them if columns, names or metadata do."""
    ours, theirs = (each.table.combine_chunks() for each in (expected, got))
    if ours.schema.names != theirs.schema.names or ours.num_rows != theirs.num_rows:
        return max(len(expected), len(got))
    if dict(expected.names.items()) != dict(got.names.items()) or expected.metadata != got.metadata:
        return len(expected)
    differs = np.zeros(ours.num_rows, bool)
    for column in ours.schema.names:
        left, right = ours[column], theirs[column]
        if not left.equals(right):
            same = pc.or_kleene(pc.equal(left, right), pc.and_(pc.is_null(left), pc.is_null(right)))
            differs |= ~np.asarray(pc.fill_null(same, False))
    return int(differs.sum())


def compare_reports(whole: Reports, other: Reports, found: Difference) -> None:
    """Compare the reports of two labs, and name what differs in them."""
    for campaign_id in sorted(whole.keys() | other.keys()):
        ours, theirs = whole.get(campaign_id, {}), other.get(campaign_id, {})
        for form in sorted(ours.keys() | theirs.keys()):
            left, right = ours.get(form, b""), theirs.get(form, b"")
            if left != right:
                found.results += _what_differs(f"{campaign_id}.{form}", left, right)


def _what_differs(name: str, left: bytes, right: bytes) -> list[str]:
    if name.endswith(".json") and left and right:
        places = list(_differences(json.loads(left), json.loads(right), name))
        if places:
            return places[:_MOST_NAMED]
    at = _first_difference(left, right)
    return [f"{name}: {len(left):,} bytes, and {len(right):,} others from byte {at:,} on"]


def _first_difference(left: bytes, right: bytes) -> int:
    shared = min(len(left), len(right))
    differs = np.frombuffer(left, np.uint8, shared) != np.frombuffer(right, np.uint8, shared)
    return int(differs.argmax()) if differs.any() else shared


def _differences(left: Any, right: Any, where: str) -> Iterator[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            yield from _differences(left.get(key), right.get(key), f"{where}.{key}")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (a, b) in enumerate(zip(left, right, strict=True)):
            yield from _differences(a, b, f"{where}[{number}]")
    elif left != right:
        yield f"{where}: {json.dumps(left)[:100]} became {json.dumps(right)[:100]}"
