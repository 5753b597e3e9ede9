"""What the L2 cache holds between launches: named buffers, least recently used first, with dirty bytes.

A launch touches a share of each buffer from its beginning. What is resident of that share hits; the rest
is read from device memory. Then the buffer is the most recently used, and the least recently used are
evicted until all fits; their dirty bytes are written to device memory in this launch. All numbers are
whole bytes, so that the states of a loop recur exactly and each transition is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Touch = tuple[int, int, int]  # buffer, bytes read, bytes written
_State = tuple[tuple[int, int, int], ...]  # buffer, resident bytes, dirty bytes; oldest first
_REMEMBERED = 50_000


def walk(
    touches: Sequence[tuple[Touch, ...]], order: NDArray[np.int64], capacity_bytes: int, *, flushed: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bytes that each launch reads from and writes to device memory because of its first touches.

    Args:
        touches: what each distinct launch touches.
        order: index into ``touches`` for each launch, shape (n,).
        capacity_bytes: of the cache.
        flushed: whether the cache is emptied before each launch.

    Returns: bytes missed and bytes written back, each of shape (n,).
    """
    if flushed:
        each = [_step((), touch, capacity_bytes) for touch in touches]
        missed = np.array([step[1] for step in each], np.int64)
        written = np.array([step[2] for step in each], np.int64)
        return missed[order], written[order]
    known: dict[tuple[_State, int], tuple[_State, int, int]] = {}
    state: _State = ()
    missed_bytes, written_bytes = [], []
    for distinct in order.tolist():
        at = (state, distinct)
        step = known.get(at)
        if step is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            step = known[at] = _step(state, touches[distinct], capacity_bytes)
        state, missed, written = step
        missed_bytes.append(missed)
        written_bytes.append(written)
    return np.array(missed_bytes, np.int64), np.array(written_bytes, np.int64)


def _step(state: _State, touches: tuple[Touch, ...], capacity: int) -> tuple[_State, int, int]:
    """The state after a launch, the bytes it missed and the dirty bytes it evicted."""
    if not touches:
        return state, 0, 0
    held = {buffer: (resident, dirty) for buffer, resident, dirty in state}
    missed = 0
    for buffer, read, write in touches:
        resident, dirty = held.pop(buffer, (0, 0))
        missed += max(0, read - resident)
        held[buffer] = (max(resident, read, write), max(dirty, write))
    excess = sum(resident for resident, _ in held.values()) - capacity
    written = 0
    for buffer in list(held):
        if excess <= 0:
            break
        resident, dirty = held.pop(buffer)
        evicted = min(excess, resident)
        cleaned = dirty * evicted // resident if resident else 0
        excess -= evicted
        written += cleaned
        if evicted < resident:
            # What is left of an evicted buffer stays the oldest.
            held = {buffer: (resident - evicted, dirty - cleaned), **held}
    return tuple((buffer, *bytes_) for buffer, bytes_ in held.items()), missed, written
