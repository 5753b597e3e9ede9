"""What a campaign file says about live runs: commands measured on GPUs, at two levels, under conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, WrapValidator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from assay_sampling.counters import COST_COUNTERS, FEATURE_SETS, features_of
from assay_sampling.identity import SmShareKind, device_key
from assay_sampling.launch_table import BASELINE, CacheCondition, ClockCondition, Condition
from assay_sampling.replay_passes import replay_passes
from assay_server.campaigns.assumptions import Assumptions
from assay_server.campaigns.slice_cost import SliceCost, assumed_cost
from assay_server.campaigns.windows import Slicing, cut
from assay_server.campaigns.yaml_source import Place

# What light runs are made with: Nsight Systems, or our own CUPTI tracer; "auto" leaves it to the release.
LightLevel = Literal["nsys", "cupti", "auto"]

MOST_SLICES = 100_000
FIRST_REPEATS = 3  # fewer tell next to nothing about noise
_LONGEST_WORD = 32_768

Fault = tuple[Place, str]
Word = Annotated[str, Field(max_length=_LONGEST_WORD)]


class SpecModel(BaseModel):
    """A part of a campaign file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


# Launches of a window that ends by itself, in slices planned before the first of them has been made.
SLICES_AHEAD = 2
_MOST_LAUNCHES = 1 << 40
_LONGEST_BUDGET_S = 30 * 24 * 3600

CounterSet = Literal["cycles", "features"]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _first(value: Any, number: ValidatorFunctionWrapHandler) -> int:
    return 0 if value == "auto" else int(number(value))


class DetailedSpec(SpecModel):
    """The detailed level of live runs: the ``first`` launches, in slices of ``slice_launches``.

    ``first`` is 0 for "auto": until nothing new comes. ``sets`` are runs of their own: by default true cycles
    in one pass apart from features, whose passes disturb the caches.
    """

    first: Annotated[
        int,
        Field(ge=1, le=_MOST_LAUNCHES),
        WrapValidator(_first),
        WithJsonSchema(
            {"anyOf": [{"type": "integer", "minimum": 1, "maximum": _MOST_LAUNCHES}, {"const": "auto"}]}
        ),
    ] = 1000
    slice_launches: int | None = Field(default=None, ge=1, le=_MOST_LAUNCHES)
    time_budget_s: float | None = Field(default=None, gt=0, le=_LONGEST_BUDGET_S)
    sets: Annotated[list[CounterSet], BeforeValidator(_listed)] = Field(
        default=["cycles", "features"], min_length=1, max_length=2
    )
    features: Annotated[list[str], BeforeValidator(_listed)] = Field(
        default=["table2"], min_length=1, max_length=10
    )

    @cached_property
    def slicing(self) -> Slicing:
        """How its runs are cut into slices."""
        return Slicing(self.first, self.slice_launches or 0, self.time_budget_s or 0.0)

    def windows(self, cost: SliceCost) -> list[tuple[int, int]]:
        """The slices that are planned before any has been made."""
        return list(cut(self.slicing, cost, most=SLICES_AHEAD if self.slicing.is_open else None))

    def counters(self) -> tuple[str, ...]:
        """Canonical names of what the runs with features collect, each once."""
        of_features = [name for features in self.features for name in features_of(features)]
        return tuple(dict.fromkeys((*of_features, *COST_COUNTERS)))

    def counters_of_sets(self) -> tuple[tuple[str, ...], ...]:
        """The counters of each of its runs under the baseline: true cycles first, in one pass."""
        of = {"cycles": COST_COUNTERS, "features": self.counters()}
        return tuple(of[name] for name in ("cycles", "features") if name in self.sets)


def _or_none(value: Any, spec: ValidatorFunctionWrapHandler) -> DetailedSpec | None:
    """``detailed: none`` is no detailed level; a key without a value is a slip, never that."""
    if value == "none":
        return None
    if not isinstance(value, Mapping | DetailedSpec):
        raise PydanticCustomError("detailed", "neither 'none' (light runs alone) nor a mapping")
    made: DetailedSpec = spec(value)
    return made


# None: light runs alone.
OptionalDetailed = Annotated[DetailedSpec | None, WrapValidator(_or_none)]


def cost_before(counters: Sequence[str], assumed: Assumptions | None = None) -> SliceCost:
    """What slices that collect these counters are assumed to cost before any was made."""
    return assumed_cost(replay_passes(counters).passes, assumed or Assumptions())


class RepeatSpec(SpecModel):
    """Light runs under the baseline are repeated until the 95 % interval of their total is narrow enough.

    ``until_interval_percent`` is its half-width in percent of the mean; ``at_most`` bounds the repeats.
    """

    until_interval_percent: float = Field(gt=0, le=100)
    at_most: int = Field(default=10, ge=FIRST_REPEATS, le=1000)


class LiveConditionSpec(SpecModel):
    """A condition beside the baseline: caches flushed, clocks locked, a share of the SMs."""

    cache: CacheCondition = "none"
    clock: ClockCondition = "none"
    sm_percent: float = Field(default=100.0, gt=0, le=100)
    sm_share: SmShareKind = "limit"

    def condition(self) -> Condition:
        return Condition(self.cache, self.clock, float(self.sm_percent), self.sm_share)

    @property
    def flushed(self) -> bool:
        return self.cache == "all"


@dataclass(frozen=True)
class ConditionRun:
    """A run that conditions ask for beside those under the baseline; detailed ones are made in one pass."""

    level: Literal["detailed", "light"]
    condition: Condition
    under_mps: bool = False


def condition_runs(
    conditions: Sequence[LiveConditionSpec], *, light_only: bool = False
) -> tuple[ConditionRun, ...]:
    """The runs of a repeat that are made under these conditions, each once.

    A locked clock is a detailed and a light run, flushed caches are a detailed one, a share of the SMs is a
    light one; and what each is compared with under the same clock: the detailed run with caches left alone,
    the light one at 100 % under the same kind of MPS daemon. Shares come last.
    With ``light_only`` the detailed ones are left out.
    """
    found: list[ConditionRun] = []
    shares = [spec.condition() for spec in conditions if spec.sm_percent < 100]
    for spec in conditions:
        condition = spec.condition()
        if spec.sm_percent < 100:
            continue
        found.append(ConditionRun("detailed", condition))
        if spec.flushed and spec.clock != "none":
            found.append(ConditionRun("detailed", replace(condition, cache="none")))
        elif not spec.flushed:
            found.append(ConditionRun("light", condition))
    found += [ConditionRun("light", condition, under_mps=True) for condition in shares]
    whole = dict.fromkeys(replace(condition, sm_percent=100.0, sm_share="limit") for condition in shares)
    found += [ConditionRun("light", condition, under_mps=True) for condition in whole]
    return tuple(dict.fromkeys(run for run in found if run.level == "light" or not light_only))


def planned_slices(
    workloads: int,
    gpus: int,
    repeats: int,
    detailed: DetailedSpec | None,
    conditions: Sequence[LiveConditionSpec],
) -> int:
    """How many slices the live runs of a campaign have, without making any."""
    beside = [run.level for run in condition_runs(conditions, light_only=detailed is None)]
    light = 1 + beside.count("light")
    if detailed is None:
        return workloads * gpus * repeats * light
    runs = [*detailed.counters_of_sets(), *[COST_COUNTERS] * beside.count("detailed")]
    slices = {counters: len(detailed.windows(cost_before(counters))) for counters in set(runs)}
    return workloads * gpus * repeats * (sum(slices[counters] for counters in runs) + light)


def gpu_faults(gpus: Sequence[str]) -> Iterator[Fault]:
    """Kinds that name nothing or stand twice under two spellings."""
    seen: dict[str, str] = {}
    for position, kind in enumerate(gpus):
        key = device_key(kind)
        if not key:
            yield ("gpus", position), f"{kind!r} names no kind of GPU"
        elif key in seen:
            yield ("gpus", position), f"{kind!r} is the same kind of GPU as {seen[key]!r}"
        seen.setdefault(key, kind)


def condition_faults(
    conditions: Sequence[LiveConditionSpec], *, light_only: bool, synthetic: bool
) -> Iterator[Fault]:
    """Conditions that are the baseline, stand twice, or cannot be made."""
    seen: set[Condition] = set()
    for position, spec in enumerate(conditions):
        place: Place = ("conditions", position)
        condition = spec.condition()
        if spec.sm_share == "partition" and spec.sm_percent == 100:
            yield (*place, "sm_share"), "a partition is of some of the SMs; give an sm_percent below 100"
        elif spec.sm_share == "partition" and synthetic:
            yield (*place, "sm_share"), "virtual GPUs have no static partitions of their SMs; leave it out"
        elif condition == BASELINE:
            yield place, "this is the baseline, which is always run; name conditions beside it"
        elif spec.flushed and spec.sm_percent < 100:
            yield (
                place,
                "caches are flushed only under Nsight Compute, which profiles one launch of each process "
                "at a share of the SMs; write two conditions, one for each",
            )
        elif spec.flushed and light_only:
            yield (
                place,
                "what flushed caches cost is read from counters, and 'detailed: none' collects none; leave "
                "the condition out",
            )
        elif condition in seen:
            yield place, f"the condition {condition} stands twice"
        seen.add(condition)


def detailed_faults(detailed: DetailedSpec | None) -> Iterator[Fault]:
    """Feature sets that do not exist, sets that stand twice."""
    if detailed is None:
        return
    if len(set(detailed.sets)) < len(detailed.sets):
        yield ("detailed", "sets"), f"{detailed.sets[0]!r} stands twice"
    for features in detailed.features:
        if features not in FEATURE_SETS:
            known = ", ".join(FEATURE_SETS)
            yield ("detailed", "features"), f"there is no feature set {features!r}; there are {known}"


def command_faults(command: Sequence[str], environment: dict[str, str], place: Place) -> Iterator[Fault]:
    """Words and variables that no process can be started with."""
    if command and not command[0]:
        yield (*place, "command", 0), "the program's name is empty"
    for position, word in enumerate(command):
        if "\0" in word:
            yield (*place, "command", position), "a word of a command cannot hold a null character"
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            yield (*place, "environment", name), f"{name!r} cannot be set: no name, or '=' or a null in it"


def kineto_faults(name: str, place: Place) -> Iterator[Fault]:
    """A trace that is not one file in the folder in which the command runs."""
    path = PurePosixPath(name)
    if "\0" in name:
        yield (*place, "kineto"), "a path cannot hold a null character"
    if path.is_absolute() or ".." in path.parts:
        yield (*place, "kineto"), f"{name!r} leads out of the folder of this file, in which the command runs"
    if set(name) & set("*?["):
        yield (
            (*place, "kineto"),
            f"{name!r} is a pattern, and traces of several processes are not put together; name one file",
        )


def uncollected(features: str, detailed: DetailedSpec) -> tuple[str, ...]:
    """Counters that a feature set needs and that the campaign's detailed runs do not collect."""
    collected = {name for counters in detailed.counters_of_sets() for name in counters}
    return tuple(name for name in features_of(features) if name not in collected)
