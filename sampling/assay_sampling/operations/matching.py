"""Which operations of two recordings are the same, across GPUs, vendors and library versions.

Operations are matched in order, thread by thread, by canonical name and input shapes: a longest common
subsequence, so one inserted call shifts nothing. Threads are paired by what they call, because the ordinal
of a thread depends on which launches first; more than a hundred on both sides by their ordinals.

Source: docs/concepts.md, "Operations"; docs/methods/comparing.md, "By operation".
Memory: at most 100 bytes an operation of either side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from assay_sampling.errors import MisalignedError
from assay_sampling.launches.common_subsequence import common_subsequence
from assay_sampling.operations.collapsing import Operations
from assay_sampling.operations.identity import Operation

LEAST_MATCHED_TIME_PERCENT = 95.0
_DIFFERENCES_SHOWN = 5
# With more, threads are paired by their ordinals: comparing all would take longer than matching.
_MOST_THREAD_PAIRS = 10_000


@dataclass(frozen=True)
class OperationSequence:
    """What a recording calls, in order: arrays of shape (m,), in the order of process and first launch.

    ``identity`` indexes ``identities``; ``time`` is the light time of each operation, or its cost where there
    is no light run; ``launch`` the ordinal of its first launch.
    """

    process: np.ndarray
    launch: np.ndarray
    identity: np.ndarray
    identities: tuple[Operation, ...]
    time: np.ndarray

    @classmethod
    def of(cls, operations: Operations, time: np.ndarray) -> OperationSequence:
        return cls(
            process=operations.launches.column("process"),
            launch=operations.launches.column("launch"),
            identity=operations.identity,
            identities=operations.identities,
            time=time,
        )

    def __len__(self) -> int:
        return len(self.identity)

    @property
    def has_shapes(self) -> bool:
        """Whether an operator or routine of it has input shapes."""
        return any(one.shapes for one in self.identities)

    @property
    def lost_shapes(self) -> bool:
        """Whether it has operators or routines, all of them without shapes; graphs and kernels have none."""
        return not self.has_shapes and any(one.kind in ("operator", "routine") for one in self.identities)

    def threads(self) -> np.ndarray:
        """The calling thread of each operation, shape (m,)."""
        of_identity = np.array([one.thread for one in self.identities] or [0], np.int64)
        of_operation: np.ndarray = of_identity[self.identity]
        return of_operation

    def label(self, row: int) -> str:
        return self.identities[int(self.identity[row])].label()


@dataclass(frozen=True)
class OperationMatch:
    """Operations matched with one another: ``left_rows`` (ascending) and ``right_rows``, shape (m,).

    The percentages are of the calls and the time of either side. ``differences`` describes the first
    operations that differ, a line each. With ``lower_bound`` more may match than were found.
    """

    left_rows: np.ndarray
    right_rows: np.ndarray
    left_calls_percent: float
    right_calls_percent: float
    left_time_percent: float
    right_time_percent: float
    differences: tuple[str, ...] = ()
    lower_bound: bool = False

    def to_dict(self) -> dict[str, float | bool | int]:
        return {
            "calls_matched": len(self.left_rows),
            "selection_calls_percent": self.left_calls_percent,
            "recording_calls_percent": self.right_calls_percent,
            "selection_time_percent": self.left_time_percent,
            "recording_time_percent": self.right_time_percent,
            "lower_bound": self.lower_bound,
        }


def match_operations(left: OperationSequence, right: OperationSequence, subject: str) -> OperationMatch:
    """Match the operations of two recordings. Raises MisalignedError where only one has input shapes: by name
    alone calls of other sizes would match."""
    if (left.has_shapes and right.lost_shapes) or (right.has_shapes and left.lost_shapes):
        without = "the recording" if left.has_shapes else "the selection's recording"
        raise MisalignedError(
            subject,
            f"{without} has no input shapes, and the other one has",
            "record both with input shapes (PyTorch's profiler: record_shapes=True; nsys: "
            "--pytorch=autograd-shapes-nvtx), or both without",
            tuple(_first_shapes(left, right)),
        )
    codes = _codes(left, right)
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    exact = True
    for ours, theirs in _paired_threads(left, right, codes):
        common = common_subsequence(codes[0][ours], codes[1][theirs])
        exact &= common.exact
        pairs.append((ours[common.left], theirs[common.right]))
    left_rows = np.concatenate([np.empty(0, np.int64), *(one for one, _ in pairs)])
    right_rows = np.concatenate([np.empty(0, np.int64), *(other for _, other in pairs)])
    order = np.argsort(left_rows, kind="stable")
    left_rows, right_rows = left_rows[order], right_rows[order]
    return OperationMatch(
        left_rows=left_rows,
        right_rows=right_rows,
        left_calls_percent=_percent(len(left_rows), len(left)),
        right_calls_percent=_percent(len(right_rows), len(right)),
        left_time_percent=_percent(left.time[left_rows].sum(), left.time.sum()),
        right_time_percent=_percent(right.time[right_rows].sum(), right.time.sum()),
        differences=tuple(_differences(left, right, left_rows, right_rows)),
        lower_bound=not exact,
    )


def require_operations_match(
    match: OperationMatch, subject: str, least_percent: float = LEAST_MATCHED_TIME_PERCENT
) -> None:
    """Raise MisalignedError, with the first differences, where less of either side's time matches."""
    least = min(match.left_time_percent, match.right_time_percent)
    if least >= least_percent:
        return
    raise MisalignedError(
        subject,
        f"operations with {_shown(match.left_time_percent)} % of the selection's time and "
        f"{_shown(match.right_time_percent)} % of the recording's match "
        f"({len(match.left_rows):,} calls), and {least_percent:g} % of both are needed",
        "record both with the same command, batch size, input and seeds",
        match.differences,
    )


def _shown(percent: float) -> str:
    # Rounding down: 94.999 % must not be shown as the 95 % that it is not.
    return f"{np.floor(percent * 100) / 100:g}"


def _percent(part: float, whole: float) -> float:
    return 100.0 * float(part) / float(whole) if whole else 100.0


def _codes(left: OperationSequence, right: OperationSequence) -> tuple[np.ndarray, np.ndarray]:
    """A number for what each operation is, shape (m,) for either side; threads do not count."""
    position: dict[tuple[str, str, str], int] = {}
    of_identity = [
        np.array(
            [position.setdefault((one.kind, one.name, one.shapes), len(position)) for one in side.identities]
            or [0],
            np.int64,
        )
        for side in (left, right)
    ]
    return of_identity[0][left.identity], of_identity[1][right.identity]


def _paired_threads(
    left: OperationSequence, right: OperationSequence, codes: tuple[np.ndarray, np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of threads that correspond, process by process: those that have most calls in common first."""
    sides = [_by_thread(side) for side in (left, right)]
    if len(sides[0]) * len(sides[1]) > _MOST_THREAD_PAIRS:
        for thread in sorted(sides[0].keys() & sides[1].keys()):
            yield sides[0][thread], sides[1][thread]
        return
    common = [
        (-_shared(codes[0][ours], codes[1][theirs]), one[1], other[1], one, other)
        for one, ours in sides[0].items()
        for other, theirs in sides[1].items()
        if one[0] == other[0]
    ]
    threads: set[tuple[int, tuple[int, int]]] = set()
    for shared, _, _, one, other in sorted(common):
        if shared and (0, one) not in threads and (1, other) not in threads:
            threads |= {(0, one), (1, other)}
            yield sides[0][one], sides[1][other]


def _by_thread(side: OperationSequence) -> dict[tuple[int, int], np.ndarray]:
    keys = np.stack([side.process.astype(np.int64), side.threads()], axis=1)
    distinct, index = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(index.reshape(-1), kind="stable")
    starts = np.searchsorted(index.reshape(-1)[order], np.arange(len(distinct) + 1))
    return {
        (process, thread): order[starts[place] : starts[place + 1]]
        for place, (process, thread) in enumerate(distinct.tolist())
    }


def _shared(ours: np.ndarray, theirs: np.ndarray) -> int:
    """How many calls two threads have in common, in any order."""
    size = int(max(ours.max(initial=0), theirs.max(initial=0))) + 1
    return int(np.minimum(np.bincount(ours, None, size), np.bincount(theirs, None, size)).sum())


def _first_shapes(left: OperationSequence, right: OperationSequence) -> Iterator[str]:
    """The first call of either side that has input shapes, or could have them."""
    for side, name in ((left, "the selection's recording"), (right, "the recording")):
        with_shapes = [
            bool(one.shapes) if side.has_shapes else one.kind in ("operator", "routine")
            for one in side.identities
        ]
        row = int(np.argmax(np.array(with_shapes, bool)[side.identity]))
        yield f"{name} has, at launch {side.launch[row]}, {side.label(row)[:120]}"


def _differences(
    left: OperationSequence, right: OperationSequence, left_rows: np.ndarray, right_rows: np.ndarray
) -> Iterator[str]:
    sides: Sequence[tuple[OperationSequence, np.ndarray, str]] = (
        (left, left_rows, "the selection's recording"),
        (right, right_rows, "the recording"),
    )
    for side, rows, name in sides:
        unmatched = np.ones(len(side), bool)
        unmatched[rows] = False
        for row in np.flatnonzero(unmatched)[:_DIFFERENCES_SHOWN].tolist():
            yield f"only {name} has, at launch {side.launch[row]}, {side.label(row)[:120]}"
