"""What is stored of a campaign file, so that later steps need not read it again.

With the campaign its compiled form, JSON with a version, which changes with the form; with each run its place
and, where its slices were chosen from a light run, their plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal, Self

from pydantic import TypeAdapter

from assay_core.records.upload import Bundle

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)  # made at first use


class Stored:
    """A dataclass that is stored as JSON."""

    exclude_defaults: ClassVar[bool] = False

    def to_document(self) -> dict[str, Any]:
        """Its JSON; with ``exclude_defaults`` without what it does not ask for."""
        document: dict[str, Any] = _adapter(type(self)).dump_python(
            self, mode="json", exclude_defaults=self.exclude_defaults
        )
        return document

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """From its JSON; raises pydantic's ValidationError (a ValueError)."""
        stored: Self = _adapter(cls).validate_python(document or {})
        return stored


# What must be idle while a run is measured: other slots of its GPU, or all other GPUs of its box.
Exclusive = Literal["", "gpu", "box"]


@dataclass(frozen=True, order=True)
class Requirements:
    """What a slot must have besides the kind of GPU; empty and 0 ask for nothing.

    ``architectures``: compute capabilities, one of which it must have ("9.0"). ``gpu``: a pattern of the
    GPU's name, with ``*``. ``sm_count``, ``memory_gib`` and ``driver``: at least this. ``tools``: profilers
    that it offers. ``labels``: of its agent. ``mig``: whether it is a MIG instance; "" if either will do.
    """

    architectures: tuple[str, ...] = ()
    gpu: str = ""
    sm_count: int = 0
    memory_gib: float = 0.0
    driver: str = ""
    tools: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    mig: Literal["", "yes", "no"] = ""


NO_REQUIREMENTS = Requirements()


@dataclass(frozen=True, order=True)
class Placement(Stored):
    """What a run asks of the place where it is made.

    ``gang``: over how many GPUs of one box it runs, all of one kind.
    """

    exclude_defaults = True

    requires: Requirements = NO_REQUIREMENTS
    exclusive: Exclusive = ""
    gang: int = 1

    @property
    def concerns_other_slots(self) -> bool:
        """Whether a run takes more of its box than its own slot."""
        return bool(self.exclusive) or self.gang > 1


NOT_PLACED = Placement()


# Why no further slice was chosen: little enough is unseen, the time is up, or a run may have no more.
Ending = Literal["unseen", "budget", "slices"]


@dataclass(frozen=True)
class ChosenSlice:
    """A slice and why it was chosen.

    ``new_percent`` of the light time is in signatures that no earlier slice has and this one does;
    ``unseen_percent`` is what it leaves; ``seconds`` is what the model expects it to take, in all runs.
    """

    launch_skip: int
    launch_count: int
    new_percent: float
    unseen_percent: float
    seconds: float


@dataclass(frozen=True)
class SlicePlan(Stored):
    """The slices of the detailed runs of a workload on a GPU, the most unseen light time per second first.

    Args:
        light_run: the light run that they were chosen from, and its number of launches.
        most_unseen_percent: the share of unseen light time to reach.
        ending: why no further slice was chosen.
        start_seconds, skip_seconds, launch_seconds: the model of the cost, summed over the runs: of starting,
            per skipped launch, per profiled launch.
        slices: in the order in which they are measured.
    """

    light_run: str
    launches: int
    most_unseen_percent: float
    ending: Ending
    start_seconds: float
    skip_seconds: float
    launch_seconds: float
    slices: tuple[ChosenSlice, ...]

    @property
    def unseen_percent(self) -> float:
        """The share of the light time that all its slices leave unseen."""
        return self.slices[-1].unseen_percent if self.slices else 100.0


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
class SchedulingRules(Stored):
    """What a campaign file says about its place in the queue (docs/scheduling.md).

    A campaign with a higher ``priority`` goes first. ``budget_gpu_hours`` 0: no limit. ``after``: by
    workload, those that must end before its runs begin.
    """

    priority: int = 0
    budget_gpu_hours: float = 0.0
    after: dict[str, tuple[str, ...]] = field(default_factory=dict)


DEFAULT_RULES = SchedulingRules()


@dataclass(frozen=True)
class CompiledCampaign(Stored):
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
    version: Literal[1] = 1
