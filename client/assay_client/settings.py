"""The settings of the command line ``assay`` and of the Python client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from assay_core.program import LogFormatSetting
from assay_core.program_log import LogFormat, LogLevel
from assay_core.server_address import SERVER_VARIABLE, default_address
from assay_core.settings.declaration import ProgramSettings, Setting
from assay_core.settings.settling import settle


class ClientSettings(ProgramSettings):
    """The settings of ``assay``; raises ParameterError for invalid values."""

    program: ClassVar[str] = "assay"
    variable_prefix: ClassVar[str] = "ASSAY_"

    server: Annotated[
        str,
        Setting(
            "unix:PATH or HOST:PORT of the server.",
            default="this user's own socket",
            variable=SERVER_VARIABLE,
            metavar="ADDRESS",
        ),
    ] = Field(default_factory=default_address)
    credentials_dir: Annotated[
        Path,
        Setting(
            "Folder in which 'assay login' keeps your certificates.",
            default="assay/servers in $XDG_CONFIG_HOME, else in ~/.config",
            flag="credentials",
            metavar="DIR",
        ),
    ] = Field(default_factory=lambda: _config_home() / "assay" / "servers")
    memory_limit_bytes: Annotated[
        int,
        Setting("Refuse before holding more launches than this; K, M, G, Ki, Mi, Gi may follow the number."),
    ] = Field(default=8 << 30, ge=1)
    log_level: Annotated[
        LogLevel | None,
        Setting(
            "The lowest level that is logged to standard error: debug, info, warning or error.",
            default="nothing is logged",
            variable="ASSAY_LOG_LEVEL",
        ),
    ] = None
    log_format: LogFormatSetting = LogFormat.TEXT

    @classmethod
    def default_file(cls) -> Path:
        """The settings file of a user: assay/client.toml in $XDG_CONFIG_HOME, else in ~/.config."""
        return _config_home() / "assay" / "client.toml"


def _config_home() -> Path:
    given = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(given if given.startswith("/") else f"{os.environ.get('HOME') or '/nonexistent'}/.config")


def settings_of(**flags: str | None) -> ClientSettings:
    """The settings in force with the command line's ``flags``, by field; None for a flag not given.

    Raises ParameterError that names the flag or variable, InputError that names the file and its key.
    """
    return settle(ClientSettings, dict(flags))
