"""A verb's output: a rendering for people, or exactly one JSON document on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from rich.console import Console

from assay_client.visible_console import VisibleConsole
from assay_sampling.documents.base import plain

_WIDTH_OF_A_FILE = 120
_WORDS_OF_A_PIECE = 4096


def console(*, error: bool = False) -> Console:
    """A console that prints text unchanged: no markup, no emoji; colours only on a terminal."""
    stream = sys.stderr if error else sys.stdout
    on_terminal = stream.isatty()
    width = None if on_terminal or os.environ.get("COLUMNS") else _WIDTH_OF_A_FILE
    return VisibleConsole(
        file=stream,
        markup=False,
        emoji=False,
        highlight=False,
        no_color=None if on_terminal else True,
        width=width,
    )


def can_draw(console: Console) -> bool:
    """Whether it is a terminal that can show graphical characters."""
    return console.is_terminal and console.encoding.lower().startswith("utf")


def can_move(console: Console) -> bool:
    """Whether bars and spinners can be redrawn in place; false on ``TERM=dumb``."""
    return can_draw(console) and console.is_interactive


def show(document: Mapping[str, Any], as_json: bool, render: Callable[[Console], None]) -> None:
    """Print ``document`` as JSON, or let ``render`` draw it."""
    if as_json:
        write_json(document)
    else:
        render(console())


def write_json(document: Mapping[str, Any]) -> None:
    """Write one document and a line end to standard output."""
    sys.stdout.writelines(json_pieces(document))
    sys.stdout.flush()


def json_text(document: Mapping[str, Any]) -> str:
    """Strict JSON in ASCII: a number that is not finite becomes null."""
    return "".join(json_pieces(document))


def json_pieces(document: Mapping[str, Any]) -> Iterator[str]:
    """:func:`json_text` in pieces: the words of a million groups take gigabytes until they are joined."""
    words = json.JSONEncoder(indent=2, allow_nan=False).iterencode(plain(document))
    while piece := "".join(islice(words, _WORDS_OF_A_PIECE)):
        yield piece
    yield "\n"
