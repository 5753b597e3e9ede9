"""Live runs in a campaign file: commands measured on GPUs, at two levels, under conditions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, WrapValidator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from assay_sampling.counters.definitions import COST_COUNTERS, features_of
from assay_sampling.launches.table import CacheCondition, ClockCondition, Condition
from assay_sampling.running.identity import SmShareKind
from assay_server.campaign_file.compiled import Slicing

# The tools of light runs: Nsight Systems, or our own CUPTI tracer; "auto" lets the release choose.
LightLevel = Literal["nsys", "cupti", "auto"]
# With "auto" the agent chooses Nsight Systems if the box has it, else our tracer, with a flag, because the
# two have not yet been shown to agree launch for launch on a GPU.
LIGHT_PROFILERS: dict[LightLevel, str] = {
    "nsys": "nsight_systems",
    "cupti": "cupti",
    "auto": "auto",
}

FIRST_REPEATS = 3  # fewer say little about noise
# Of the light time; docs/methods/two-level.md says how it was chosen.
_MOST_UNSEEN_TIME_PERCENT = 1.0
_LONGEST_WORD = 32_768

Word = Annotated[str, Field(max_length=_LONGEST_WORD)]


class SpecModel(BaseModel):
    """A part of a campaign file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


_MOST_LAUNCHES = 1 << 40
_LONGEST_BUDGET_S = 30 * 24 * 3600

CounterSet = Literal["cycles", "features"]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _first(value: Any, number: ValidatorFunctionWrapHandler) -> int:
    return 0 if value == "auto" else int(number(value))


class DetailedSpec(SpecModel):
    """The detailed level of live runs: the ``first`` launches, in slices of ``slice_launches``.

    ``first`` is 0 for "auto": slices chosen from the light run, until at most ``unseen_percent`` of its time
    is in signatures without counters. Each of ``sets`` is a separate run: by
    default one for true cycles, in one pass, and one for features, whose passes disturb the caches.
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
    unseen_percent: float | None = Field(default=None, ge=0, lt=100)
    sets: Annotated[list[CounterSet], BeforeValidator(_listed)] = Field(
        default=["cycles", "features"], min_length=1, max_length=2
    )
    features: Annotated[list[str], BeforeValidator(_listed)] = Field(
        default=["table2"], min_length=1, max_length=10
    )

    @cached_property
    def slicing(self) -> Slicing:
        """How to cut its runs into slices."""
        unseen = _MOST_UNSEEN_TIME_PERCENT if self.unseen_percent is None else self.unseen_percent
        return Slicing(
            self.first,
            self.slice_launches or 0,
            self.time_budget_s or 0.0,
            None if self.first else unseen,
        )

    def counters(self) -> tuple[str, ...]:
        """Canonical names of the counters that runs with features collect, each once."""
        of_features = [name for features in self.features for name in features_of(features)]
        return tuple(dict.fromkeys((*of_features, *COST_COUNTERS)))

    def counters_of_sets(self) -> tuple[tuple[str, ...], ...]:
        """The counters of each of its runs under the baseline: true cycles first, in one pass."""
        of = {"cycles": COST_COUNTERS, "features": self.counters()}
        return tuple(of[name] for name in ("cycles", "features") if name in self.sets)


def _or_none(value: Any, spec: ValidatorFunctionWrapHandler) -> DetailedSpec | None:
    """``detailed: none`` means no detailed level; a key without a value is refused as a slip."""
    if value == "none":
        return None
    if not isinstance(value, Mapping | DetailedSpec):
        raise PydanticCustomError("detailed", "neither 'none' (only light runs) nor a mapping")
    made: DetailedSpec = spec(value)
    return made


# None: only light runs.
OptionalDetailed = Annotated[DetailedSpec | None, WrapValidator(_or_none)]


class RepeatSpec(SpecModel):
    """Light runs under the baseline are repeated until the 95 % interval of their total is narrow enough.

    ``until_interval_percent`` is its half-width in percent of the mean; ``at_most`` bounds the repeats.
    """

    until_interval_percent: float = Field(gt=0, le=100)
    at_most: int = Field(default=10, ge=FIRST_REPEATS, le=1000)


class LiveConditionSpec(SpecModel):
    """A condition other than the baseline: caches flushed, clocks locked, a share of the SMs."""

    cache: CacheCondition = "none"
    clock: ClockCondition = "none"
    sm_percent: float = Field(default=100.0, gt=0, le=100)
    sm_share: SmShareKind = "limit"

    def condition(self) -> Condition:
        return Condition(self.cache, self.clock, float(self.sm_percent), self.sm_share)

    @property
    def flushed(self) -> bool:
        return self.cache == "all"
