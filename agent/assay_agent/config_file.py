"""The agent's configuration file: defaults for the options of its command line.

A value is taken from the command line, else from the environment, else from the file, else it is the default.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay_sampling.errors import InputError

DEFAULT_CONFIG_FILE = Path("/etc/assay/agent.toml")
CONFIG_VARIABLE = "ASSAY_AGENT_CONFIG"


class FileSettings(BaseModel):
    """The keys of the file: the long options of ``assay-agent run``, with underscores."""

    model_config = ConfigDict(extra="forbid", strict=True)

    server: str | None = None
    state: str | None = None
    name: str | None = None
    agent_id: str | None = None
    policy: str | None = None
    recorded_slots: int | None = Field(default=None, ge=0, le=1024)
    virtual: list[str] | None = None
    spool_limit: int | None = Field(default=None, ge=1)
    minimum_free: int | None = Field(default=None, ge=0)
    drain: float | None = Field(default=None, ge=0)
    pause_at_celsius: float | None = None
    resume_below_celsius: float | None = None
    longest_cooling: float | None = Field(default=None, ge=0)
    log_level: str | None = None


def read_settings(path: Path) -> dict[str, Any]:
    """The settings that a file gives; raises InputError with the file and the field."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(
            path, f"it cannot be read ({error.strerror})", "name another with --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(path, f"it is not TOML: {error}", "correct the configuration file") from error
    try:
        return FileSettings.model_validate(document).model_dump(exclude_none=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        remedy = f"the keys are {', '.join(FileSettings.model_fields)}"
        raise InputError(path, first["msg"], remedy, field=field) from error


def use_settings(context: typer.Context, path: Path | None) -> Path | None:
    """Let a file's settings stand behind the command line and the environment; an option's callback.

    Without a path the file of the box is taken, where there is one. Raises InputError.
    """
    if path is None and DEFAULT_CONFIG_FILE.is_file():
        path = DEFAULT_CONFIG_FILE
    if path is not None and not context.resilient_parsing:
        known = {parameter.name for parameter in context.command.params}
        context.default_map = {key: value for key, value in read_settings(path).items() if key in known}
    return path


CONFIG_OPTION = typer.Option(
    envvar=CONFIG_VARIABLE,
    is_eager=True,
    callback=use_settings,
    help=f"TOML file with defaults of these options; default: {DEFAULT_CONFIG_FILE}, where it is there.",
)
