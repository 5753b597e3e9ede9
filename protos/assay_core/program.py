"""Options that all command lines share: ``-h``, ``--version``, and the settings of the log."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer

from assay_core.program_log import LogFormat, LogLevel
from assay_core.settings.declaration import Setting

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}

LogLevelSetting = Annotated[
    LogLevel,
    Setting(
        "The lowest level that is logged: debug, info, warning or error.",
        variable="ASSAY_LOG_LEVEL",
        at_runtime=True,
    ),
]
LogFormatSetting = Annotated[
    LogFormat,
    Setting(
        "Format of the log: text, or json with one object per line.",
        variable="ASSAY_LOG_FORMAT",
        at_runtime=True,
    ),
]


def distribution_version() -> str:
    """The version of the installed distribution; "" if the program runs without being installed."""
    try:
        return metadata.version("assay-gpu")
    except metadata.PackageNotFoundError:
        return ""


def version_option(program: str) -> Any:
    """The option ``--version``, which prints the program's name and version and ends it."""

    def show(is_given: bool) -> None:
        if is_given:
            typer.echo(f"{program} {distribution_version() or '(unknown version)'}")
            raise typer.Exit

    callback: Callable[[bool], None] = show
    return typer.Option("--version", callback=callback, is_eager=True, help="Print the version.")
