"""The compiled campaign file, stored with the campaign so that later steps need not read the file again.

It is JSON with a version, which changes with its form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter

from assay_core.records.upload import Bundle

COMPILED_VERSION: Literal[1] = 1


# All ranks that launched kernels, or those with these ordinals.
Ranks = Literal["each"] | tuple[int, ...]


def rank_name(workload: str, rank: int) -> str:
    """What reports call a rank of a workload that is evaluated alone."""
    return f"{workload}[rank {rank}]"


@dataclass(frozen=True)
class AnalysisSettings:
    """How a campaign's runs are analysed; ``methods`` are (name, parameters) in the order of the report.

    ``ranks``: of workloads whose ranks are evaluated each alone, all ("each") or those with these ordinals.
    ``by_operation``: the workloads whose unit is the operation.
    """

    seed: int
    methods: tuple[tuple[str, dict[str, Any]], ...]
    reference: str | None
    memory_limit_bytes: int
    ranks: dict[str, Ranks] = field(default_factory=dict)
    by_operation: tuple[str, ...] = ()


@dataclass(frozen=True)
class Slicing:
    """How many launches a detailed run profiles, and in which slices.

    ``first`` launches (0: as many as it takes), in slices of ``slice_launches`` (0: sized by cost), until
    ``time_budget_s`` seconds are spent (0: no limit). With ``first`` 0 slices are chosen from the light run
    until at most ``unseen_percent`` of its time is in signatures that they have not seen. Where no light run
    could be measured, slices go on from the first launch until the last ones bring no new kind of launch.
    """

    first: int
    slice_launches: int = 0
    time_budget_s: float = 0.0
    unseen_percent: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the launches themselves decide how many get counters."""
        return not self.first

    @property
    def by_light(self) -> bool:
        """Whether its slices are chosen from the light run, which is measured first."""
        return self.is_open and self.unseen_percent is not None

    @property
    def is_fixed(self) -> bool:
        """Whether measurements never change its slices."""
        return bool(self.first and self.slice_launches and not self.time_budget_s)


@dataclass(frozen=True)
class RepeatRule:
    """Light runs under the baseline are repeated until the 95 % interval of their total is narrow enough.

    ``until_interval_percent`` is its half-width in percent of the mean; ``at_most`` bounds the repeats.
    """

    until_interval_percent: float
    at_most: int


@dataclass(frozen=True)
class SchedulingRules:
    """What a campaign file says about its place in the queue (docs/scheduling.md).

    A campaign with a higher ``priority`` goes first. ``budget_gpu_hours`` 0: no limit. ``after``: by
    workload, those that must end before its runs begin.
    """

    priority: int = 0
    budget_gpu_hours: float = 0.0
    after: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_document(cls, document: Any) -> SchedulingRules:
        """The rules from their JSON; raises ValueError."""
        return _rules_adapter().validate_python(document)


DEFAULT_RULES = SchedulingRules()


@cache
def _rules_adapter() -> TypeAdapter[SchedulingRules]:
    return TypeAdapter(SchedulingRules)


@dataclass(frozen=True)
class CompiledCampaign:
    """A compiled campaign, without its plan, which is stored as runs and slices.

    Args:
        analysis: how its runs are analysed.
        slicing: how its detailed runs are cut into slices; None: it has no detailed level.
        repeat: when light runs are repeated; None: only as often as planned.
        scheduling: its place in the queue.
        bundles: the files of its submitter that its workloads run in, each once.
    """

    analysis: AnalysisSettings
    slicing: Slicing | None = None
    repeat: RepeatRule | None = None
    scheduling: SchedulingRules = DEFAULT_RULES
    bundles: tuple[Bundle, ...] = ()
    version: Literal[1] = COMPILED_VERSION

    def to_document(self) -> dict[str, Any]:
        """The campaign as JSON."""
        document: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return document

    @classmethod
    def from_document(cls, document: Any) -> CompiledCampaign:
        """The campaign from its JSON; raises pydantic's ValidationError (a ValueError)."""
        return _adapter().validate_python(document)


@cache
def _adapter() -> TypeAdapter[CompiledCampaign]:
    return TypeAdapter(CompiledCampaign)
