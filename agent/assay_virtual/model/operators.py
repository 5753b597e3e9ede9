"""The calls of operators that a process makes, with their input shapes and the launches of each.

They cost nothing: a call only says what its launches belong to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def none() -> Ints:
    """No calls."""
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class OperatorCalls:
    """Calls by their first launch, an outer one before those that it makes; arrays of shape (m,).

    ``first`` and ``last`` are ordinals of launches of the process, ``ordinal`` counts the calls from 0.
    ``name`` and ``input_shapes`` index ``texts`` (-1: unknown shapes); ``depth`` is that of the range.
    ``start_ns`` and ``end_ns`` are empty unless the process ran freely.
    """

    texts: tuple[str, ...] = ()
    ordinal: Ints = field(default_factory=none)
    name: Ints = field(default_factory=none)
    input_shapes: Ints = field(default_factory=none)
    first: Ints = field(default_factory=none)
    last: Ints = field(default_factory=none)
    depth: Ints = field(default_factory=none)
    thread: Ints = field(default_factory=none)
    start_ns: Ints = field(default_factory=none)
    end_ns: Ints = field(default_factory=none)

    def __len__(self) -> int:
        return len(self.ordinal)

    def take(self, rows: Ints) -> OperatorCalls:
        """Some of the calls, without times."""
        names = ("ordinal", "name", "input_shapes", "first", "last", "depth", "thread")
        return OperatorCalls(self.texts, **{name: getattr(self, name)[rows] for name in names})


@dataclass(frozen=True)
class CallsAlike:
    """Calls of one operator at one place of a program: ``shapes``, one text for each or none at all."""

    name: str
    shapes: list[str]
    first: Ints
    last: Ints
    depth: int
    thread: int


def in_order(parts: list[CallsAlike]) -> OperatorCalls:
    """All calls, counted in the order in which they begin."""
    if not any(len(part.first) for part in parts):
        return OperatorCalls()
    texts: dict[str, int] = {}

    def index(text: str) -> int:
        return texts.setdefault(text, len(texts))

    name, shapes, first, last, depth, thread = (
        np.concatenate(column)
        for column in zip(
            *(
                (
                    np.full(len(part.first), index(part.name)),
                    np.array([index(text) for text in part.shapes] or [-1] * len(part.first), np.int64),
                    part.first,
                    part.last,
                    np.full(len(part.first), part.depth),
                    np.full(len(part.first), part.thread),
                )
                for part in parts
            ),
            strict=True,
        )
    )
    calls = OperatorCalls(
        texts=tuple(texts), ordinal=name, name=name, input_shapes=shapes, first=first, last=last,
        depth=depth, thread=thread,
    ).take(np.lexsort((depth, first)))  # fmt: skip
    calls.ordinal[:] = np.arange(len(calls))
    return calls
