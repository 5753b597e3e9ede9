"""The content of a campaign file: its keys, their types and their ranges, and its JSON schema.

The models below document the format; ``docs/campaign-file.md`` shows it by example, ``docs/scheduling.md``
the keys that say where and when runs may be made. :mod:`assay_server.campaign_file.faults` checks rules
between fields. With the schema editors complete and check campaign files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidatorFunctionWrapHandler

from assay_sampling.counters.definitions import COST_COUNTERS, features_of
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES
from assay_sampling.launches.table import CacheCondition, ClockCondition, Condition, Level
from assay_sampling.running.identity import SmShareKind
from assay_server.campaign_file.compiled import NO_REQUIREMENTS, Placement, Requirements, Slicing

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

Word = Annotated[str, Field(max_length=32_768)]


class SpecModel(BaseModel):
    """A part of a campaign file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


_MOST_LAUNCHES = 1 << 40
_LONGEST_BUDGET_S = 30 * 24 * 3600

CounterSet = Literal["cycles", "features"]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class DetailedSpec(SpecModel):
    """The detailed level of live runs: the ``first`` launches, in slices of ``slice_launches``.

    ``first`` is 0 for "auto": slices chosen from the light run, until at most ``unseen_percent`` of its time
    is in signatures without counters. Each of ``sets`` is a separate run: by
    default one for true cycles, in one pass, and one for features, whose passes disturb the caches.
    """

    first: Annotated[
        int,
        Field(ge=1, le=_MOST_LAUNCHES),
        WrapValidator(lambda value, number: 0 if value == "auto" else number(value)),
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


class _ConditionKeys(SpecModel):
    cache: CacheCondition = "none"
    clock: ClockCondition = "none"
    sm_percent: float = Field(default=100.0, gt=0, le=100)
    sm_share: SmShareKind = "limit"

    def condition(self) -> Condition:
        return Condition(self.cache, self.clock, float(self.sm_percent), self.sm_share)


class LiveConditionSpec(_ConditionKeys):
    """A condition other than the baseline: caches flushed, clocks locked, a share of the SMs."""

    @property
    def flushed(self) -> bool:
        return self.cache == "all"


_Label = Annotated[str, Field(min_length=1, max_length=200)]
_SM = re.compile(r"sm_?(\d+)(\d)")


def _capabilities(value: Any) -> Any:
    """``9.0``, ``sm_90`` and ``"9.0"``, alone or in a list, as texts like "9.0"."""
    return [_capability(each) for each in (value if isinstance(value, list) else [value])]


def _capability(value: Any) -> Any:
    match = _SM.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        return f"{match[1]}.{match[2]}"
    return f"{value:.1f}" if isinstance(value, float) else value


_ONE_ARCHITECTURE = {"type": ["string", "number"]}
_Texts = Annotated[
    list[_Label],
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class RequiresSpec(SpecModel):
    """What a slot must have besides the kind of GPU; missing keys ask for nothing."""

    architecture: Annotated[
        list[Annotated[str, Field(pattern=r"^\d{1,2}\.\d$")]],
        BeforeValidator(_capabilities),
        WithJsonSchema({"anyOf": [_ONE_ARCHITECTURE, {"type": "array", "items": _ONE_ARCHITECTURE}]}),
    ] = Field(default_factory=list, max_length=20)
    gpu: _Label | None = None
    sm_count: int | None = Field(default=None, ge=1, le=10_000)
    memory_gib: float | None = Field(default=None, gt=0, le=100_000)
    driver: str | None = Field(default=None, pattern=r"^\d+(\.\d+)*$", max_length=40)
    tools: _Texts = Field(default_factory=list, max_length=20)
    labels: _Texts = Field(default_factory=list, max_length=20)
    mig: bool | None = None

    def requirements(self) -> Requirements:
        """As plain data."""
        mig: Literal["", "yes", "no"] = "" if self.mig is None else "yes" if self.mig else "no"
        return Requirements(
            tuple(sorted(set(self.architecture))),
            self.gpu or "",
            self.sm_count or 0,
            float(self.memory_gib or 0.0),
            self.driver or "",
            tuple(sorted(set(self.tools))),
            tuple(sorted(set(self.labels))),
            mig,
        )


ExclusiveSpec = Literal["gpu", "box"]

_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_NAME = Field(pattern=_NAME_PATTERN, max_length=100)
_MOST_PROCESSES = 1024
_LONGEST_TIMEOUT_S = 30 * 24 * 3600


class ConditionSpec(_ConditionKeys):
    """The condition under which a recording was made; missing keys have the baseline's values."""

    def assumed(self) -> tuple[str, ...]:
        """The keys that the file leaves to the baseline, except the kind of a share: few would give it."""
        written_keys = {*self.model_fields_set, "sm_share"}
        return tuple(name for name in type(self).model_fields if name not in written_keys)


def _no_recording(value: Any) -> Any:
    """``detailed: none`` in a recording means that there is no detailed recording, not a file "none"."""
    return None if value == "none" else value


class RecordingSpec(SpecModel):
    """A recorded run on one kind of GPU: a light recording, a detailed one of its first launches, or both."""

    device: _Label
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


_Ranks = Annotated[
    list[Annotated[int, Field(ge=0, lt=1 << 31)]], Field(min_length=1, max_length=_MOST_PROCESSES)
]
RanksSpec = Annotated[
    Literal["together", "each"] | _Ranks,
    WrapValidator(_ranks),
]


class WorkloadSpec(SpecModel):
    """A workload: a command to measure on the campaign's ``gpus``, or recordings of it."""

    name: _Label
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
    gang: int | None = Field(default=None, ge=2, le=64)
    after: list[_Label] = Field(default_factory=list, max_length=100)
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


@dataclass(frozen=True)
class ConditionRun:
    """A run that conditions add to those under the baseline; detailed ones are made in one pass."""

    level: Literal["detailed", "light"]
    condition: Condition
    under_mps: bool = False


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
    gpus: list[_Label] = Field(default_factory=list, min_length=1, max_length=100)
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

    def placement_of(self, workload: WorkloadSpec) -> Placement:
        """Where runs of a workload may be made: its keys replace those of the campaign."""
        requires = self.requires if workload.requires is None else workload.requires
        return Placement(
            NO_REQUIREMENTS if requires is None else requires.requirements(),
            workload.exclusive or self.exclusive or "",
            workload.gang or 1,
        )

    def condition_runs(self) -> tuple[ConditionRun, ...]:
        """The runs of a repeat under the file's conditions, each once.

        A locked clock adds a detailed and a light run, flushed caches a detailed run, a share of the SMs a
        light run. Each also adds the run that it is compared with under the same clock: the detailed run with
        warm caches, or the light run at 100 % under the same kind of MPS daemon. Shares come last.
        Without a detailed level detailed runs are left out.
        """
        runs: list[ConditionRun] = []
        shares = [spec.condition() for spec in self.conditions if spec.sm_percent < 100]
        for spec in self.conditions:
            condition = spec.condition()
            if spec.sm_percent < 100:
                continue
            runs.append(ConditionRun("detailed", condition))
            if spec.flushed and spec.clock != "none":
                runs.append(ConditionRun("detailed", replace(condition, cache="none")))
            elif not spec.flushed:
                runs.append(ConditionRun("light", condition))
        runs += [ConditionRun("light", condition, under_mps=True) for condition in shares]
        whole = dict.fromkeys(replace(condition, sm_percent=100.0, sm_share="limit") for condition in shares)
        runs += [ConditionRun("light", condition, under_mps=True) for condition in whole]
        return tuple(dict.fromkeys(run for run in runs if run.level == "light" or not self.light_only))


def campaign_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a campaign file, as people write it.

    It knows keys, types and ranges; :mod:`assay_server.campaign_file.reading` checks rules between fields.
    """
    schema = Campaign.model_json_schema()
    definitions = schema["$defs"]
    method = definitions["MethodSpec"]["description"]
    # In a file a method is its name, or its name with parameters; the model has them as two fields.
    definitions["MethodSpec"] = {
        "description": f"{method} For example: systematic, or random: {{launches: 100}}.",
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": {"anyOf": [{"type": "object"}, {"type": "null"}]},
            },
        ],
    }
    features = definitions["DetailedSpec"]["properties"]["features"]
    definitions["DetailedSpec"]["properties"]["features"] = {"anyOf": [{"type": "string"}, features]}
    # "none" in a file is None in the model.
    detailed = schema["properties"]["detailed"]
    detailed["anyOf"] = [{"$ref": "#/$defs/DetailedSpec"}, {"const": "none"}]
    definitions["AnalysisSpec"]["properties"]["methods"].pop("default", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Assay campaign file",
        "description": "Which workloads run or were recorded on which kinds of GPU, and their analysis.",
    }
