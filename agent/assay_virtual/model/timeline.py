"""When launches of a free-running process are called, start and end, and its NVTX ranges.

The processor makes one API call after another; a launch starts when its call has arrived, the previous launch
of its stream has ended, and, if it fills the GPU (at least one wave), the last launch that filled the GPU has
ended too. Smaller launches of other streams overlap it. Processes have one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from assay_virtual.model.operators import OperatorCalls, none
from assay_virtual.model.randomness import uniform
from assay_virtual.model.sequence import Sequence

Ints = NDArray[np.int64]

CALL_DURATION_NS = 1500
_CALL_TO_START_NS = 2600
_STREAM_GAP_NS = 700
_NODE_GAP_NS = 300
_QUEUE_LAUNCHES = 1024
_RANGE_MARGIN_NS = 90
_LEAST_MARGIN_NS = 45


@dataclass(frozen=True)
class NvtxRanges:
    """Push/pop ranges of a process: ``text`` indexes ``texts``, times in ns, ``depth`` from 1, ``thread`` of
    the process; shape (r,)."""

    texts: tuple[str, ...] = ()
    text: Ints = field(default_factory=none)
    start_ns: Ints = field(default_factory=none)
    end_ns: Ints = field(default_factory=none)
    depth: Ints = field(default_factory=none)
    thread: Ints = field(default_factory=none)


def timeline(
    sequence: Sequence,
    duration_ns: Ints,
    fills: NDArray[np.bool_],
    *,
    begin_ns: int,
    interval_ns: int,
    key: np.uint64,
) -> tuple[Ints, Ints]:
    """Begin of the API call and of the execution of each launch in ns, shape (n,) each.

    Args:
        sequence: all launches of the process up to the last one wanted.
        duration_ns: shape (n,).
        fills: whether a launch has at least one wave, shape (n,).
        begin_ns: when the process starts.
        interval_ns: between two API calls, at least; randomly up to 40 % more.
        key: of these random numbers.
    """
    n = len(sequence)
    new_call = np.diff(sequence.call, prepend=-1) != 0
    jitter = uniform(key, np.arange(n)) * (interval_ns * 0.4)
    before_ns = np.rint(interval_ns + jitter).astype(np.int64) + sequence.host_ns
    now, latest_end, filled_until, previous_start = begin_ns, 0, 0, 0
    stream_free: dict[int, int] = {}
    called, started = [0] * n, [0] * n
    columns = zip(new_call.tolist(), before_ns.tolist(), sequence.wait.tolist(), sequence.stream.tolist(),
                  duration_ns.tolist(), fills.tolist(), strict=True)  # fmt: skip
    for row, (new, before, wait, stream, duration, fill) in enumerate(columns):
        gap = _STREAM_GAP_NS
        if new:
            if wait and latest_end > now:
                now = latest_end
            if row >= _QUEUE_LAUNCHES and started[row - _QUEUE_LAUNCHES] > now:
                now = started[row - _QUEUE_LAUNCHES]
            now += before
            start = now + _CALL_TO_START_NS
        else:
            gap = _NODE_GAP_NS
            start = previous_start + 1  # nodes of a graph start in their order
        free = stream_free.get(stream, 0) + gap
        start = max(start, free, filled_until if fill else 0)
        end = stream_free[stream] = start + duration
        if fill:
            filled_until = end
        latest_end = max(latest_end, end)
        called[row], started[row], previous_start = now, start, start
    return np.array(called, np.int64), np.array(started, np.int64)


def nvtx_ranges(sequence: Sequence, call_ns: Ints, first_launch: int) -> NvtxRanges:
    """The ranges of all iterations of named loops that end at ``first_launch`` or later, by start."""
    texts = tuple(dict.fromkeys(span.text for span in sequence.spans))
    parts: list[tuple[Ints, ...]] = []
    for span in sequence.spans:
        kept = span.last >= first_launch
        depth = np.full(int(kept.sum()), span.depth)
        start, end = _around(call_ns, span.first[kept], span.last[kept], depth)
        constant = np.full(len(start), texts.index(span.text)), np.full(len(start), span.thread)
        parts.append((constant[0], start, end, depth, constant[1]))
    if not parts:
        return NvtxRanges()
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.lexsort((columns[3], columns[1]))
    return NvtxRanges(texts, *(column[order] for column in columns))


def timed_operators(sequence: Sequence, call_ns: Ints, first_launch: int) -> OperatorCalls:
    """The calls of operators that end at ``first_launch`` or later, with their times."""
    calls = sequence.operators.take(np.flatnonzero(sequence.operators.last >= first_launch))
    start, end = _around(call_ns, calls.first, calls.last, calls.depth)
    return replace(calls, start_ns=start, end_ns=end)


def _around(call_ns: Ints, first: Ints, last: Ints, depth: Ints) -> tuple[Ints, Ints]:
    """When ranges around launches begin and end: an inner one later and earlier than those around it."""
    margin = np.maximum(_RANGE_MARGIN_NS * (9 - depth), _LEAST_MARGIN_NS)
    return call_ns[first] - margin, call_ns[last] + CALL_DURATION_NS + margin
