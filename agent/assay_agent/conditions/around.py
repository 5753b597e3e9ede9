"""All conditions of one run, as one context manager."""

from __future__ import annotations

from collections.abc import Iterator

from assay_agent.conditions.base import Condition, Site
from assay_agent.conditions.clocks import LockedClocks, ModelledClocks, NcuClocks
from assay_agent.conditions.leftovers import undo
from assay_agent.conditions.mps import SmShare, WithoutMps
from assay_agent.conditions.occupants import AloneOnGpu
from assay_agent.conditions.sm_partition import SmPartition
from assay_agent.conditions.together import Together
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work


def under_mps(work: Work) -> bool:
    """Whether a run needs an MPS daemon: it has a share of the SMs, or is compared with one that has."""
    return work.under_mps or (work.condition.sm_percent or 100.0) < 100


class Conditions(Together):
    """All conditions of a run; see :class:`assay_agent.conditions.base.Condition`.

    Entering first undoes what is in the GPU's journal. If it raises, nothing stays in force.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._conditions = _conditions(site)

    def _each(self) -> Iterator[Condition]:
        if self._conditions:
            undo(self._site.journal)
        yield from self._conditions

    @property
    def environment(self) -> dict[str, str]:
        """Added to the run's environment."""
        return {name: v for condition in self._conditions for name, v in condition.environment.items()}

    @property
    def facts(self) -> dict[str, str | int | float]:
        return {name: v for condition in self._conditions for name, v in condition.facts.items()}

    @property
    def flags(self) -> tuple[ValidityFlag, ...]:
        return tuple(flag for condition in self._conditions for flag in condition.flags)

    @property
    def effective_sms(self) -> int | None:
        """The SMs that a probe counted; None if none ran."""
        sms = self.facts.get("effective_sms")
        return None if sms is None else int(sms)

    def before_ending(self) -> None:
        """The processes of the run are about to be ended by signals."""
        for condition in reversed(self._conditions):
            condition.before_ending()

    def check(self) -> None:
        """Raises ProfilerError if a condition was not in force during the run that has ended."""
        for condition in self._conditions:
            condition.check()


def _conditions(site: Site) -> list[Condition]:
    """In the order in which they are made. A modelled GPU brings its own share and clock."""
    work, clock = site.work, site.work.condition.clock
    if site.gpu.model is not None:
        if clock in ("base", "boost") and work.table_level == "light":
            return [ModelledClocks(site, site.gpu.model, clock)]
        return []
    made: list[Condition] = [AloneOnGpu(site)]
    if clock in ("base", "boost"):
        made.append(NcuClocks(site) if work.level == "detailed" else LockedClocks(site, clock))
    made.append(_share(site))
    return made


def _share(site: Site) -> Condition:
    condition = site.work.condition
    percent = condition.sm_percent or 100.0
    if not under_mps(site.work):
        return WithoutMps(site)
    partition = condition.sm_share == "partition" and percent < 100
    return SmPartition(site, percent) if partition else SmShare(site, percent)
