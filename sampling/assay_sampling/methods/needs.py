"""The counters that a method uses: which to collect for it, and which are missing in a recording."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay_sampling.counters.definitions import ALL_CYCLES
from assay_sampling.counters.missing import require_counters
from assay_sampling.notes.registry import Note

if TYPE_CHECKING:
    from assay_sampling.launches.profile import Profile


FREE_TIME = "duration_ns"


@dataclass(frozen=True)
class Needs:
    """The counters that a method uses in detailed launches; without any, a light recording is enough.

    Args:
        counters: canonical names of the counters that it needs, all of them.
        one_of: groups of counters of which one member is enough, the preferred one first.
        optional: counters that it uses where they were measured.
        of_every_launch: counters of the first launches alone are not enough.
        beside: other input that it needs, which no profiler gives.
    """

    counters: tuple[str, ...] = ()
    one_of: tuple[tuple[str, ...], ...] = ()
    optional: tuple[str, ...] = ()
    of_every_launch: bool = False
    beside: Note | None = None

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


def require_measured(method: str, needs: Needs, profile: Profile) -> None:
    """Raise CounterUnavailableError naming all counters that a detailed recording lacks.

    A recording without any is left to the method, whose error says why it does not apply.
    """
    detailed = profile.detailed
    if detailed is None or not detailed.counters:
        return
    timed = any(
        each is not None and not each.table[FREE_TIME].null_count for each in (detailed, profile.light)
    )
    lacking = needs.lacking([*detailed.counters, *([FREE_TIME] if timed else [])])
    if lacking:
        names = tuple(dict.fromkeys((*needs.counters, *lacking)))
        source = ", ".join(detailed.sources) or "launches"
        require_counters(detailed.table, names, source, detailed.unreadable, method=method)


NO_COUNTERS = Needs()
INSTRUCTIONS_OF_ALL = Needs(counters=("instructions",), of_every_launch=True)


def cycles(cost: str | None) -> tuple[tuple[str, ...], ...]:
    """The group that a ``cost`` parameter stands for: one counter, or any cost. Free time is no counter, so
    none is collected for it."""
    if cost == FREE_TIME:
        return ()
    return ((*ALL_CYCLES, FREE_TIME, "profiled_duration_ns"),) if cost is None else ((cost,),)


def needs_of(sampler: Any, parameters: Any) -> Needs | None:
    """A sampler's needs with these parameters; None for a plug-in that does not say."""
    method = getattr(sampler, "needs", None)
    needs = method(parameters) if callable(method) else None
    return needs if isinstance(needs, Needs) else None
