"""Declaring a setting: a field of a program's model, from which its flag, variable and key follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from assay_core.settings.quantities import bytes_text, span_text
from assay_sampling.errors import ParameterError


class Unit(StrEnum):
    """The units that a field's name may end in; people write such values with a unit, as 90s or 8GiB."""

    SECONDS = "seconds"
    MILLISECONDS = "ms"
    BYTES = "bytes"


@dataclass(frozen=True)
class Setting:
    """Annotates a field of :class:`ProgramSettings`.

    Args:
        help: one or two sentences for people.
        default: describes the default where the field's value does not explain it; "" prints that value.
        flag: the long option without its dashes; "" derives it from the field's name, without its unit.
        variable: the environment variable; "" derives it from the program's prefix and the flag.
        metavar: the placeholder for the value in the help; "" derives it from the unit.
        at_runtime: whether SIGHUP takes a new value without a restart.
    """

    help: str
    default: str = ""
    flag: str = ""
    variable: str = ""
    metavar: str = ""
    at_runtime: bool = False


def setting(
    default: Any,
    text: str,
    *,
    default_text: str = "",
    flag: str = "",
    variable: str = "",
    metavar: str = "",
    at_runtime: bool = False,
    **bounds: Any,
) -> Any:
    """A field of :class:`ProgramSettings`, as :class:`Setting` describes it.

    Args:
        default: its value if it is not set, or a function that makes it; ``...``: it must be set.
        text: the help.
        default_text: describes the default.
        bounds: as pydantic's ``Field`` takes them (``ge=1``).
    """
    made = Field(default_factory=default, **bounds) if callable(default) else Field(default, **bounds)
    made.metadata.append(Setting(text, default_text, flag, variable, metavar, at_runtime))
    return made


@dataclass(frozen=True)
class DeclaredSetting:
    """A setting with everything derived from its declaration; ``key`` is its name in the file."""

    field: str
    key: str
    flag: str
    variable: str
    metavar: str
    help: str
    default: str
    unit: Unit | None
    is_list: bool
    is_path: bool
    choices: tuple[str, ...]
    at_runtime: bool = False


class InvalidSettingError(ParameterError):
    """A setting has an invalid value; ``field`` names it, "" if two settings contradict each other."""

    def __init__(self, field: str, cause: str, program: str) -> None:
        self.field = field
        super().__init__(field or program, cause, f"see: {program} --help")


class ProgramSettings(BaseModel, ABC):
    """Base of the settings of a program, each a :func:`setting` or annotated with a :class:`Setting`.

    A field holds a number in the unit that its name ends in (``drain_seconds``); people write the span or the
    size with a unit, as a flag (``--drain 90s``), a variable (``ASSAY_AGENT_DRAIN=90s``) or a key of the
    file (``drain = "90s"``). The first of these three that is given counts, else the default.

    The constructor raises InvalidSettingError for an invalid value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    program: ClassVar[str]
    variable_prefix: ClassVar[str]
    reloads: ClassVar[bool] = False  # at SIGHUP

    @model_validator(mode="wrap")
    @classmethod
    def _or_say_which(cls, data: Any, make: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return make(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = str(first["loc"][0]) if first["loc"] else ""
            lacks = first["type"] == "missing"
            message = first["msg"][:1].lower() + first["msg"][1:]
            cause = "it is not given" if lacks else f"{message}, not {str(first['input'])[:200]!r}"
            raise InvalidSettingError(field, cause, cls.program) from error

    @classmethod
    @abstractmethod
    def default_file(cls) -> Path:
        """The settings file that is read if none is named."""

    @classmethod
    def file_variable(cls) -> str:
        """The environment variable that names the settings file."""
        return f"{cls.variable_prefix}CONFIG"

    @classmethod
    def value_type(cls, field: str) -> Any:
        """The type of one setting's value with its bounds, for pydantic's TypeAdapter."""
        declared = cls.model_fields[field]
        return Annotated[(declared.annotation, *declared.metadata)]

    @classmethod
    def declared(cls) -> Iterator[DeclaredSetting]:
        """The settings in the order of their declaration; raises TypeError for a field without a Setting."""
        for name, field in cls.model_fields.items():
            yield _declared(cls, name, field)


def _declared(model: type[ProgramSettings], name: str, field: FieldInfo) -> DeclaredSetting:
    setting = next((each for each in field.metadata if isinstance(each, Setting)), None)
    if setting is None:
        raise TypeError(f"{model.__name__}.{name} has no Setting")
    unit = next((unit for unit in Unit if name.endswith(f"_{unit}")), None)
    flag = setting.flag or name.removesuffix(f"_{unit}" if unit else "").replace("_", "-")
    kinds = _kinds(field.annotation)
    return DeclaredSetting(
        field=name,
        key=flag.replace("-", "_"),
        flag=f"--{flag}",
        variable=setting.variable or model.variable_prefix + flag.replace("-", "_").upper(),
        metavar=setting.metavar or _metavar(unit, kinds),
        help=setting.help,
        default=setting.default or _shown(field, unit),
        unit=unit,
        is_list=tuple in kinds,
        is_path=Path in kinds,
        choices=_choices(kinds),
        at_runtime=setting.at_runtime,
    )


def _kinds(annotation: Any) -> set[Any]:
    """The classes in an annotation: ``tuple[str, ...] | None`` has tuple, str and NoneType."""
    parts = {part for each in get_args(annotation) for part in _kinds(each)}
    return parts | {get_origin(annotation) or annotation}


def _metavar(unit: Unit | None, kinds: set[Any]) -> str:
    if unit is Unit.BYTES:
        return "SIZE"
    if unit is not None:
        return "SPAN"
    if choices := _choices(kinds):
        return "|".join(choices)
    if Path in kinds:
        return "PATH"
    return "NUMBER" if kinds & {int, float} else "TEXT"


def _choices(kinds: set[Any]) -> tuple[str, ...]:
    enums = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, StrEnum)]
    return tuple(str(each) for kind in enums for each in kind)


def _shown(field: FieldInfo, unit: Unit | None) -> str:
    return "" if field.default is PydanticUndefined else value_text(field.default, unit)


def value_text(value: Any, unit: Unit | None) -> str:
    """A setting's value as people write it, with its unit; "" if it is not set."""
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if unit is Unit.BYTES:
        return bytes_text(value)
    if unit is not None:
        return span_text(value / 1000 if unit is Unit.MILLISECONDS else value)
    return f"{value:g}" if isinstance(value, float) else str(value)
