"""What becomes of memory that a worker of Dask frees."""

from __future__ import annotations

import contextlib
import ctypes
import os
from functools import cache

_VARIABLE, _SET_BY_NANNY = "MALLOC_TRIM_THRESHOLD_", "65536"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MAPPED_FROM_BYTES = 32 << 20  # the most that glibc allows


@cache
def keep_freed_memory() -> None:
    """Undo what Dask's nanny does to the memory of its workers, unless a person chose another value.

    With it, glibc gives every array back to the system when it is freed, and fetches it page by page when the
    next one is made: a third of an analysis' CPU. These are the limits that glibc comes to by itself in a
    process of the server. Source: distributed.dask.org, "Worker Memory Management"; mallopt(3).
    """
    if os.environ.get(_VARIABLE) != _SET_BY_NANNY:
        return
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        set_limit = ctypes.CDLL(None).mallopt
        set_limit(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        set_limit(_M_TRIM_THRESHOLD, 2 * _MAPPED_FROM_BYTES)
