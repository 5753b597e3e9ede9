"""The file ``config.ncu-cfg``, which Nsight Compute silently reads unless an option forbids it.

Source: Nsight Compute CLI 2024.1, "Config file": searched in the working directory, then in
"$HOME/.config/NVIDIA Corporation"; a block for each mode; the command line takes precedence.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay_virtual.tools.options import CommandLine, Option, UsageError, parse_command_line

_NAME = "config.ncu-cfg"


def with_config_file(
    command: CommandLine, options: Sequence[Option], variables: Mapping[str, str]
) -> CommandLine:
    """The command line with the file's options; unchanged if there is no file or an option forbids it."""
    if "config-file" not in command.options or not command.is_on("config-file"):
        return command
    path = _find(command, variables)
    if path is None:
        return command
    parser = configparser.ConfigParser(delimiters=("=",), inline_comment_prefixes=(";",), allow_no_value=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(path.read_text())
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise UsageError(f"{path} cannot be read") from error
    mode = "Import" if "import" in command else "Launch-and-attach"
    arguments: list[str] = []
    for name, value in parser[mode].items() if mode in parser else ():
        arguments += [name] if value is None else [name, value]
    added = parse_command_line(options, arguments)
    return CommandLine({**added.values, **command.values}, command.options, command.program)


def _find(command: CommandLine, variables: Mapping[str, str]) -> Path | None:
    if "config-file-path" in command:
        places = [Path(command.text("config-file-path"))]
    else:
        places = [Path(_NAME)]
        if variables.get("HOME"):
            places.append(Path(variables["HOME"]) / ".config" / "NVIDIA Corporation" / _NAME)
    return next((place for place in places if place.is_file()), None)
