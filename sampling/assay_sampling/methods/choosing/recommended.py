"""The selection to take where nobody names a method: the best verdict of a few fast methods.

``stem`` and ``balanced`` need times alone; ``pks`` joins them where not too many launches have counters. Of
those to trust on another GPU the largest speedup wins; if none is, the least error expected over kernels
and sizes.

Source: docs/methods/README.md, "Without a method".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from assay_sampling.errors import AssayError, RefusedError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.methods.by_operation import operation_profile, select_operations
from assay_sampling.parameters import Unit
from assay_sampling.scoring.selection import Selection
from assay_sampling.verdicts.verdict import LEVELS, Verdict

ANY_SIZE = ("stem", "balanced")
# Its sweep over the number of groups takes minutes for more.
WITH_COUNTERS = "pks"
MOST_WITH_COUNTERS = 50_000


@dataclass(frozen=True)
class Recommended:
    """The selection to take, and the methods that it is the best of, in order; none if one was named."""

    selection: Selection
    tried: tuple[str, ...] = ()


def select_recommended(unit: Unit, profile: Profile, seed: int = 0) -> Recommended:
    """Select with each of a few fast methods, and keep the one to recommend.

    Raises what the last of them raised if none applies, and by operation as
    :func:`assay_sampling.methods.by_operation.operation_profile`.
    """
    select = _selecting(unit, profile)
    selections: list[tuple[str, Selection, Verdict]] = []
    refusal: AssayError = RefusedError("select", "no method applies")
    for name in _candidates(profile):
        try:
            made = select(name, seed)
        except AssayError as error:
            refusal = error
            continue
        selections.append((name, made, made.verdict))
    if not selections:
        raise refusal
    best = max(selections, key=lambda each: _rank(each[1], each[2]))
    return Recommended(best[1], tuple(name for name, _, _ in selections))


def _selecting(unit: Unit, profile: Profile) -> Callable[[str, int], Selection]:
    if unit == "launch":
        return lambda name, seed: registry.select(name, profile, {}, seed)
    operations = operation_profile(profile)
    return lambda name, seed: select_operations(operations, name, {}, seed)


def _candidates(profile: Profile) -> Iterator[str]:
    detailed = profile.detailed
    if detailed is not None and detailed.counters and len(detailed) <= MOST_WITH_COUNTERS:
        yield WITH_COUNTERS
    yield from ANY_SIZE


def _rank(selection: Selection, verdict: Verdict) -> tuple[float, float]:
    """The better of two selections has the larger rank."""
    level = -float(LEVELS.index(verdict.level))
    if verdict.level == "trust":
        return level, selection.evaluation.speedup
    expected = selection.expected
    return level, float("-inf") if expected is None else -expected.group_error_percent
