"""The instructions that Sieve needs for every launch, or why they are missing."""

from __future__ import annotations

import numpy as np

from assay_sampling.counters.missing import cannot_be_read
from assay_sampling.engines.blockwise import count_where, first_not_finite, first_row_where, smallest, total
from assay_sampling.errors import CounterUnavailableError, RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import source_of
from assay_sampling.methods.joined_instructions import with_instructions_of_both_levels
from assay_sampling.methods.needs import INSTRUCTIONS_OF_ALL
from assay_sampling.methods.registry import without_counters

_COUNTER = "instructions"
_REMEDY = "profile every launch with the counter smsp__inst_executed.sum, or use a method that needs none"


def with_instructions(profile: Profile) -> tuple[Profile, np.ndarray]:
    """The profile with the instructions of every launch in its whole workload, and these, shape (n,).

    A light recording has none; if the detailed one holds the same launches, theirs are used. Raises
    RefusedError without instructions, for a negative number or a total of 0; CounterUnavailableError if some
    launches lack them.
    """
    profile = with_instructions_of_both_levels(profile, "Sieve")
    whole = profile.whole
    if _COUNTER in whole.unreadable:
        raise CounterUnavailableError(source_of(whole), *cannot_be_read(_COUNTER, whole.unreadable[_COUNTER]))
    if _COUNTER not in whole.table.schema.names:
        raise RefusedError(
            source_of(whole),
            "Sieve needs the instructions of every launch, and it has no counters",
            without_counters("sieve", INSTRUCTIONS_OF_ALL, whole),
        )
    executed = whole.floats(_COUNTER)
    _check(whole, executed)
    return profile, executed


def _check(launches: Launches, executed: np.ndarray) -> None:
    row = first_not_finite(executed)
    if row is not None:
        lacking = count_where(executed, lambda part: ~np.isfinite(part))
        raise CounterUnavailableError(
            source_of(launches),
            f"the instructions of {lacking:,} of {len(launches):,} launches were not "
            f"measured (n/a or NaN), first of {_launch_at(launches, row)}",
            _REMEDY,
        )
    lowest = smallest(executed) if len(executed) else 0.0
    if lowest < 0:
        row = first_row_where(executed, lambda part: part == lowest)
        assert row is not None
        raise RefusedError(
            source_of(launches),
            f"{_launch_at(launches, row)} has executed {executed[row]:g} instructions",
            "profile the workload again",
        )
    if not total(executed) > 0:
        raise RefusedError(source_of(launches), "no launch has executed an instruction", _REMEDY)


def _launch_at(launches: Launches, row: int) -> str:
    process, launch = launches.table["process"][row].as_py(), launches.table["launch"][row].as_py()
    return f"launch {launch} of process {process}"
