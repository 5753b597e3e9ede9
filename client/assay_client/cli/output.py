"""Where a verb's result goes: a rendering for people, or exactly one JSON document on standard output."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

_WIDTH_OF_A_FILE = 120
_WORDS_OF_A_PIECE = 4096


def console(*, error: bool = False) -> Console:
    """A console that takes text as it is: no markup, no emoji; no colours where nobody looks on."""
    stream = sys.stderr if error else sys.stdout
    on_terminal = stream.isatty()
    width = None if on_terminal or os.environ.get("COLUMNS") else _WIDTH_OF_A_FILE
    return Console(
        file=stream,
        markup=False,
        emoji=False,
        highlight=False,
        no_color=None if on_terminal else True,
        width=width,
    )


def can_draw(console: Console) -> bool:
    """Whether it is a terminal whose characters suffice for what is more than text."""
    return console.is_terminal and console.encoding.lower().startswith("utf")


def can_move(console: Console) -> bool:
    """Whether bars and spinners can be drawn again in place: not on ``TERM=dumb``."""
    return can_draw(console) and console.is_interactive


def show(document: Mapping[str, Any], as_json: bool, render: Callable[[Console], None]) -> None:
    """Print ``document`` as JSON, or let ``render`` draw it."""
    if as_json:
        write_json(document)
    else:
        render(console())


def write_json(document: Mapping[str, Any]) -> None:
    """Exactly one document and a line end, to standard output."""
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


def plain(value: Any) -> Any:
    """``value`` as what JSON knows: NumPy scalars and arrays, tuples and paths become plain values."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return value
