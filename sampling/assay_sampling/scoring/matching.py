"""Whether a recording holds the launches of a selection, and in which rows its representatives are.

A recording holds the same launches if there are as many and they are the same kernels with the same
blocks in the same order; on the same GPU also with the same grids.

Source: docs/methods/comparing.md, "Scores".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from assay_sampling.documents.selection import ProfilePart, SequenceHashes
from assay_sampling.engines.columns import in_place_of
from assay_sampling.errors import MisalignedError
from assay_sampling.launches.alignment import Alignment, MatchKind, Shape, shape_totals, totals_only
from assay_sampling.launches.in_memory import Launches
from assay_sampling.running.identity import told_apart
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection

DIFFERENCES_SHOWN = 5
SAME_COMMAND = "score it on a recording of the same command, input and seeds"
_DEMANGLE = "write the simulator's log with demangled ones (zcat RUN.out.gz | c++filt > run.out)"


def source_of(launches: Launches) -> str:
    """The files of a recording, for messages."""
    return ", ".join(launches.sources) or "the recording"


def kind_needed(profile: ProfilePart, launches: Launches) -> MatchKind:
    """Libraries choose other grids on other GPUs; on the same one, another grid is another launch."""
    return "exact" if on_the_same_gpu(profile, launches) else "name_block"


def on_the_same_gpu(profile: ProfilePart, launches: Launches) -> bool | None:
    """Whether a recording is of a GPU of a selection's profile; None if either says nothing of GPUs.

    Where either numbers its GPUs without naming them, only the file that the selection was made on counts.
    """
    labels = launches.device_labels()
    if not profile.devices or not labels:
        return None
    made_on, scored_on = told_apart(profile.devices), told_apart(labels)
    if made_on and scored_on:
        return bool(made_on & scored_on)
    return bool(launches.sources) and list(launches.sources) == profile.sources


def same_sequence(one: SequenceHashes, other: SequenceHashes, kind: MatchKind) -> bool:
    """Whether two recordings launch the same, as far as their hashes of ``kind`` tell."""
    whole = getattr(one, kind) == getattr(other, kind)
    # If one of the two knows only totals of grid and block, both are compared by totals.
    by_totals = one.totals_only or other.totals_only
    return whole or (by_totals and getattr(one, f"{kind}_totals") == getattr(other, f"{kind}_totals"))


def rows_of_representatives(
    saved: SavedSelection, launches: Launches, kind: MatchKind
) -> tuple[np.ndarray, list[str]]:
    """Rows of the representatives in a recording, shape (r,), and their differences, a line each."""
    keys = keys_of(launches)
    saved_keys = row_keys(saved.process, saved.launch)
    rows = np.minimum(np.searchsorted(keys, saved_keys), max(len(keys) - 1, 0))
    there = launches.take(rows)
    differences = []
    present = keys[rows] == saved_keys
    shapes: tuple[Shape, ...] = ("grid", "block") if kind == "exact" else ("block",)
    for index in range(len(saved_keys)):
        where = f"process {saved.process[index]} launch {saved.launch[index]}"
        if not present[index]:
            differences.append(f"{where} is missing")
            continue
        texts = list(_differences(saved, there.slice(index, 1), index, shapes))
        if texts:
            differences.append(f"{where}: {', '.join(texts)}")
    return rows, differences


def other_launches(
    subject: str, saved: SavedSelection, there: Launches, differences: list[str]
) -> MisalignedError:
    """The refusal of representatives that are different launches in ``there``, shape (r,).

    Traces, and so simulators' logs, have mangled names; profilers give demangled ones.
    """
    here = (there.names[identifier] for identifier in there.column("kernel_id").tolist())
    pairs = [(ours, theirs) for ours, theirs in zip(saved.kernel, here, strict=True) if ours != theirs]
    theirs_mangled = bool(pairs) and all(_mangled(b) and not _mangled(a) for a, b in pairs)
    ours_mangled = bool(pairs) and all(_mangled(a) and not _mangled(b) for a, b in pairs)
    if theirs_mangled:
        remedy = f"its kernel names are mangled: {_DEMANGLE}, and score the selection on that"
    elif ours_mangled:
        remedy = f"the kernel names of the selection are mangled: {_DEMANGLE}, and select on that"
    else:
        remedy = SAME_COMMAND
    return MisalignedError(
        subject,
        f"{len(differences)} of the {len(there)} representatives are different launches here",
        remedy,
        tuple(differences[:DIFFERENCES_SHOWN]),
        spelling=theirs_mangled or ours_mangled,
    )


def _mangled(kernel: str) -> bool:
    return kernel.startswith("_Z")


def row_keys(process: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """A number for each launch, shape (n,), in the order of process and launch."""
    return (process.astype(np.int64) << 40) + launch.astype(np.int64)


def keys_of(launches: Launches) -> np.ndarray:
    """:func:`row_keys` of all launches, shape (n,), ascending; on disk where they are."""
    process, launch = launches.array("process"), launches.array("launch")
    return in_place_of(process, np.int64, lambda block: row_keys(process[block], launch[block]), launch)


def _differences(
    saved: SavedSelection, one: Launches, index: int, shapes: tuple[Shape, ...]
) -> Iterator[str]:
    """Differences of one launch from the saved representative ``index``."""
    kernel = one.names[int(one.column("kernel_id")[0])]
    if kernel != saved.kernel[index]:
        yield f"kernel {kernel[:80]!r} and not {saved.kernel[index][:80]!r}"
    for what in shapes:
        saved_shape = (saved.grid if what == "grid" else saved.block)[index]
        shape = [max(int(one.column(f"{what}_{axis}")[0]), 0) for axis in "xyz"]
        # A selection made on totals has them in x; its product is the total either way.
        if totals_only(one, what) or (saved_shape[1:] == 1).all():
            same = int(shape_totals(one, what)[0]) == int(np.prod(saved_shape))
        else:
            same = shape == saved_shape.tolist()
        if not same:
            yield f"{what} {_shown(shape)} and not {_shown(saved_shape.tolist())}"


def _shown(shape: list[int]) -> str:
    sizes = [size for size in shape if size > 0]
    return str(sizes) if sizes else "unknown"


def refuse_other_counts(subject: str, reference: Launches, other: Launches) -> None:
    """Raise MisalignedError if a process has other numbers of launches in the two recordings."""
    ours, theirs = (
        dict(zip(*(v.tolist() for v in np.unique(side.column("process"), return_counts=True)), strict=True))
        for side in (reference, other)
    )
    if ours == theirs:
        return
    differences = tuple(
        f"process {process}: {ours.get(process, 0):,} and {theirs.get(process, 0):,} launches"
        for process in sorted(ours.keys() | theirs.keys())
        if ours.get(process) != theirs.get(process)
    )
    raise MisalignedError(
        subject,
        f"they hold different numbers of launches ({len(reference):,} and {len(other):,})",
        "record both with the same command, input and seeds",
        differences[:DIFFERENCES_SHOWN],
    )


def counterparts_of(alignment: Alignment, selection: Selection, subject: str) -> np.ndarray:
    """Rows of the representatives in the other recording, shape (r,)."""
    rows = selection.representatives.row
    position = np.minimum(np.searchsorted(alignment.left_rows, rows), len(alignment.left_rows) - 1)
    missing = alignment.left_rows[position] != rows
    if missing.any():
        index = int(np.argmax(missing))
        representatives = selection.representatives
        raise MisalignedError(
            subject,
            f"the representative at process {representatives.process[index]} launch "
            f"{representatives.launch[index]} ({representatives.kernel[index][:80]}) has no counterpart "
            f"({alignment.kind}, {int(missing.sum())} of {len(rows)} representatives)",
            "choose representatives by another rule or seed, or match by position",
            alignment.differences,
        )
    return np.asarray(alignment.right_rows[position])
