"""Whether launches of a trace or a simulation are those that a selection names.

Compared are kernel, grid and block of the launches that both have; a mangled name is compared with a
demangled one by namespaces and function (:mod:`assay_sampling.simulators.kernel_names`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from assay_sampling.errors import MisalignedError, RefusedError
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.in_memory import Launches
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scoring.matching import DIFFERENCES_SHOWN, same_sequence
from assay_sampling.scoring.saved.labels import first_difference
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import ProfileSummary
from assay_sampling.simulators.kernel_names import is_mangled, same_kernel

_SAME = "use the traces and logs of the workload, with its input, that the selection was made on"


@dataclass(frozen=True)
class SeenLaunch:
    """A launch as a trace's header or a log has it; ``where`` names the place for messages."""

    kernel: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    where: str


@dataclass(frozen=True)
class KernelShape:
    """What a trace or log has to show to be a launch; a shape known by its total alone has it in x."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]

    @classmethod
    def of(cls, saved: SavedSelection, row: int) -> KernelShape:
        """That of a representative."""
        return cls(saved.kernel[row], tuple(saved.grid[row].tolist()), tuple(saved.block[row].tolist()))


def refuse_other_launches(
    subject: str, saved: SavedSelection, others: Mapping[int, SeenLaunch], match: MatchKind
) -> tuple[Note, ...]:
    """Compare launches, by their 0-based number, with the selection's; notes on how they were compared.

    Raises MisalignedError with the first differences: launches beyond the workload's last, and
    representatives that are other launches; RefusedError as :func:`require_shapes`.
    """
    require_shapes(subject, saved, match)
    most = saved.document.profile.launches
    beyond = sorted(number for number in others if number >= most)
    differences = [
        f"{others[number].where} is launch {number + 1:,}, and the selection was made on {most:,} launches"
        for number in beyond
    ]
    mangled = False
    for index, number in enumerate(saved.launch.tolist()):
        if number in others:
            there = others[number]
            mangled |= is_mangled(there.kernel) != is_mangled(saved.kernel[index])
            difference = ", ".join(differences_of(KernelShape.of(saved, index), there, match))
            if difference:
                differences.append(f"{there.where} (launch {number + 1:,}): {difference}")
    if differences:
        raise MisalignedError(
            subject,
            f"they are of another workload than the selection: {_differ(len(differences))}",
            _remedy(saved, others, match),
            tuple(differences[:DIFFERENCES_SHOWN]),
        )
    return (make_note("names_compared_without_arguments"),) if mangled else ()


def require_shapes(subject: str, saved: SavedSelection, match: MatchKind) -> None:
    """Raise RefusedError for a representative without the shapes that ``match`` compares: it could be taken
    for another launch."""
    compared = {"block": saved.block, **({"grid": saved.grid} if match == "exact" else {})}
    for what, shapes in compared.items():
        unknown = np.flatnonzero(shapes[:, 0] < 1)
        if len(unknown):
            row = int(unknown[0])
            raise RefusedError(
                subject,
                f"the {what} of launch {saved.launch[row] + 1:,} ({saved.kernel[row][:80]!r}) is not known, "
                f"one of {len(unknown):,} among the {len(saved.launch):,} selected launches",
                "select on a recording with grids and blocks: the trace of a run without graphs, or that of "
                "another profiler",
            )


def _differ(launches: int) -> str:
    return "1 launch differs" if launches == 1 else f"{launches:,} launches differ"


def differences_of(expected: KernelShape, there: SeenLaunch, match: MatchKind) -> Iterator[str]:
    """How a launch differs from what it has to be; nothing where it can be that."""
    if not same_kernel(there.kernel, expected.kernel):
        yield f"kernel {there.kernel[:80]!r} and not {expected.kernel[:80]!r}"
    if match == "exact" and not _same_shape(there.grid, expected.grid):
        yield f"grid {there.grid} and not {expected.grid}"
    if not _same_shape(there.block, expected.block):
        yield f"block {there.block} and not {expected.block}"


def _same_shape(shape: tuple[int, int, int] | None, expected: tuple[int, ...]) -> bool:
    if shape is None or shape == expected:
        return True
    # A recording that knows only the total has it in x.
    return expected[1:] == (1, 1) and shape[0] * shape[1] * shape[2] == expected[0]


def _remedy(saved: SavedSelection, others: Mapping[int, SeenLaunch], match: MatchKind) -> str:
    other_grids = match == "exact" and all(
        not any(differences_of(KernelShape.of(saved, i), others[n], "name_block"))
        for i, n in enumerate(saved.launch.tolist())
        if n in others
    )
    if other_grids and max(others) < saved.document.profile.launches:
        return (
            "if the traces are of another GPU than the selection, libraries may choose other grids there: "
            "--match name_block leaves grids out"
        )
    return _SAME


def refuse_another_sequence(
    subject: str, saved: SavedSelection, launches: Launches, match: MatchKind
) -> None:
    """Raise MisalignedError where all launches of a workload are known and are not those of the selection.

    Launches whose names are in another form (mangled or not) cannot be compared as a whole and are not.
    """
    ours = {is_mangled(name) for name in saved.kernel}
    theirs = {is_mangled(launches.names[name]) for name in set(launches.column("kernel_id").tolist())}
    if ours != theirs or len(ours) > 1:
        return
    if same_sequence(saved.sequence, ProfileSummary.of(launches).sequence(), match):
        return
    difference = first_difference(saved.document.labels, launches, match)
    raise MisalignedError(
        subject,
        f"the representatives agree, but the launches between them differ ({match} comparison)",
        _SAME,
        () if difference is None else (difference,),
    )
