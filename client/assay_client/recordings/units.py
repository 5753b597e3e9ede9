"""The unit of a selection: launches, or operations where libraries launch other kernels on another GPU."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from assay_sampling.errors import MisalignedError, ParameterError
from assay_sampling.launches.alignment import LEAST_MATCH_PERCENT, align
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.operations.collapsing import how_to_record, knows_operations, require_operations
from assay_sampling.parameters import Unit
from assay_sampling.scoring.matching import on_the_same_gpu
from assay_sampling.scoring.saved_selection import SavedSelection

_COMPARE = "assay compare FILE --unit operation --on OTHER"
UnitChoice = Literal["launch", "operation", "auto"]


def unit_choice(text: str) -> UnitChoice:
    """The value of ``--unit``; raises ParameterError for another one."""
    choices: tuple[UnitChoice, ...] = get_args(UnitChoice)
    for choice in choices:
        if text == choice:
            return choice
    raise ParameterError("--unit", f"there is no unit {text!r}", "use launch, operation or auto")


def unit_for(choice: UnitChoice, profile: Profile, other: Profile | None = None) -> Unit:
    """The unit to select by. ``auto`` takes launches, unless another recording is shown on which fewer than
    99 % of them agree by kernel and block. Raises RefusedError where they do not, and one of the two
    recordings knows no operations."""
    if choice != "auto":
        return choice
    if other is None or launches_agree(profile.whole, other.whole):
        return "launch"
    # Raises where one of the two knows no operations: the selection could not be scored there.
    for recording in (profile.whole, other.whole):
        require_operations(recording)
    return "operation"


def launches_agree(one: Launches, other: Launches) -> bool:
    """Whether two recordings launch the same, as far as GPUs of two kinds can: 99 % by kernel and block."""
    return len(one) == len(other) and align(one, other, "name_block").match_percent >= LEAST_MATCH_PERCENT


def require_unit(choice: UnitChoice, saved: SavedSelection) -> None:
    """Raise ParameterError if a selection was made by another unit than the one asked for."""
    if choice not in ("auto", saved.unit):
        raise ParameterError(
            "--unit",
            f"the selection was made by {saved.unit}",
            f"leave it out, or select again with: assay select {saved.document.method} FILE --unit {choice}",
        )


def misaligned_launches(error: MisalignedError, here: Launches, there: Launches) -> MisalignedError:
    """The refusal of another GPU's recording by launch, with what to do by operation."""
    if error.spelling or there.metadata.simulated:
        return error
    ours, theirs = (
        {side.names[i] for i in np.unique(side.column("kernel_id")).tolist()} for side in (here, there)
    )
    return _by_operation_instead(
        error, f"{len(ours & theirs):,} of the {len(ours):,} kernels have this name there", there, _COMPARE
    )


def with_the_other_unit(error: MisalignedError, saved: SavedSelection, launches: Launches) -> MisalignedError:
    """The refusal of a selection by launch on another GPU, with what to do by operation."""
    if on_the_same_gpu(saved.document.profile, launches) or launches.metadata.simulated:
        return error
    if error.spelling:
        return error
    names = set(saved.kernel)
    names_there = {launches.names[i] for i in np.unique(launches.column("kernel_id")).tolist()}
    agree = f"{len(names & names_there):,} of the {len(names):,} selected kernels have this name there"
    again = f"assay select {saved.document.method} FILE --unit operation -o selection.json"
    return _by_operation_instead(error, agree, launches, again)


def _by_operation_instead(
    error: MisalignedError, agree: str, launches: Launches, again: str
) -> MisalignedError:
    if knows_operations(launches):
        remedy = f"libraries launch other kernels on another GPU; select by operation: {again}"
    else:
        remedy = (
            f"libraries launch other kernels on another GPU, and this recording has no operations to match "
            f"instead: {how_to_record(launches.metadata.format)}; then {again}"
        )
    return MisalignedError(error.subject, f"{error.cause}; {agree}", remedy, error.differences)
