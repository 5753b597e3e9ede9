"""The L2 cache's content between launches: named buffers, least recently used first, with dirty bytes.

A launch touches a share of each of its buffers, from the beginning. The resident part of that share hits; the
rest is read from device memory. Then those buffers are the most recently used, and the least recently used
are evicted, byte by byte, until all fit; their dirty bytes are written to device memory in this launch. A
buffer that is completely overwritten is not read first.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Touched = tuple[tuple[int, ...], list[int], list[int]]  # buffers, bytes read of each, bytes written of each


def walk(
    launches: Iterable[Touched], capacity_bytes: int, *, flushed: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes that each launch, in order, misses and writes back because of what was resident before it.

    ``flushed`` empties the cache before each launch. Returns two arrays of shape (n,).
    """
    held: dict[int, list[int]] = {}  # buffer -> resident bytes, dirty bytes; the oldest first
    total = 0
    missed, written_back = [], []
    for buffers, reads, writes in launches:
        if flushed:
            held, total = {}, 0
        missing = 0
        for buffer, read, write in zip(buffers, reads, writes, strict=True):
            entry = held.pop(buffer, None)
            resident, dirty = entry if entry else (0, 0)
            if read > resident:
                missing += read - resident
            touched = read if read > write else write
            if touched > resident:
                total += touched - resident
                resident = touched
            held[buffer] = [resident, dirty if dirty > write else write]
        missed.append(missing)
        written = 0
        while total > capacity_bytes:
            oldest, (resident, dirty) = next(iter(held.items()))
            evicted = min(total - capacity_bytes, resident)
            cleaned = dirty * evicted // resident if resident else 0
            if evicted < resident:
                held[oldest] = [resident - evicted, dirty - cleaned]
            else:
                del held[oldest]
            total -= evicted
            written += cleaned
        written_back.append(written)
    return np.array(missed, np.float64), np.array(written_back, np.float64)
