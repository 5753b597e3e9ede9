"""Operations: one call of an operator, library routine or range, whose launches are its parts.

The identity of an operation is what stays equal across GPUs, vendors and library versions: its name, its
input shapes and the thread that called it. A launch table keeps it as text, interned like every name
(column ``operation_id``), beside the ordinal of the call's first launch (column ``call``).

Source: docs/concepts.md, "Operations".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, get_args

from assay_sampling.errors import LaunchTableError

OperationKind = Literal["region", "operator", "routine", "range", "graph", "kernel"]
KINDS: tuple[OperationKind, ...] = get_args(OperationKind)


@dataclass(frozen=True)
class Operation:
    """The identity of an operation.

    ``kind``: a compiled region, an operator of a framework, a library routine, any other range, a replay of
    a graph, or a kernel outside of all of these. ``shapes`` is JSON of the input shapes, "" where unknown.
    ``thread`` is the ordinal of the calling thread in its process, by first launch.
    """

    kind: OperationKind
    name: str
    shapes: str = ""
    thread: int = 0

    def to_text(self) -> str:
        return json.dumps([self.kind, self.name, self.shapes, self.thread], separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Operation:
        """The identity back from :meth:`to_text`; raises LaunchTableError for any other text."""
        try:
            kind, name, shapes, thread = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise _not_an_operation(text) from error
        types = isinstance(name, str), isinstance(shapes, str), type(thread) is int
        if kind not in KINDS or not all(types) or thread < 0:
            raise _not_an_operation(text)
        return cls(kind, name, shapes, thread)

    def label(self) -> str:
        """The operation for people: name and input shapes."""
        return f"{self.name} {self.shapes}" if self.shapes else self.name


def _not_an_operation(text: str) -> LaunchTableError:
    return LaunchTableError(
        "launch table",
        f"the operation {text[:80]!r} is not of the form [kind, name, shapes, thread]",
        "read the recording again from the profiler's own file",
    )
