"""The campaign file: what may stand in it, and errors that name the line and the field.

The format is documented by the models below; ``docs/campaign-file.md`` shows it by example.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from assay_sampling.counters import FEATURE_SETS
from assay_sampling.errors import CampaignError, ParameterError
from assay_sampling.identity import SmShareKind
from assay_sampling.launch_table import CacheCondition, ClockCondition, Condition, Level
from assay_sampling.launches import DEFAULT_MEMORY_LIMIT_BYTES
from assay_server.campaigns.light_only import light_only_faults
from assay_server.campaigns.live_spec import (
    FIRST_REPEATS,
    MOST_SLICES,
    DetailedSpec,
    LightLevel,
    LiveConditionSpec,
    OptionalDetailed,
    RepeatSpec,
    SpecModel,
    Word,
    command_faults,
    condition_faults,
    detailed_faults,
    gpu_faults,
    kineto_faults,
    planned_slices,
    uncollected,
)
from assay_server.campaigns.yaml_source import REMEDY, Document, Place, parse_yaml

MOST_ERRORS = 10
_NAME = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
_LABEL = Field(min_length=1, max_length=200)
_LONGEST_TIMEOUT_S = 30 * 24 * 3600
_LIVE_KEYS = ("gpus", "detailed", "light", "conditions", "repeats", "bare", "repeat")


class ConditionSpec(SpecModel):
    """The condition a recording was made under; what is left out is that of the baseline."""

    cache: CacheCondition = "none"
    clock: ClockCondition = "none"
    sm_percent: float = Field(default=100.0, gt=0, le=100)
    sm_share: SmShareKind = "limit"

    def condition(self) -> Condition:
        return Condition(self.cache, self.clock, float(self.sm_percent), self.sm_share)

    def assumed(self) -> tuple[str, ...]:
        """What the file leaves out, and the baseline stands for; few would say the kind of a share."""
        said = {*self.model_fields_set, "sm_share"}
        return tuple(name for name in type(self).model_fields if name not in said)


def _no_recording(value: Any) -> Any:
    """``detailed: none`` of a recording says that there is none; it names no file."""
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
        """The recordings that there are, detailed first."""
        if self.detailed is not None:
            yield "detailed", self.detailed
        if self.light is not None:
            yield "light", self.light


class WorkloadSpec(SpecModel):
    """A workload: a command to measure on the campaign's ``gpus``, or recordings of it."""

    name: str = _LABEL
    command: list[Word] | None = Field(default=None, min_length=1, max_length=1000)
    environment: dict[str, Word] = Field(default_factory=dict, max_length=1000)
    timeout_s: float | None = Field(default=None, gt=0, le=_LONGEST_TIMEOUT_S)
    memory_limit_bytes: int | None = Field(default=None, ge=1 << 20, lt=1 << 62)
    kineto: str | None = Field(default=None, min_length=1, max_length=4096)
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
# Where there are no counters. A summary is about the first method that gave numbers, so the best comes first.
LIGHT_METHODS = tuple(MethodSpec(name=name) for name in ("stem", "stratified", "random", "systematic"))


class AnalysisSpec(SpecModel):
    """How the recordings are analysed."""

    reference: str | None = None
    methods: list[Annotated[MethodSpec, BeforeValidator(_method)]] = Field(
        default=list(DEFAULT_METHODS), min_length=1, max_length=100
    )
    memory_limit_bytes: int = Field(default=DEFAULT_MEMORY_LIMIT_BYTES, gt=0)


class Campaign(SpecModel):
    """A campaign file. ``synthetic`` marks all of its data as not from silicon."""

    campaign: str = _NAME
    synthetic: bool = False
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
        """Whether it has no detailed level at all: ``detailed: none``."""
        return self.detailed is None

    @property
    def methods(self) -> list[MethodSpec]:
        """The methods of the analysis; where the file names none, those that the plan has data for."""
        if self.light_only and "methods" not in self.analysis.model_fields_set:
            return list(LIGHT_METHODS)
        return self.analysis.methods

    @property
    def light_repeats(self) -> int:
        """How often light runs under the baseline are planned before any noise is known."""
        return self.repeats if self.repeat is None else max(self.repeats, FIRST_REPEATS)

    @property
    def live_workloads(self) -> int:
        return sum(workload.command is not None for workload in self.workloads)


def load_campaign(text: str | bytes, file_name: str) -> Campaign:
    """A campaign from the text of its file.

    Raises CampaignError whose text names ``file_name``, line and field of each fault, the first ten.
    """
    document = parse_yaml(_decoded(text, file_name), file_name)
    if document.values is None:
        raise CampaignError(file_name, "it is empty", REMEDY)
    if not isinstance(document.values, dict):
        raise CampaignError(
            f"{file_name}:{document.line(())}", "it is not a mapping of keys to values", REMEDY
        )
    try:
        campaign = Campaign.model_validate(document.values)
    except ValidationError as error:
        found = [_told(details, document) for details in error.errors()]
        raise _campaign_error(file_name, found) from None
    faults = [(document.line(place), _field(place), text) for place, text in _meaning_faults(campaign)]
    if faults:
        raise _campaign_error(file_name, faults)
    return campaign


def _decoded(text: str | bytes, file_name: str) -> str:
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise CampaignError(f"{file_name}:{line}", "it is not UTF-8 text", "save the file as UTF-8") from None


Fault = tuple[int, str, str]  # line, field, what is wrong


def _campaign_error(file_name: str, faults: list[Fault]) -> CampaignError:
    faults = sorted(faults, key=lambda fault: fault[0])
    (line, place, cause), *others = faults[:MOST_ERRORS]
    text = [f"{place}{cause}", *(f"{file_name}:{n}: {at}{what}" for n, at, what in others)]
    if len(faults) > MOST_ERRORS:
        text.append(f"and {len(faults) - MOST_ERRORS} more")
    return CampaignError(f"{file_name}:{line}", "\n".join(text), REMEDY)


def _told(details: ErrorDetails, document: Document) -> Fault:
    """A validation error of pydantic as line, field and a sentence in our words."""
    place: Place = tuple(details["loc"])
    kind, context, given = details["type"], details.get("ctx", {}), details["input"]
    if kind == "extra_forbidden":
        return document.line(place), _field(place), _unknown_key(place)
    if kind == "missing":
        return document.line(place[:-1]), _field(place), "this key is required"
    text = _TEXTS.get(kind, "")
    if text:
        shown = text.format(given=_shown(given), **context)
    elif kind == "method":
        shown = details["msg"]
    elif kind == "detailed":
        shown = f"{_shown(given)} is {details['msg']}"
    else:
        shown = f"{details['msg'][:1].lower()}{details['msg'][1:]}, not {_shown(given)}"
    return document.line(place), _field(place), shown


_TEXTS = {
    "literal_error": "{given} is not {expected}",
    "string_type": "{given} is not text; write it in quotes",
    "string_pattern_mismatch": "{given} is not a name made of letters, digits, '.', '_' and '-'",
    "string_too_short": "it is empty",
    "too_short": "it is empty",
    "bool_type": "{given} is neither true nor false",
    "int_type": "{given} is not a whole number",
    "float_type": "{given} is not a number",
    "list_type": "{given} is not a list; begin each item with '- '",
    "model_type": "{given} is not a mapping of keys to values",
    "greater_than": "{given} is not above {gt}",
    "greater_than_equal": "{given} is below {ge}",
    "less_than_equal": "{given} is above {le}",
    "dict_type": "{given} is not a mapping of names to texts",
    "too_long": "it has more than {max_length} items",
    "string_too_long": "it is longer than {max_length} characters",
}


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _field(place: Place) -> str:
    """``field workloads[0].recordings[1].light: ``, or nothing for the whole file."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return f"field {text}: " if text else ""


def _unknown_key(place: Place) -> str:
    known = list(_model_at(place[:-1]).model_fields)
    close = difflib.get_close_matches(str(place[-1]), known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the keys here are {', '.join(known)}"
    return f"unknown key; {hint}"


def _model_at(place: Place) -> type[BaseModel]:
    names = [part for part in place if isinstance(part, str)]
    models: dict[str, type[BaseModel]] = {
        "detailed": DetailedSpec,
        "repeat": RepeatSpec,
        "conditions": LiveConditionSpec,
        "workloads": WorkloadSpec,
        "recordings": RecordingSpec,
        "condition": ConditionSpec,
        "analysis": AnalysisSpec,
        "methods": MethodSpec,
    }
    return models[names[-1]] if names else Campaign


def _meaning_faults(campaign: Campaign) -> Iterator[tuple[Place, str]]:
    """What each field alone does not show: names that stand twice, unknown devices and methods."""
    names: dict[str, int] = {}
    for position, workload in enumerate(campaign.workloads):
        place: Place = ("workloads", position)
        if workload.name in names:
            yield (*place, "name"), f"the workload {workload.name!r} stands twice"
        names.setdefault(workload.name, position)
        yield from _kind_faults(workload, place)
        yield from _recording_faults(workload, place)
    yield from _live_faults(campaign)
    yield from _reference_faults(campaign)
    wrong = False
    for position, method in enumerate(campaign.analysis.methods):
        for fault in _method_faults(method, ("analysis", "methods", position)):
            wrong = True
            yield fault
    if campaign.light_only and not wrong:
        yield from light_only_faults(campaign)


def _kind_faults(workload: WorkloadSpec, place: Place) -> Iterator[tuple[Place, str]]:
    """A workload is live or recorded, one of the two."""
    if workload.command is None:
        if not workload.recordings:
            yield place, "it has nothing to run; give a 'command' or 'recordings'"
        for key in ("environment", "timeout_s", "memory_limit_bytes", "kineto"):
            if key in workload.model_fields_set:
                yield (*place, key), "it belongs to a workload with a 'command'"
        return
    if workload.recordings:
        yield (*place, "recordings"), "it has a 'command' too; make two workloads of it"
    yield from command_faults(workload.command, workload.environment, place)
    yield from kineto_faults(workload.kineto or "", place)


def _live_faults(campaign: Campaign) -> Iterator[tuple[Place, str]]:
    if not campaign.live_workloads:
        for key in _LIVE_KEYS:
            if key == "detailed" and campaign.light_only:
                continue  # recordings may have no detailed level too
            if key in campaign.model_fields_set:
                yield (key,), "no workload has a 'command', so nothing would run under it"
        return
    if not campaign.gpus:
        live = next(i for i, workload in enumerate(campaign.workloads) if workload.command is not None)
        yield ("workloads", live, "command"), "no GPU to run it on is named; give a list of kinds in 'gpus'"
    faults = list(detailed_faults(campaign.detailed))
    yield from gpu_faults(campaign.gpus)
    if campaign.synthetic and campaign.light == "cupti":
        yield ("light",), "virtual GPUs have no CUPTI; their light runs are made with nsys"
    yield from condition_faults(
        campaign.conditions, light_only=campaign.light_only, synthetic=campaign.synthetic
    )
    yield from faults
    if faults:
        return
    yield from _uncollected_faults(campaign)
    slices = planned_slices(
        campaign.live_workloads, len(campaign.gpus), campaign.repeats, campaign.detailed, campaign.conditions
    )
    slices += campaign.bare * campaign.live_workloads * len(campaign.gpus) * campaign.repeats
    if slices > MOST_SLICES:
        place: Place = ("detailed",) if "detailed" in campaign.model_fields_set else ("workloads",)
        yield (
            place,
            f"it makes {slices:,} slices and at most {MOST_SLICES:,} are planned; "
            "lower 'first', raise 'slice_launches', or make several campaigns",
        )


def _uncollected_faults(campaign: Campaign) -> Iterator[tuple[Place, str]]:
    """Methods that would find out after hours of profiling that their counters were never collected."""
    if campaign.detailed is None:
        return
    for position, method in enumerate(campaign.analysis.methods):
        features = method.parameters.get("features")
        if not isinstance(features, str) or features not in FEATURE_SETS:
            continue
        lacking = uncollected(features, campaign.detailed)
        if lacking:
            yield (
                ("analysis", "methods", position, method.name, "features"),
                f"{features} needs {', '.join(lacking)}, which no detailed run collects; "
                f"name it in 'detailed: {{features: [..., {features}]}}'",
            )


def _recording_faults(workload: WorkloadSpec, place: Place) -> Iterator[tuple[Place, str]]:
    seen: set[tuple[str, Condition]] = set()
    for position, recording in enumerate(workload.recordings):
        here: Place = (*place, "recordings", position)
        if recording.light is None and recording.detailed is None:
            yield here, "it names no recording; give 'light', or 'detailed', or both"
        key = (recording.device, recording.condition.condition())
        if key in seen:
            yield (*here, "device"), f"{recording.device!r} stands twice under the same condition"
        seen.add(key)
        for level, path in recording.levels():
            if "\0" in path:
                yield (*here, level), "a path cannot hold a null character"


def _reference_faults(campaign: Campaign) -> Iterator[tuple[Place, str]]:
    reference = campaign.analysis.reference
    recorded = [recording.device for workload in campaign.workloads for recording in workload.recordings]
    devices = [*campaign.gpus, *recorded]
    if reference is not None and reference not in devices:
        known = ", ".join(dict.fromkeys(devices))
        kinds = "GPU or recording" if campaign.gpus else "recording"
        yield ("analysis", "reference"), f"no {kinds} is of the device {reference!r}; there are {known}"


def _method_faults(method: MethodSpec, place: Place) -> Iterator[tuple[Place, str]]:
    from assay_sampling.samplers import samplers  # noqa: PLC0415 - the methods need their extra, the file does not

    known = samplers()
    if method.name not in known:
        close = difflib.get_close_matches(method.name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
        yield place, f"there is no method {method.name!r}; {hint}"
        return
    try:
        known[method.name].parameters.model_validate(method.parameters)
    except ValidationError as error:
        allowed = ", ".join(known[method.name].parameters.model_fields)
        for details in error.errors():
            at: Place = (*place, method.name, *details["loc"])
            if details["type"] == "extra_forbidden":
                yield at, f"{method.name} has no such parameter; it has {allowed}"
            else:
                yield at, f"{details['msg'][:1].lower()}{details['msg'][1:]}, not {_shown(details['input'])}"
    except ParameterError as error:
        yield (*place, method.name), f"{error.cause}"


def resolved_path(path: str, base_directory: str, file_name: str) -> str:
    """A path of the file, from ``base_directory`` where it is relative; raises CampaignError without one."""
    pure = PurePosixPath(path)
    if pure.is_absolute():
        return str(pure)
    if not PurePosixPath(base_directory).is_absolute():
        raise CampaignError(
            file_name,
            f"the path {path!r} is relative, and the folder of the file was not given",
            "give an absolute path",
        )
    return str(PurePosixPath(base_directory) / pure)
