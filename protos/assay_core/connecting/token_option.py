"""The option ``--token`` of the verbs that join: from the command line, a variable, or standard input."""

from __future__ import annotations

import sys
from typing import Any

import typer

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
