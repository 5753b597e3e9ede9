"""What a campaign file says about live runs: commands measured on GPUs, at two levels, under conditions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from assay_sampling.counters import FEATURE_SETS, features_of
from assay_sampling.launch_table import BASELINE, CacheCondition, Condition
from assay_server.campaigns.yaml_source import Place
from assay_server.store.model import device_key

MOST_SLICES = 100_000
_LONGEST_WORD = 32_768

# Collected by every detailed run, whatever the features: costs by clock domain, and what weighs launches.
COST_COUNTERS = ("cycles_gpc_avg", "cycles_gpc_max", "profiled_duration_ns", "instructions")

Fault = tuple[Place, str]
Word = Annotated[str, Field(max_length=_LONGEST_WORD)]


class SpecModel(BaseModel):
    """A part of a campaign file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class DetailedSpec(SpecModel):
    """The detailed level of live runs: the ``first`` launches, in slices of ``slice_launches``."""

    first: int = Field(default=1000, ge=1, le=1 << 40)
    slice_launches: int = Field(default=500, ge=1, le=1 << 40)
    features: Annotated[list[str], BeforeValidator(_listed)] = Field(
        default=["table2"], min_length=1, max_length=10
    )

    @property
    def slices(self) -> int:
        return math.ceil(self.first / self.slice_launches)

    def counters(self) -> tuple[str, ...]:
        """Canonical names of what a detailed run collects, each once."""
        of_features = [name for features in self.features for name in features_of(features)]
        return tuple(dict.fromkeys((*of_features, *COST_COUNTERS)))


class LiveConditionSpec(SpecModel):
    """A condition beside the baseline: caches flushed, or a share of the SMs."""

    cache: CacheCondition = "none"
    sm_percent: float = Field(default=100.0, gt=0, le=100)

    def condition(self) -> Condition:
        return Condition(self.cache, "none", float(self.sm_percent))

    @property
    def flushed(self) -> bool:
        return self.cache == "all"


def planned_slices(
    workloads: int, gpus: int, repeats: int, detailed: DetailedSpec, conditions: Sequence[LiveConditionSpec]
) -> int:
    """How many slices the live runs of a campaign have, without making any."""
    flushed = sum(condition.flushed for condition in conditions)
    shares = len(conditions) - flushed
    light = 1 + shares + (1 if shares else 0)
    return workloads * gpus * repeats * ((1 + flushed) * detailed.slices + light)


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


def condition_faults(conditions: Sequence[LiveConditionSpec]) -> Iterator[Fault]:
    """Conditions that are the baseline, stand twice, or cannot be made."""
    seen: set[Condition] = set()
    for position, spec in enumerate(conditions):
        place: Place = ("conditions", position)
        condition = spec.condition()
        if condition == BASELINE:
            yield place, "this is the baseline, which is always run; name conditions beside it"
        elif spec.flushed and spec.sm_percent < 100:
            yield (
                place,
                "caches are flushed at the detailed level and SM shares are light; name the two apart",
            )
        elif condition in seen:
            yield place, f"the condition {condition} stands twice"
        seen.add(condition)


def detailed_faults(detailed: DetailedSpec) -> Iterator[Fault]:
    """Feature sets that do not exist."""
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


def uncollected(features: str, detailed: DetailedSpec) -> tuple[str, ...]:
    """Counters that a feature set needs and that the campaign's detailed runs do not collect."""
    collected = set(detailed.counters())
    return tuple(name for name in features_of(features) if name not in collected)
