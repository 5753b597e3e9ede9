"""What every verb's parser is made from."""

from __future__ import annotations

import typer


def verb_app() -> typer.Typer:
    """A parser for one verb: plain help, no completion of its own, errors left to ``main``."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
