"""The seam of hand-over: a target turns a selection into the files that a simulator or tool reads.

Targets write nothing: they name files and how to make their contents, piece by piece, and whoever called
them writes. Every target checks first that what it was given belongs to the selection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.in_memory import Launches
from assay_sampling.notes.registry import Note
from assay_sampling.scoring.saved_selection import SavedSelection

Need = Literal["traces", "recording"]


@dataclass(frozen=True)
class Inputs:
    """What a hand-over is made from besides the selection.

    Args:
        selection: its file, for messages.
        workload: what files call the workload.
        made_by: the program and its version, for files that name them.
        traces: a folder of traces or the list in it; None where the target reads none.
        recording: the launches that the selection was made on; None where the target reads none. With
            traces it tells which launches a tracer missed.
        warm_up: how many earlier launches are replayed before each representative; 0: none.
        match: how closely traces must be the selected launches: ``exact`` by kernel, grid and block,
            ``name_block`` without the grid.
    """

    selection: Path
    workload: str = "workload"
    made_by: str = "assay"
    traces: Path | None = None
    recording: Launches | None = None
    warm_up: int = 0
    match: MatchKind = "exact"


@dataclass(frozen=True)
class HandedFile:
    """A file to write: its name, what it is for, and its contents piece by piece, made anew at each call."""

    name: str
    about: str
    pieces: Callable[[], Iterator[str] | Iterator[bytes]]


@dataclass(frozen=True)
class HandOver:
    """What a target hands over: files, links by name to existing files, and what the user must know.

    ``launches`` are the launches of the representatives in the order in which the target names them, shape
    (r,): rows of the columns of :meth:`SavedSelection.by_launch`. ``traced_ids`` are the 1-based ids that
    their traces have, in that order, where these are not those of the launches; else empty.
    """

    files: tuple[HandedFile, ...]
    launches: np.ndarray
    links: tuple[tuple[str, Path], ...] = ()
    notes: tuple[Note, ...] = ()
    traced_ids: tuple[int, ...] = ()


class Target(Protocol):
    """A form in which selections are handed over.

    ``needs`` are the inputs that must be given and ``takes`` those that may be; ``file_suffix`` is the end of
    the name where the result is one file, "" where it is a folder.
    """

    name: str
    summary: str
    needs: frozenset[Need]
    takes: frozenset[Need]
    file_suffix: str

    def hand_over(self, saved: SavedSelection, inputs: Inputs) -> HandOver:
        """What to write. Raises RefusedError or MisalignedError with the first differences where the inputs
        do not belong to the selection, InputError where one cannot be read."""
        ...


def of_one_process(saved: SavedSelection, inputs: Inputs) -> np.ndarray:
    """0-based launches of the representatives, shape (r,); RefusedError for those of several processes."""
    if len(np.unique(saved.process)) > 1:
        raise RefusedError(
            str(inputs.selection),
            "it selects launches of several processes, and traces count those of one",
            "select on the recording of one process",
        )
    return saved.launch.astype(np.int64)


def the_traces(inputs: Inputs) -> Path:
    """The traces that were given; raises ParameterError without any."""
    if inputs.traces is None:
        raise ParameterError("--traces", "this target reads traces", "name their folder: --traces DIR")
    return inputs.traces
