"""Which counters a method looks at: what is to be collected for it, and what is missing in a recording."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay_sampling.counters import CYCLE_COUNTERS, require_counters
from assay_sampling.missing_counters import how_to_collect

if TYPE_CHECKING:
    from assay_sampling.launches import Launches
    from assay_sampling.profile import Profile


@dataclass(frozen=True)
class Needs:
    """What a method looks at in detailed launches; where it needs nothing, a light recording is enough.

    Args:
        counters: canonical names of those that it needs, all of them.
        one_of: groups of counters of which one member is enough, the preferred one first.
        optional: those that it looks at where they were measured.
        of_every_launch: counters of the first launches alone are not enough.
        beside: what it needs that no profiler gives, in a sentence.
    """

    counters: tuple[str, ...] = ()
    one_of: tuple[tuple[str, ...], ...] = ()
    optional: tuple[str, ...] = ()
    of_every_launch: bool = False
    beside: str = ""

    @property
    def nothing(self) -> bool:
        """Whether it needs no counters at all."""
        return not (self.counters or self.one_of)

    def to_collect(self) -> tuple[str, ...]:
        """The counters to ask a profiler for, each once."""
        preferred = (group[0] for group in self.one_of)
        return tuple(dict.fromkeys((*self.counters, *preferred, *self.optional)))

    def lacking(self, measured: Collection[str]) -> tuple[str, ...]:
        """The counters that are missing among ``measured``; of a group that is missing, the preferred one."""
        groups = (group[0] for group in self.one_of if not set(group) & set(measured))
        return tuple(dict.fromkeys((*(n for n in self.counters if n not in measured), *groups)))


def without_counters(method: str, wanted: Needs, launches: Launches) -> str:
    """The remedy where a method has no counters at all: what to collect, and which methods need none."""
    from assay_sampling.samplers import methods_without_counters  # noqa: PLC0415 - it needs this module

    remedy = how_to_collect(wanted.to_collect(), method, launches.table)
    return f"{remedy}, or use a method that needs no counters: {', '.join(methods_without_counters())}"


def require_measured(method: str, wanted: Needs, profile: Profile) -> None:
    """Raises CounterUnavailableError that names all counters at once which a detailed recording lacks.

    One without any is left to the method, which says why it does not apply.
    """
    detailed = profile.detailed
    if detailed is None or not detailed.counters:
        return
    lacking = wanted.lacking(detailed.counters)
    if lacking:
        names = tuple(dict.fromkeys((*wanted.counters, *lacking)))
        source = ", ".join(detailed.sources) or "launches"
        require_counters(detailed.table, names, source, detailed.unreadable, method=method)


NO_COUNTERS = Needs()
INSTRUCTIONS_OF_ALL = Needs(counters=("instructions",), of_every_launch=True)


def cycles(cost: str | None) -> tuple[tuple[str, ...], ...]:
    """The group of counters that a ``cost`` parameter stands for: one kind of cycles, or any."""
    return ((cost,),) if cost in CYCLE_COUNTERS else (CYCLE_COUNTERS,)


def needs_of(sampler: Any, parameters: Any) -> Needs | None:
    """What a sampler needs with these parameters; None where it (of another package) does not say."""
    told = getattr(sampler, "needs", None)
    found = told(parameters) if callable(told) else None
    return found if isinstance(found, Needs) else None
