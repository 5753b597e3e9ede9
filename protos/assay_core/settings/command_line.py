"""A program's settings as options of a Typer command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_core.settings.declaration import DeclaredSetting, ProgramSettings
from assay_core.settings.settling import settle

_CONFIG, _SETTINGS, _AGAIN = "config", "settings", "again"


def with_settings(
    model: type[ProgramSettings], *fields: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of a model's settings, and ``--config``; it takes them as ``settings``.

    ``fields`` names the settings that the command uses, the others keep their defaults; without ``fields``
    it has them all. The command is called with keyword arguments only. If it takes ``again``, it gets a
    function that settles the settings (once more): same flags, the file as it is then.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        shown = [setting for setting in model.declared() if not fields or setting.field in fields]

        @functools.wraps(command)
        def called(**given: Any) -> Any:
            flags = {setting.field: given.pop(setting.field) for setting in shown}
            file = given.pop(_CONFIG)

            def again() -> ProgramSettings:
                return settle(model, flags, file=file)

            if _AGAIN in own.parameters:
                given[_AGAIN] = again
            if _SETTINGS in own.parameters:
                given[_SETTINGS] = again()
            return command(**given)

        own = inspect.signature(command, eval_str=True)
        others = [parameter for name, parameter in own.parameters.items() if name not in (_SETTINGS, _AGAIN)]
        added = [_parameter(setting) for setting in shown]
        _take_signature(
            called, [*others[: _positional(others)], *added, _config(model), *others[_positional(others) :]]
        )
        return called

    return decorate


def option_of(model: type[ProgramSettings], field: str) -> Any:
    """The Typer option of one setting, for a command that settles its value (text or None) itself."""
    return _option(next(setting for setting in model.declared() if setting.field == field))


def _positional(parameters: list[inspect.Parameter]) -> int:
    """How many arguments come before the options."""
    kinds = [parameter.kind for parameter in parameters]
    return sum(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)


def _take_signature(function: Any, parameters: list[inspect.Parameter]) -> None:
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del function.__wrapped__


def _parameter(setting: DeclaredSetting) -> inspect.Parameter:
    kind: Any = list[str] | None if setting.is_list else (Path | None if setting.is_path else str | None)
    return _keyword(setting.field, Annotated[kind, _option(setting)])


def _option(setting: DeclaredSetting) -> Any:
    repeatable = " Repeatable." if setting.is_list else ""
    default = f"; default: {setting.default}" if setting.default else ""
    return typer.Option(
        setting.flag,
        metavar=setting.metavar,
        help=f"{setting.help}{repeatable} [${setting.variable}{default}]",
        show_default=False,
        autocompletion=(lambda incomplete: [c for c in setting.choices if c.startswith(incomplete)])
        if setting.choices
        else None,
    )


def _config(model: type[ProgramSettings]) -> inspect.Parameter:
    option = typer.Option(
        "--config",
        metavar="FILE",
        help=f"TOML file with these settings. [${model.file_variable()}; default: {model.default_file()} "
        "if it exists]",
        show_default=False,
    )
    return _keyword(_CONFIG, Annotated[Path | None, option])


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
