"""Traces of a tracer that missed launches: which launch each of them is, by kernel, shapes and order.

A tracer numbers what it sees: each launch that it misses lowers the ids of all that follow. Launches keep
their order, so of all ways to assign traces there is a first one, where each launch is as early as it can be,
and a last one. What both agree on is the only possibility; nothing else is taken.

With the recording every trace has to be one of its launches. Without it each selected launch has to be one
of the traces: wrong where the tracer missed it, and traced another launch of its kernel and shapes nearby.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from assay_sampling.errors import MisalignedError
from assay_sampling.handover.comparing.shapes import KernelShape, SeenLaunch, differences_of
from assay_sampling.handover.target import Inputs
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.in_memory import Launches
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scoring.elsewhere import rows_on
from assay_sampling.scoring.matching import DIFFERENCES_SHOWN
from assay_sampling.scoring.saved.operations import written_shape
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.simulators.accel_sim.trace_folder import TraceFolder

# Without the recording, so many traces at most may each selected launch be.
_MOST_MISSED = 10_000
_TRACE_AGAIN = "trace again with a tracer of 2025 or later: earlier ones miss launches by cuLaunchKernelEx"


@dataclass(frozen=True)
class Assignments:
    """All ways to assign a sequence in order: the places that each element may have, and those that it has in
    the first and in the last way, each of shape (n,)."""

    places: Sequence[np.ndarray]
    first: np.ndarray
    last: np.ndarray

    def of(self, index: int) -> list[int]:
        """The places of an element in all ways, ascending."""
        places = self.places[index]
        within = (self.first[index] <= places) & (places <= self.last[index])
        return [int(place) for place in places[within]]


def assignments(places: Sequence[np.ndarray], gaps: Sequence[int] | None = None) -> Assignments | None:
    """All ways to give each element one of its ``places``, each ascending, so that places ascend strictly,
    and where ``gaps``, shape (n - 1,), are given by no more than these. None if there is no way."""
    first = _first(places, gaps)
    if first is None:
        return None
    mirrored = _first([-each[::-1] for each in places[::-1]], None if gaps is None else gaps[::-1])
    assert mirrored is not None
    return Assignments(places, first, -mirrored[::-1])


def _first(places: Sequence[np.ndarray], gaps: Sequence[int] | None) -> np.ndarray | None:
    """The least place of each element; bounds are raised until none has to be."""
    least = np.array([each[0] if len(each) else 0 for each in places], np.int64)
    raised = True
    while raised:
        raised = False
        for index, each in enumerate(places):
            bound = int(least[index])
            if index:
                bound = max(bound, int(least[index - 1]) + 1)
            if gaps is not None and index + 1 < len(places):
                bound = max(bound, int(least[index + 1]) - gaps[index])
            at = int(np.searchsorted(each, bound))
            if at == len(each):
                return None
            if each[at] != least[index]:
                least[index] = each[at]
                raised = gaps is not None
    return least


class _Comparison:
    """Whether traces, by their 0-based number, can be launches; each header is read once."""

    def __init__(self, folder: TraceFolder, match: MatchKind) -> None:
        @cache
        def launch_of(number: int) -> SeenLaunch:
            header = folder.header(number + 1)
            return SeenLaunch(header.kernel_name, header.grid, header.block, "")

        @cache
        def same(one: SeenLaunch, shape: KernelShape) -> bool:
            return not any(differences_of(shape, one, match))

        self.launch_of, self.same = launch_of, same

    def fits(self, number: int, shape: KernelShape) -> bool:
        return self.same(self.launch_of(number), shape)


def _missed(saved: SavedSelection, folder: TraceFolder) -> int:
    """How many launches more the selection was made on than were traced; 0 where only some were to be."""
    whole = not folder.traced_ids and max(folder.by_id) == len(folder.by_id)
    return max(saved.document.profile.launches - len(folder.by_id), 0) if whole else 0


def _selected(saved: SavedSelection, folder: TraceFolder, compared: _Comparison) -> Assignments | None:
    """The traces, by 0-based number, that the selected launches may be, in the order of their launches; None
    where a tracer that missed launches does not explain these traces."""
    missed, traced = _missed(saved, folder), len(folder.by_id)
    if not 0 < missed <= _MOST_MISSED:
        return None
    rows = np.argsort(saved.launch, kind="stable").tolist()
    launches = saved.launch[rows].astype(np.int64)
    places = []
    for row, launch in zip(rows, launches.tolist(), strict=True):
        near = range(max(launch - missed, 0), min(launch + 1, traced))
        shape = KernelShape.of(saved, row)
        places.append(np.array([number for number in near if compared.fits(number, shape)], np.int64))
    return assignments(places, np.diff(launches).tolist())


def realigned(
    saved: SavedSelection, inputs: Inputs, folder: TraceFolder
) -> tuple[TraceFolder, tuple[Note, ...]]:
    """The traces by the ids of the launches that they are, with a note, where a tracer missed launches; else
    the folder as it is.

    Raises MisalignedError naming the launch where a selected one may be several traces, or may have none, and
    where traces are no launches of the recording.
    """
    if not _missed(saved, folder):
        return folder, ()
    compared = _Comparison(folder, inputs.match)
    subject = f"{folder.kernels.path} and {inputs.selection}"
    if inputs.recording is None:
        traces = _by_selected(subject, saved, folder, compared)
    else:
        traces = _by_recording(subject, saved, inputs.recording, folder, compared)
    if traces is None:
        return folder, ()
    shifts = [launch - traces[launch] for launch in saved.launch.tolist()]
    note = make_note(
        "launch_ids_realigned",
        moved=sum(shift > 0 for shift in shifts),
        launches=len(shifts),
        least=min(shift for shift in shifts if shift) if any(shifts) else 0,
        most=max(shifts),
        by_recording=inputs.recording is not None,
    )
    again = replace(
        folder,
        by_id={launch + 1: folder.by_id[number + 1] for launch, number in traces.items()},
        traced_ids={launch + 1: number + 1 for launch, number in traces.items()},
    )
    return again, (note,)


def _by_selected(
    subject: str, saved: SavedSelection, folder: TraceFolder, compared: _Comparison
) -> Mapping[int, int] | None:
    """The trace of each selected launch; None where their own ids fit, or nothing does."""
    traced = len(folder.by_id)
    own = [
        launch >= traced or compared.fits(launch, KernelShape.of(saved, row))
        for row, launch in enumerate(saved.launch.tolist())
    ]
    ways = None if all(own) else _selected(saved, folder, compared)
    if ways is None:
        return None
    rows = np.argsort(saved.launch, kind="stable").tolist()
    several = [
        (saved.kernel[row], int(saved.launch[row]), ways.of(index))
        for index, row in enumerate(rows)
        if ways.first[index] != ways.last[index]
    ]
    if several:
        raise _not_unique(
            subject, _missed(saved, folder), several, "name the recording that the selection was made on "
            f"(--recording FILE), whose launches tell more; or {_TRACE_AGAIN}"
        )  # fmt: skip
    return dict(zip(saved.launch[rows].tolist(), ways.first.tolist(), strict=True))


def _by_recording(
    subject: str, saved: SavedSelection, recording: Launches, folder: TraceFolder, compared: _Comparison
) -> Mapping[int, int] | None:
    """The trace of each launch that can be no other; None where the traces are the first launches."""
    selected = rows_on(saved, recording)
    own = np.flatnonzero(recording.column("process") == recording.column("process")[selected[0]])
    shapes, key_of_row = _kernel_shapes(recording.take(own))
    rows_of = {key: np.flatnonzero(key_of_row == key) for key in range(len(shapes))}

    @cache
    def places_of(one: SeenLaunch) -> np.ndarray:
        fitting = [rows_of[key] for key, shape in enumerate(shapes) if compared.same(one, shape)]
        return np.sort(np.concatenate([np.empty(0, np.int64), *fitting]))

    places = [places_of(compared.launch_of(number)) for number in range(len(folder.by_id))]
    ways = assignments(places)
    if ways is None:
        raise MisalignedError(
            subject,
            "they are of another workload than the recording: traces are not launches of it, in its order",
            "use the traces of the workload, with its input, that the selection was made on",
        )
    if np.array_equal(ways.first, np.arange(len(places))):
        return None
    ordinals = recording.column("launch")[own]
    only = np.flatnonzero(ways.first == ways.last)
    traces = dict(zip(ordinals[ways.first[only]].tolist(), only.tolist(), strict=True))
    several = [
        (saved.kernel[row], launch, _candidates(ways, int(np.searchsorted(ordinals, launch))))
        for row, launch in enumerate(saved.launch.tolist())
        if launch not in traces
    ]
    if several:
        raise _not_unique(subject, _missed(saved, folder), sorted(several, key=lambda e: e[1]), _TRACE_AGAIN)
    return traces


def _kernel_shapes(launches: Launches) -> tuple[list[KernelShape], np.ndarray]:
    """The distinct kernels with their shapes, and which of them each launch is, shape (n,)."""
    identity = ["kernel_id", *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")]
    columns = [np.unique(launches.column(name), return_inverse=True) for name in identity]
    rows = np.stack([inverse for _, inverse in columns], axis=1)
    distinct, key_of_row = np.unique(rows, axis=0, return_inverse=True)
    shapes = []
    for row in distinct.tolist():
        kernel, *axes = (values[at].item() for (values, _), at in zip(columns, row, strict=True))
        grid, block = written_shape(axes[:3]), written_shape(axes[3:])
        shapes.append(KernelShape(launches.names[kernel], tuple(grid), tuple(block)))
    return shapes, key_of_row.reshape(-1)


def _candidates(ways: Assignments, row: int) -> list[int]:
    """The traces that may be the launch of a row of the recording."""
    near = np.flatnonzero((ways.first <= row) & (row <= ways.last))
    return [number for number in near.tolist() if row in ways.of(number)]


def _not_unique(
    subject: str, missed: int, several: Sequence[tuple[str, int, list[int]]], remedy: str
) -> MisalignedError:
    kernel, launch, candidates = several[0]
    what = f"may be any of {len(candidates):,} traces" if len(candidates) > 1 else "may have no trace"
    if not candidates:
        what = "has no trace"
    return MisalignedError(
        subject,
        f"the tracer missed {missed:,} launches, and launch {launch + 1:,} ({kernel[:80]!r}) {what}, one of "
        f"{len(several):,} selected launches whose trace is not known",
        remedy,
        tuple(
            f"launch {launch + 1:,} ({kernel[:80]!r}): {_listed(candidates)}"
            for kernel, launch, candidates in several[:DIFFERENCES_SHOWN]
        ),
    )


def _listed(candidates: Sequence[int]) -> str:
    names = [f"trace {number + 1:,}" for number in candidates[:DIFFERENCES_SHOWN]]
    more = len(candidates) - len(names)
    return ", ".join(names + ([f"{more:,} more"] if more else [])) or "no trace"
