"""Settling a program's settings: flag before variable before file before default."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from assay_core.settings.declaration import (
    DeclaredSetting,
    InvalidSettingError,
    ProgramSettings,
    Unit,
)
from assay_core.settings.quantities import parse_bytes, parse_span_seconds
from assay_sampling.errors import InputError, ParameterError

Settings = TypeVar("Settings", bound=ProgramSettings)


def settle(
    model: type[Settings],
    flags: Mapping[str, str | list[str] | None],
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings that are in force.

    Args:
        flags: values from the command line, by field; None if not given. Only these settings are looked up
            in the environment, so a verb does not fail because of a variable that it does not use.
        file: the settings file that was named; None takes the model's default file if it exists.
        environment: variables by name; None takes those of this process. An empty one counts as not set.

    Raises ParameterError that names the flag or variable, InputError that names file and key.
    """
    variables = os.environ if environment is None else environment
    known = {setting.field: setting for setting in model.declared()}
    values = _from_file(model, file or _named_file(model, variables))
    values = {field: value for field, value in values.items() if field in flags}
    origins: dict[str, str] = {}
    for field, given in flags.items():
        setting = known[field]
        text: str | list[str] | None = given or None
        origin = setting.flag
        if text is None and variables.get(setting.variable):
            origin = f"${setting.variable}"
            text = variables[setting.variable]
        if text is not None:
            values[field], origins[field] = _written(setting, text, origin), origin
    try:
        return model.model_validate(values)
    except InvalidSettingError as error:
        subject = origins.get(error.field) or (known[error.field].flag if error.field else model.program)
        raise ParameterError(subject, error.cause, error.remedy) from error


def read_settings_file(model: type[ProgramSettings], path: Path) -> dict[str, Any]:
    """The values in a settings file, by field; raises InputError naming the file and the key."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(
            path, f"it cannot be read ({error.strerror})", "name another with --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(path, f"it is not TOML: {error}", "correct the settings file") from error
    known = {setting.key: setting for setting in model.declared()}
    remedy = f"the keys are {', '.join(known)}"
    values = {}
    for key, value in document.items():
        if key not in known:
            raise InputError(path, "there is no such setting", remedy, field=key)
        values[known[key].field] = _from_toml(known[key], value, path)
    for name, setting in known.items():
        if setting.field in values:
            _check(model, setting.field, values[setting.field], path, name)
    return values


def _check(model: type[ProgramSettings], field: str, value: Any, path: Path, key: str) -> None:
    """Raise InputError if the model refuses the value; contradictions between settings show later."""
    try:
        TypeAdapter(model.value_type(field)).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = first["msg"][:1].lower() + first["msg"][1:]
        raise InputError(path, f"{message}, not {value!r}", field=key) from error
    except ParameterError as error:
        raise InputError(path, error.cause, error.remedy, field=key) from error


def _named_file(model: type[ProgramSettings], variables: Mapping[str, str]) -> Path | None:
    if named := variables.get(model.file_variable()):
        return Path(named)
    default = model.default_file()
    return default if default.is_file() else None


def _from_file(model: type[ProgramSettings], path: Path | None) -> dict[str, Any]:
    return {} if path is None else read_settings_file(model, path)


def _from_toml(setting: DeclaredSetting, value: Any, path: Path) -> Any:
    if setting.is_list != isinstance(value, list):
        form = "a list" if setting.is_list else "one value"
        raise InputError(path, f"it takes {form}, not {value!r}", field=setting.key)
    if setting.unit is not None and not isinstance(value, str):
        example = '"8GiB"' if setting.unit is Unit.BYTES else '"90s"'
        raise InputError(
            path, f"{value!r} has no unit", f"write it with its unit, as {example}", field=setting.key
        )
    try:
        return _written(setting, value, setting.key)
    except ParameterError as error:
        raise InputError(path, error.cause, error.remedy, field=setting.key) from error


def _written(setting: DeclaredSetting, value: Any, origin: str) -> Any:
    """A text as the field's value; in a variable, commas separate the values of a list."""
    if setting.is_list:
        return (
            tuple(value)
            if isinstance(value, list)
            else tuple(p.strip() for p in value.split(",") if p.strip())
        )
    if setting.unit is Unit.BYTES:
        return parse_bytes(value, origin)
    if setting.unit is Unit.SECONDS:
        return parse_span_seconds(value, origin)
    if setting.unit is Unit.MILLISECONDS:
        return round(parse_span_seconds(value, origin) * 1000)
    return value
