"""Names of many ranges: which distinct ones there are, and which range of a stack is the operation.

Profilers number the calls of operators in the names of their ranges (``seq``, ``op_id``), so nearly all
texts differ; without the numbers few do.

Source: docs/concepts.md, "Operations".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.readers.operation_calls import RangeKind, RangeName, range_name

_SERIAL = r", ?(seq|op_id) = -?\d+"
_INPUTS = r", ?input_op_ids = \[[^\]]*\]"


def distinct_names(texts: Sequence[str]) -> tuple[list[RangeName], np.ndarray]:
    """The distinct names of ranges, and the index into them of each text, shape (n,)."""
    # A number stays in place of every number: that the text is annotated tells operators from other ranges.
    numbered = pc.replace_substring_regex(pa.array(texts, pa.large_string()), _SERIAL, r", \1 = 0")
    plain = pc.replace_substring_regex(numbered, _INPUTS, "").dictionary_encode()
    position: dict[RangeName, int] = {}
    of_plain = [position.setdefault(range_name(text), len(position)) for text in plain.dictionary.to_pylist()]
    return list(position), np.array(of_plain, np.int64)[plain.indices.to_numpy()]


def has_serial_number(text: str) -> bool:
    """Whether the name of a range says which call it is."""
    return re.search(_SERIAL, text) is not None


def without_serial_numbers(path: str) -> str:
    """A path of ranges without the numbers that tell the calls of one operator apart."""
    return re.sub(f"{_SERIAL}|{_INPUTS}", "", path)


def operation_of(stack: Sequence[RangeName]) -> int:
    """The position of the range that is the operation in a stack, outermost first; -1 for an empty one.

    The outermost of the kind that comes first; of other ranges the innermost.
    """
    kinds = [name.kind for name in stack]
    if not kinds:
        return -1
    least = min(kinds)
    return kinds.index(least) if least < RangeKind.RANGE else len(kinds) - 1
