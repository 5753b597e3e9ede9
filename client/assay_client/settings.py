"""The settings of the command line ``assay`` and of the Python client."""

from __future__ import annotations

import os
from contextvars import ContextVar
from pathlib import Path
from typing import ClassVar

from assay_core.program import LogFormatSetting
from assay_core.program_log import LogFormat, LogLevel
from assay_core.server_address import SERVER_VARIABLE, SOCKET_OWNER_VARIABLE, default_address
from assay_core.settings.declaration import ProgramSettings, setting
from assay_core.settings.settling import settle


class ClientSettings(ProgramSettings):
    """The settings of ``assay``; raises ParameterError for invalid values."""

    program: ClassVar[str] = "assay"
    variable_prefix: ClassVar[str] = "ASSAY_"

    server: str = setting(
        default_address,
        "unix:PATH or HOST:PORT of the server.",
        default_text="this user's own socket",
        variable=SERVER_VARIABLE,
        metavar="ADDRESS",
    )
    socket_owner: str = setting(
        "",
        "User whose shared socket is trusted (assay-server --socket-group); given before the verb.",
        default_text="only this user's own",
        variable=SOCKET_OWNER_VARIABLE,
        metavar="USER",
    )
    credentials_dir: Path = setting(
        lambda: _config_home() / "assay" / "servers",
        "Folder in which 'assay lab login' keeps your certificates.",
        default_text="assay/servers in $XDG_CONFIG_HOME, else in ~/.config",
        flag="credentials",
        metavar="DIR",
    )
    memory_limit_bytes: int = setting(
        8 << 30,
        "Stop with an error before launches take more memory than this; suffixes K, M, G, Ki, Mi, Gi.",
        ge=1,
    )
    log_level: LogLevel | None = setting(
        None,
        "The lowest level that is logged to standard error: debug, info, warning or error.",
        default_text="nothing is logged",
        variable="ASSAY_LOG_LEVEL",
    )
    log_format: LogFormatSetting = LogFormat.TEXT

    @classmethod
    def default_file(cls) -> Path:
        """The settings file of a user: assay/client.toml in $XDG_CONFIG_HOME, else in ~/.config."""
        return _config_home() / "assay" / "client.toml"


def _config_home() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(folder if folder.startswith("/") else f"{os.environ.get('HOME') or '/nonexistent'}/.config")


# Flags before the verb that verbs use later; each command line sets them anew.
_BEFORE_THE_VERB: ContextVar[dict[str, str | None]] = ContextVar("assay_flags_before_the_verb", default={})  # noqa: B039


def note_flags(**flags: str | None) -> None:
    """Keep flags that were given before the verb for :func:`settings_of`."""
    _BEFORE_THE_VERB.set(flags)


def settings_of(**flags: str | None) -> ClientSettings:
    """The settings in force with the command line's ``flags``, by field; None for a flag not given.

    Raises ParameterError that names the flag or variable, InputError that names the file and its key.
    """
    before = {name: value for name, value in _BEFORE_THE_VERB.get().items() if flags.get(name, "") is None}
    return settle(ClientSettings, {**flags, **before})
