"""The option ``--token`` of the verbs that join: from the command line, a variable, or standard input."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import typer

from assay_core.files.durable import storage_errors
from assay_sampling.errors import ParameterError

TOKEN_VARIABLE = "ASSAY_JOIN_TOKEN"


def token_option() -> Any:
    """The Typer option; other users see the words of a command line, so it need not be there."""
    return typer.Option(
        "--token",
        metavar="TOKEN",
        envvar=TOKEN_VARIABLE,
        show_envvar=False,
        help=f"The join token; '-' reads it from standard input, where others cannot see it. "
        f"[${TOKEN_VARIABLE}]",
    )


def given_token(option: str) -> str:
    """The token itself; raises ParameterError if standard input holds none."""
    if option != "-":
        return option
    text = sys.stdin.readline().strip()
    if not text:
        raise ParameterError("--token", "standard input is empty", "pipe the token into it")
    return text


def token_in_file(path: Path, option: str = "--token-file") -> str:
    """The token in the first line of a private file.

    Raises ParameterError if it is not this user's alone or holds no token, StorageError if it cannot be read.
    """
    if not path.exists():
        raise ParameterError(
            option, f"there is no file {path}", "write the join token into it, with mode 0600"
        )
    with storage_errors(path):
        state = path.stat()
        lines = path.read_text("utf-8", errors="replace").split("\n")
    if state.st_uid != os.geteuid() or stat.S_IMODE(state.st_mode) & 0o077:
        raise ParameterError(
            option,
            f"others may read {path} (mode {stat.S_IMODE(state.st_mode):04o})",
            f"it must be yours alone: chmod 600 {path}; have the token revoked if somebody has read it",
        )
    if not lines[0].strip():
        raise ParameterError(option, f"the first line of {path} is empty", "write the join token into it")
    return lines[0].strip()
