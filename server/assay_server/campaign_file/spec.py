"""The content of a campaign file: its keys, their types and their ranges.

The models below document the format; ``docs/campaign-file.md`` shows it by example.
:mod:`assay_server.campaign_file.faults.meaning` checks rules between fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES
from assay_sampling.launches.table import CacheCondition, ClockCondition, Condition, Level
from assay_sampling.running.identity import SmShareKind
from assay_server.campaign_file.live_spec import (
    FIRST_REPEATS,
    DetailedSpec,
    LightLevel,
    LiveConditionSpec,
    OptionalDetailed,
    RepeatSpec,
    SpecModel,
    Word,
)
from assay_server.campaign_file.place_spec import ExclusiveSpec, GangSpec, RequiresSpec

_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_NAME = Field(pattern=_NAME_PATTERN, max_length=100)
_LABEL = Field(min_length=1, max_length=200)
_MOST_PROCESSES = 1024
_LONGEST_TIMEOUT_S = 30 * 24 * 3600


class ConditionSpec(SpecModel):
    """The condition under which a recording was made; missing keys have the baseline's values."""

    cache: CacheCondition = "none"
    clock: ClockCondition = "none"
    sm_percent: float = Field(default=100.0, gt=0, le=100)
    sm_share: SmShareKind = "limit"

    def condition(self) -> Condition:
        return Condition(self.cache, self.clock, float(self.sm_percent), self.sm_share)

    def assumed(self) -> tuple[str, ...]:
        """The keys that the file leaves to the baseline, except the kind of a share: few would give it."""
        written_keys = {*self.model_fields_set, "sm_share"}
        return tuple(name for name in type(self).model_fields if name not in written_keys)


def _no_recording(value: Any) -> Any:
    """``detailed: none`` in a recording means that there is no detailed recording, not a file "none"."""
    return None if value == "none" else value


class RecordingSpec(SpecModel):
    """A recorded run on one kind of GPU: a light recording, a detailed one of its first launches, or both."""

    device: str = _LABEL
    light: str | None = Field(default=None, min_length=1, max_length=4096)
    detailed: Annotated[str | None, BeforeValidator(_no_recording)] = Field(
        default=None, min_length=1, max_length=4096
    )
    condition: ConditionSpec = ConditionSpec()

    def levels(self) -> Iterator[tuple[Level, str]]:
        """The given recordings, detailed first."""
        if self.detailed is not None:
            yield "detailed", self.detailed
        if self.light is not None:
            yield "light", self.light


def _ranks(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """One message for whatever is neither a word nor a list of ranks."""
    try:
        return validate(value)
    except ValidationError:
        cause = "not 'together', 'each' or a list of ranks from 0 on, such as [0, 3]"
        raise PydanticCustomError("ranks", cause) from None


_Rank = Annotated[int, Field(ge=0, lt=1 << 31)]
RanksSpec = Annotated[
    Literal["together", "each"] | Annotated[list[_Rank], Field(min_length=1, max_length=_MOST_PROCESSES)],
    WrapValidator(_ranks),
]


class WorkloadSpec(SpecModel):
    """A workload: a command to measure on the campaign's ``gpus``, or recordings of it."""

    name: str = _LABEL
    command: list[Word] | None = Field(default=None, min_length=1, max_length=1000)
    environment: dict[str, Word] = Field(default_factory=dict, max_length=1000)
    timeout_s: float | None = Field(default=None, gt=0, le=_LONGEST_TIMEOUT_S)
    light_limit_s: int | None = Field(default=None, ge=1, le=_LONGEST_TIMEOUT_S)
    memory_limit_bytes: int | None = Field(default=None, ge=1 << 20, lt=1 << 62)
    kineto: str | None = Field(default=None, min_length=1, max_length=4096)
    processes: int | None = Field(default=None, ge=1, le=_MOST_PROCESSES)
    ranks: RanksSpec = "together"
    unit: Literal["launch", "operation"] = "launch"
    bundle: str | None = Field(default=None, min_length=1, max_length=4096)
    requires: RequiresSpec | None = None
    exclusive: ExclusiveSpec | None = None
    gang: GangSpec | None = None
    after: list[Annotated[str, _LABEL]] = Field(default_factory=list, max_length=100)
    recordings: list[RecordingSpec] = Field(default_factory=list, min_length=1, max_length=1000)


class MethodSpec(SpecModel):
    """A selection method and its parameters."""

    name: str
    parameters: dict[str, Any] = Field(default_factory=dict)


def _method(value: Any) -> Any:
    """``pks`` or ``pks: {features: table2}``."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping) and len(value) == 1:
        [(name, parameters)] = value.items()
        if parameters is None or isinstance(parameters, Mapping):
            return {"name": name, "parameters": dict(parameters or {})}
    raise PydanticCustomError(
        "method", "a method is a name, or a name with parameters like 'random: {launches: 100}'"
    )


DEFAULT_METHODS = (MethodSpec(name="pks"), MethodSpec(name="random"), MethodSpec(name="systematic"))
# Methods without counters. A summary shows the first method that gave numbers, so the best comes first.
LIGHT_METHODS = tuple(MethodSpec(name=name) for name in ("stem", "stratified", "random", "systematic"))


class AnalysisSpec(SpecModel):
    """How the recordings are analysed."""

    reference: str | None = None
    methods: list[Annotated[MethodSpec, BeforeValidator(_method)]] = Field(
        default=list(DEFAULT_METHODS), min_length=1, max_length=100
    )
    memory_limit_bytes: int = Field(default=DEFAULT_MEMORY_LIMIT_BYTES, gt=0, lt=1 << 62)


class Campaign(SpecModel):
    """A campaign file. ``synthetic`` marks all of its data as not from silicon."""

    campaign: str = _NAME
    synthetic: bool = False
    project: str | None = Field(default=None, pattern=_NAME_PATTERN, max_length=100)
    priority: int = Field(default=0, ge=-100, le=100)
    budget_gpu_hours: float | None = Field(default=None, gt=0, le=1e9)
    requires: RequiresSpec | None = None
    exclusive: ExclusiveSpec | None = None
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    gpus: list[Annotated[str, _LABEL]] = Field(default_factory=list, min_length=1, max_length=100)
    detailed: OptionalDetailed = DetailedSpec()
    light: LightLevel = "nsys"
    conditions: list[LiveConditionSpec] = Field(default_factory=list, max_length=100)
    repeats: int = Field(default=1, ge=1, le=1000)
    bare: bool = False
    repeat: RepeatSpec | None = None
    workloads: list[WorkloadSpec] = Field(min_length=1, max_length=10_000)
    playback: Literal["full_speed", "recorded_time"] = "full_speed"
    analysis: AnalysisSpec = AnalysisSpec()

    @property
    def light_only(self) -> bool:
        """Whether it has no detailed level: ``detailed: none``."""
        return self.detailed is None

    @property
    def methods(self) -> list[MethodSpec]:
        """The methods of the analysis; if the file names none, those for which the plan has data."""
        if self.light_only and "methods" not in self.analysis.model_fields_set:
            return list(LIGHT_METHODS)
        return self.analysis.methods

    @property
    def light_repeats(self) -> int:
        """How many light repeats under the baseline are planned before the noise is known."""
        return self.repeats if self.repeat is None else max(self.repeats, FIRST_REPEATS)

    @property
    def live_workloads(self) -> int:
        return sum(workload.command is not None for workload in self.workloads)
