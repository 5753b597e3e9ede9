"""Order-preserving alignment of two recordings of one workload.

    match_percent = 100 x launches matched / the larger number of launches

Launches are matched within each process, in order: a longest common subsequence of what was launched.
``exact`` compares kernel, grid and block (one GPU, one condition), ``name_block`` kernel and block (other
GPUs, where libraries choose other grids), ``position`` only the ordinals.

A detailed recording with gaps (slices) is aligned slice by slice, each with the light launches of its own
ordinals, and each must match by itself.

Source: docs/methods/comparing.md, "Between GPUs"; docs/methods/two-level.md, "Which launches to profile".
Memory: at most 100 bytes a launch of either side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from assay_sampling.engines.columns import blocks
from assay_sampling.errors import MisalignedError
from assay_sampling.launches.common_subsequence import common_subsequence
from assay_sampling.launches.in_memory import EXACT_IDENTITY, WINDOW_RANGE, Launches, update_with
from assay_sampling.launches.ranges import LaunchRange
from assay_sampling.launches.row_hash import hash_rows

MatchKind = Literal["exact", "name_block", "position"]
Shape = Literal["grid", "block"]
MATCH_KINDS: tuple[MatchKind, ...] = ("exact", "name_block", "position")
LEAST_MATCH_PERCENT = 99.0

_SHAPES_COMPARED: dict[MatchKind, tuple[Shape, ...]] = {
    "exact": ("grid", "block"),
    "name_block": ("block",),
    "position": (),
}
_DIFFERENCES_SHOWN = 5
_NAME_LENGTH = 60


@dataclass(frozen=True)
class Alignment:
    """Which launches of two recordings are the same.

    ``left_rows`` and ``right_rows``, both of shape (m,) and ascending, are the rows matched with one
    another. ``lower_bound`` is set where the recordings differ in so many places that more launches may
    match than were found. ``differences`` describes the first launches that differ, a line each.
    ``by_range`` has the match in percent of each range of a detailed recording with gaps; else it is empty.
    """

    kind: MatchKind
    match_percent: float
    left_rows: np.ndarray
    right_rows: np.ndarray
    left_launches: int
    right_launches: int
    differences: tuple[str, ...] = ()
    lower_bound: bool = False
    by_range: tuple[tuple[LaunchRange, float], ...] = ()

    def match_text(self) -> str:
        """The match for people: "99.98 %", or "at least 40.12 %" where it is a lower bound."""
        # Rounding down: 98.999 % must not be shown as the 99 % that it is not.
        shown = np.floor(self.match_percent * 100) / 100
        return f"{'at least ' if self.lower_bound else ''}{shown:g} %"


def align(
    left: Launches,
    right: Launches,
    kind: MatchKind = "exact",
    *,
    left_name: str = "left",
    right_name: str = "right",
) -> Alignment:
    """Match the launches of two recordings, process by process, in order.

    Where either side knows only totals of grid or block (null y and z), products are compared.
    ``left_name`` and ``right_name`` name the sides in the differences. Two empty recordings match by 100 %.
    """
    codes = _signature_codes(left, right, kind)
    left_parts, right_parts = _process_ranges(left), _process_ranges(right)
    pairs_left, pairs_right = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    exact = True
    for process in sorted(left_parts.keys() & right_parts.keys()):
        ours, theirs = left_parts[process], right_parts[process]
        if codes is None:
            matched_left, matched_right = _same_ordinals(left, right, ours, theirs)
        else:
            common = common_subsequence(codes[0][ours], codes[1][theirs])
            matched_left, matched_right, exact = common.left, common.right, exact and common.exact
        pairs_left.append(matched_left + ours.start)
        pairs_right.append(matched_right + theirs.start)
    rows = np.concatenate(pairs_left), np.concatenate(pairs_right)
    if codes is not None:
        truly = _equal_rows(left, right, rows, kind)
        rows = (rows[0], rows[1]) if truly.all() else (rows[0][truly], rows[1][truly])
    larger = max(len(left), len(right))
    sides = (_Side(left, left_parts, rows[0], left_name), _Side(right, right_parts, rows[1], right_name))
    return Alignment(
        kind=kind,
        match_percent=100.0 * len(rows[0]) / larger if larger else 100.0,
        left_rows=rows[0],
        right_rows=rows[1],
        left_launches=len(left),
        right_launches=len(right),
        differences=tuple(_differences(*sides)) if len(rows[0]) < larger else (),
        lower_bound=not exact,
    )


def align_window(detailed: Launches, light: Launches, kind: MatchKind = "exact") -> Alignment:
    """Match a detailed window with the launches of the light run that it covers.

    The window of a process reaches from its first to its last launch; it is aligned with, and counted
    against, the light launches of those ordinals. Each range of a window with gaps is a window by itself, and
    light launches between two ranges count nowhere. ``right_rows`` are rows of ``light``.

    Where ``light`` has only the program's own window, detailed launches outside of that count nowhere either.
    Raises MisalignedError if none is inside.
    """
    inside = _inside(detailed, light)
    if inside is not None:
        within = align_window(detailed.take(inside), replace(light, in_named_range=False), kind)
        return replace(within, left_rows=inside[within.left_rows])
    columns = light.table.select(["process", "launch", *EXACT_IDENTITY])
    covering = _Covering(replace(light, table=columns), light.column("launch"), _process_ranges(light))
    if not detailed.ranges:
        return covering.align(detailed, kind)
    parts = _process_ranges(detailed)
    alignments = []
    for covered in detailed.ranges:
        rows = _rows_within(detailed.column("launch"), parts.get(covered.process, slice(0, 0)), covered)
        if rows.stop > rows.start:
            one = covering.align(detailed.slice(rows.start, rows.stop - rows.start), kind)
            alignments.append((covered, replace(one, left_rows=one.left_rows + rows.start)))
    return _together(alignments, kind)


def _inside(detailed: Launches, light: Launches) -> np.ndarray | None:
    """The detailed rows whose launches ``light`` has, shape (m,), ascending; None if it has all launches."""
    if not light.in_named_range:
        return None
    ours, theirs = _process_ranges(detailed), _process_ranges(light)
    ordinals, lights = detailed.column("launch"), light.column("launch")
    inside = np.zeros(len(detailed), bool)
    for process in ours.keys() & theirs.keys():
        inside[ours[process]] = np.isin(ordinals[ours[process]], lights[theirs[process]])
    if not inside.any():
        raise MisalignedError(
            "detailed run",
            f"none of its launches is in the NVTX range {WINDOW_RANGE!r}, which the light run is cut to",
            "profile launches of that range: 'detailed: {first: auto}' in a campaign file does",
        )
    return np.flatnonzero(inside)


@dataclass(frozen=True)
class _Covering:
    """A light run that windows are aligned with: its identity columns, ordinals and processes."""

    light: Launches
    ordinals: np.ndarray
    parts: dict[int, slice]

    def align(self, window: Launches, kind: MatchKind) -> Alignment:
        """Match a window without gaps with the launches of the light run from its first to its last."""
        window_ordinals = window.column("launch")
        covered = [np.empty(0, np.int64)]
        for process, rows in sorted(_process_ranges(window).items()):
            ends = LaunchRange(process, int(window_ordinals[rows.start]), int(window_ordinals[rows.stop - 1]))
            within = _rows_within(self.ordinals, self.parts.get(process, slice(0, 0)), ends)
            covered.append(np.arange(within.start, within.stop))
        covered_rows = np.concatenate(covered)
        alignment = align(
            window, self.light.take(covered_rows), kind, left_name="detailed run", right_name="light run"
        )
        return replace(alignment, right_rows=covered_rows[alignment.right_rows])


def _rows_within(ordinals: np.ndarray, of_process: slice, launch_range: LaunchRange) -> slice:
    """The rows of a process, which are ``of_process``, that are in a range."""
    begin = of_process.start + int(np.searchsorted(ordinals[of_process], launch_range.first, "left"))
    return slice(
        begin, of_process.start + int(np.searchsorted(ordinals[of_process], launch_range.last, "right"))
    )


def _together(alignments: Sequence[tuple[LaunchRange, Alignment]], kind: MatchKind) -> Alignment:
    """The alignment of a window with gaps from those of its ranges, in order. Its differences begin with
    those of the range that matches least."""
    worst_first = sorted((one for _, one in alignments), key=lambda one: one.match_percent)
    matched = sum(len(one.left_rows) for _, one in alignments)
    larger = sum(max(one.left_launches, one.right_launches) for _, one in alignments)
    nothing = [np.empty(0, np.int64)]
    return Alignment(
        kind=kind,
        match_percent=100.0 * matched / larger if larger else 100.0,
        left_rows=np.concatenate([*nothing, *(one.left_rows for _, one in alignments)]),
        right_rows=np.concatenate([*nothing, *(one.right_rows for _, one in alignments)]),
        left_launches=sum(one.left_launches for _, one in alignments),
        right_launches=sum(one.right_launches for _, one in alignments),
        differences=tuple(line for one in worst_first for line in one.differences)[:_DIFFERENCES_SHOWN],
        lower_bound=any(one.lower_bound for _, one in alignments),
        by_range=tuple((covered, one.match_percent) for covered, one in alignments),
    )


def require_match(
    alignment: Alignment, least_percent: float = LEAST_MATCH_PERCENT, subject: str = "recordings"
) -> None:
    """Raise MisalignedError, with the first differences, where less than ``least_percent`` matches, of all
    launches or of those of a slice."""
    if alignment.match_percent >= least_percent:
        _require_each_range(alignment, least_percent, subject)
        return
    raise MisalignedError(
        subject,
        f"only {alignment.match_text()} of the launches match ({alignment.kind}; "
        f"{len(alignment.left_rows):,} of {max(alignment.left_launches, alignment.right_launches):,}), "
        f"and {least_percent:g} % are needed",
        "record both again with the same command, input and seeds, and with library autotuning off",
        alignment.differences,
    )


def _require_each_range(alignment: Alignment, least_percent: float, subject: str) -> None:
    worst = min(alignment.by_range, key=lambda one: one[1], default=None)
    if worst is None or worst[1] >= least_percent:
        return
    covered, percent = worst
    raise MisalignedError(
        subject,
        f"only {np.floor(percent * 100) / 100:g} % of the slice of launches {covered.first:,} to "
        f"{covered.last:,} match ({alignment.kind}), and {least_percent:g} % of each slice are needed",
        "record both again with the same command, input and seeds, and with library autotuning off",
        alignment.differences,
    )


def totals_only(launches: Launches, what: Shape) -> bool:
    """Whether a recording knows, for at least one launch, only the total of grid or block.

    Launches of which it does not even know the total do not count.
    """
    total, *axes = (launches.table[f"{what}_{axis}"].null_count for axis in "xyz")
    return any(nulls > total for nulls in axes)


def shape_totals(launches: Launches, what: Shape) -> np.ndarray:
    """Blocks in the grid, or threads in a block, of every launch: shape (n,), int64; 0 if not known."""
    return _totals([launches.column(name) for name in _known_axes(launches, what)])


def _known_axes(launches: Launches, what: Shape) -> list[str]:
    """The columns of x, and of each of y and z that the recording knows for a launch."""
    axes = [axis for axis in "yz" if launches.table[f"{what}_{axis}"].null_count < len(launches)]
    return [f"{what}_{axis}" for axis in ("x", *axes)]


def _totals(axes: list[np.ndarray]) -> np.ndarray:
    product = np.maximum(axes[0].astype(np.int64), 0)
    for axis in axes[1:]:
        # An axis that is not known is 1: x then holds the total.
        product *= np.maximum(axis, 1)
    return product


def sequence_totals_hash(launches: Launches, kind: MatchKind) -> str:
    """A hash of what was launched in which order, by the totals of the shapes that ``kind`` compares.

    Equal for recordings of the same launches even where one knows only totals; hexadecimal BLAKE2b-128.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in ("process", "kernel_id"):
        update_with(digest, launches, name)
    for what in _SHAPES_COMPARED[kind]:
        for axes in launches.batches(_known_axes(launches, what)):
            for block in blocks(len(axes[0])):
                digest.update(_totals([axis[block] for axis in axes]).data)
    return digest.hexdigest()


def match_flags(kind: MatchKind) -> list[str]:
    """The flags of a result whose launches were matched by ``kind``."""
    return [] if kind == "exact" else [f"matched_by_{kind}"]


def _compared(left: Launches, right: Launches, kind: MatchKind) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The columns of both sides that a kind of match compares, pair by pair."""
    yield left.column("kernel_id"), right.column("kernel_id")
    for what in _SHAPES_COMPARED[kind]:
        if totals_only(left, what) or totals_only(right, what):
            yield shape_totals(left, what), shape_totals(right, what)
        else:
            for axis in "xyz":
                yield left.column(f"{what}_{axis}"), right.column(f"{what}_{axis}")


def _signature_codes(
    left: Launches, right: Launches, kind: MatchKind
) -> tuple[np.ndarray, np.ndarray] | None:
    """A 64-bit code of what each launch is, shape (n,) for either side; None where only order counts."""
    if kind == "position":
        return None
    pairs = list(_compared(left, right, kind))
    return hash_rows([ours for ours, _ in pairs]), hash_rows([theirs for _, theirs in pairs])


def _equal_rows(
    left: Launches, right: Launches, rows: tuple[np.ndarray, np.ndarray], kind: MatchKind
) -> np.ndarray:
    """Whether the launches matched by their codes are truly equal, shape (m,)."""
    equal = np.ones(len(rows[0]), bool)
    for ours, theirs in _compared(left, right, kind):
        equal &= ours[rows[0]] == theirs[rows[1]]
    return equal


def _same_ordinals(
    left: Launches, right: Launches, ours: slice, theirs: slice
) -> tuple[np.ndarray, np.ndarray]:
    _, matched_left, matched_right = np.intersect1d(
        left.column("launch")[ours],
        right.column("launch")[theirs],
        assume_unique=True,
        return_indices=True,
    )
    return matched_left, matched_right


def _process_ranges(launches: Launches) -> dict[int, slice]:
    """The rows of each process, by its ordinal."""
    process = launches.column("process")
    if not len(process):
        return {}
    edges = [0, *(np.flatnonzero(np.diff(process)) + 1).tolist(), len(process)]
    return {int(process[start]): slice(start, stop) for start, stop in pairwise(edges)}


@dataclass(frozen=True)
class _Side:
    """One side of an alignment, as the description of its differences needs it."""

    launches: Launches
    parts: dict[int, slice]
    matched: np.ndarray
    name: str

    def rows_of(self, process: int) -> tuple[slice, np.ndarray]:
        rows = self.parts.get(process, slice(0, 0))
        first, last = np.searchsorted(self.matched, (rows.start, rows.stop))
        return rows, self.matched[first:last]

    def text(self, row: int) -> str:
        one = self.launches.slice(row, 1)
        name = _shortened(self.launches.names[int(one.column("kernel_id")[0])])
        shapes = [
            f"{what} ({', '.join(str(int(v)) for v in values if v > 0) or 'unknown'})"
            for what in ("grid", "block")
            for values in [[one.column(f"{what}_{axis}")[0] for axis in "xyz"]]
        ]
        return f"{self.name} has at launch {one.column('launch')[0]} {name} {' '.join(shapes)}"


def _shortened(name: str) -> str:
    half = (_NAME_LENGTH - 3) // 2
    return name if len(name) <= _NAME_LENGTH else f"{name[:half]}...{name[-half:]}"


def _differences(left: _Side, right: _Side) -> Iterator[str]:
    """The first differences, one line each: the launches between two matches on either side."""
    shown = 0
    for process in sorted(left.parts.keys() | right.parts.keys()):
        for ours, theirs in _gaps(left.rows_of(process), right.rows_of(process), _DIFFERENCES_SHOWN - shown):
            for index in range(max(len(ours), len(theirs))):
                if shown == _DIFFERENCES_SHOWN:
                    return
                shown += 1
                texts = [
                    side.text(gap[index]) if index < len(gap) else f"{side.name} has nothing there"
                    for side, gap in ((left, ours), (right, theirs))
                ]
                yield f"process {process}: {'; '.join(texts)}"


def _gaps(
    left: tuple[slice, np.ndarray], right: tuple[slice, np.ndarray], most: int
) -> Iterator[tuple[range, range]]:
    """The first stretches of unmatched rows of a process: a range of rows on each side."""
    edges = [
        np.concatenate([[rows.start - 1], matched, [rows.stop]]).astype(np.int64)
        for rows, matched in (left, right)
    ]
    wide = np.flatnonzero((np.diff(edges[0]) > 1) | (np.diff(edges[1]) > 1))[:most]
    for gap in wide.tolist():
        ours, theirs = (range(int(edge[gap]) + 1, int(edge[gap + 1])) for edge in edges)
        yield ours, theirs
