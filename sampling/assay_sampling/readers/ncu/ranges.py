"""The NVTX push/pop ranges around each launch, as Nsight Compute gives them: names, outermost first.

A page has a cell such as ``123 "<default domain>:outer:none:none:none:none:none:none"``, which begins with
the thread; every quoted part is one range of the stack: domain, name (which may hold colons), and six fields
of payload. A report's package gives the names domain by domain, and no thread.

Source: docs/reading-recordings.md, "Raw pages".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_QUOTED = re.compile(r'"([^"]*)"')
_THREAD = re.compile(r"\s*(\d+)")


@dataclass(frozen=True)
class Stack:
    """Names of ranges, outermost first, and the thread, "" if unknown."""

    names: tuple[str, ...] = ()
    thread: str = ""

    @property
    def path(self) -> str:
        """The names joined by "/"."""
        return "/".join(self.names)


@dataclass(frozen=True)
class Stacks:
    """Stacks of launches: ``index`` into ``distinct``, shape (n,), -1 for a launch outside of ranges.

    ``unread`` counts launches whose ranges have an unknown form.
    """

    distinct: list[Stack]
    index: np.ndarray
    unread: int = 0


def stacks_of_cells(texts: pa.Array) -> Stacks:
    """The stacks in the cells of a page."""
    return _stacks(texts, _of_cell)


def stacks_of_lists(texts: pa.Array) -> Stacks:
    """The stacks in JSON lists of names, "" for none."""
    return _stacks(texts, lambda text: Stack(tuple(json.loads(text))))


def _of_cell(text: str) -> Stack:
    names = []
    for part in _QUOTED.findall(text):
        pieces = part.rsplit(":", 6)
        _domain, colon, name = pieces[0].partition(":")
        if len(pieces) != 7 or not colon:
            return Stack()
        names.append(name)
    thread = _THREAD.match(text)
    return Stack(tuple(names), thread[1] if thread else "")


def _stacks(texts: pa.Array, parse: Callable[[str], Stack]) -> Stacks:
    encoded = texts.dictionary_encode()
    distinct: list[Stack] = []
    of_text, unread = [], []
    for text in encoded.dictionary.to_pylist():
        stack = parse(text) if text.strip() else Stack()
        unread.append(bool(text.strip()) and not stack.path)
        of_text.append(len(distinct) if stack.path else -1)
        if stack.path:
            distinct.append(stack)
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    wrong = int(np.array(unread, bool)[indices].sum())
    return Stacks(distinct, np.array(of_text, np.int64)[indices], wrong)
