"""Values of Arrow columns as NumPy arrays and back, without pandas.

``Array.to_numpy`` and ``pyarrow.array`` import pandas wherever it is installed, although they do not need it:
0.2 s of CPU and 40 MiB in a daemon that only moves launches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

# Arrow's own pool fetches 2 MiB from the kernel for every size of a buffer that it meets first.
SYSTEM_POOL = pa.system_memory_pool()


def values_of(column: pa.Array) -> np.ndarray:
    """The values of a column of numbers without nulls, in its own memory, read-only."""
    if not len(column):
        return np.empty(0, column.type.to_pandas_dtype())
    return np.from_dlpack(column)


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values in order; ``numpy.unique`` would load masked arrays, which nobody needs here."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    distinct_values: np.ndarray = ordered[first]
    return distinct_values


def identifiers_from(values: Sequence[int]) -> pa.Array:
    """An Arrow column of uint64."""
    return pa.UInt64Array.from_buffers(
        pa.uint64(), len(values), [None, pa.py_buffer(np.array(values, np.uint64))]
    )


def texts_from(texts: Sequence[str]) -> pa.Array:
    """An Arrow column of large strings."""
    encoded = [text.encode() for text in texts]
    ends = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=ends[1:])
    return pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
