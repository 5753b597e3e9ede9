"""The rows of many events at once; refuses events that are not of the plainest kind, which are then read one
by one. What the values mean: :mod:`assay_sampling.readers.kineto.trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

KERNELS = frozenset({"kernel", "Kernel"})
CALLS = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"})
OPERATORS = frozenset({"cpu_op", "Operator"})
ANNOTATIONS = frozenset({"user_annotation"})
_GROUPS = (KERNELS, CALLS, OPERATORS, ANNOTATIONS)

MOST_MICROSECONDS = 4 * 10**15
# Below it floats lie closer together than ns.
MOST_FLOAT_MICROSECONDS = 8 * 10**12
INT32, INT64 = 2**31 - 1, 2**63 - 1
_UNKNOWN_SIZES = (-1, -1, -1)
_Events = Sequence[dict[str, Any]]


class NotPlainError(Exception):
    """The events must be read one by one."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of names, threads (pid, tid) and dimensions of inputs; ``of_*`` gives new ones, in the
    order of the events."""

    of_name: Callable[[str], int]
    of_thread: Callable[[int | str, int | str], int]
    of_dims: Callable[[Any], int]
    names: dict[str, int] = field(default_factory=dict)
    threads: dict[tuple[int | str, int | str], int] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)

    def meet(self, events: _Events) -> None:
        """Number the names and threads of events that are new."""
        named = [event for event in events if event["cat"] not in CALLS and event["name"] not in self.names]
        for event in named:
            _only({str}, [event["name"]])
            self.names[event["name"]] = self.of_name(event["name"])
        calling = ((event["pid"], event["tid"]) for event in events if event["cat"] not in KERNELS)
        for thread in dict.fromkeys(calling):
            if thread not in self.threads:
                _only({int, str}, thread)
                self.threads[thread] = self.of_thread(*thread)


@dataclass(frozen=True)
class Rows:
    """Columns of the trace's tables in their order, of shape (n,) or (n, c) each."""

    kernels: list[np.ndarray]
    calls: list[np.ndarray]
    operators: list[np.ndarray]
    annotations: list[np.ndarray]


def rows_at_once(events: Sequence[Any], categories: Set[str], numbers: Numbers) -> Rows:
    """The rows of the events of ``categories``. Raises NotPlainError, having at most numbered what is new."""
    groups = [list[dict[str, Any]]() for _ in _GROUPS]
    group_of = {
        category: group
        for group, members in zip(groups, _GROUPS, strict=True)
        for category in members & categories
    }
    try:
        wanted = [event for event in events if event.get("cat") in group_of and event.get("ph") == "X"]
        for event in wanted:
            group_of[event["cat"]].append(event)
        kernels, calls, operators, annotations = groups
        correlations = _argument(_arguments(calls), "correlation")
        if len(correlations) and correlations.min() < 0:
            raise NotPlainError
        numbers.meet(wanted)
        return Rows(
            _kernel_columns(kernels, numbers),
            _call_columns(calls, correlations, numbers),
            _operator_columns(operators, numbers),
            _range_columns(annotations, numbers),
        )
    # A field is missing, or something is not of the type that it should be.
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise NotPlainError from error


def _kernel_columns(kernels: _Events, numbers: Numbers) -> list[np.ndarray]:
    names, starts, durations = _fields(kernels, "name", "ts", "dur")
    args, duration = _arguments(kernels), _times(durations)
    if len(duration) and duration.min() < 0:
        raise NotPlainError
    device = _argument(args, "device")
    streams = [arg.get("stream", kernel.get("tid")) for arg, kernel in zip(args, kernels, strict=True)]
    return [
        _times(starts),
        duration,
        _numbered(numbers.names, _only({str}, names)),
        np.where((device >= -1) & (device <= INT32), device, -1),
        _whole_numbers(streams),
        _argument(args, "correlation"),
        _external(args),
        *(_sizes([arg.get(field, _UNKNOWN_SIZES) for arg in args]) for field in ("grid", "block")),
        np.minimum(_argument(args, "registers per thread"), INT32),
        _argument(args, "shared memory"),
        _argument(args, "graph node id", 0),
    ]


def _call_columns(calls: _Events, correlations: np.ndarray, numbers: Numbers) -> list[np.ndarray]:
    names, starts = _fields(calls, "name", "ts")
    graph = ["GraphLaunch" in name for name in _only({str}, names)]
    return [_times(starts), correlations, _threads(calls, numbers), np.array(graph, np.int64)]


def _operator_columns(operators: _Events, numbers: Numbers) -> list[np.ndarray]:
    start, end, thread, name = _range_columns(operators, numbers)
    args = _arguments(operators)
    dims = [arg.get("Input Dims", arg.get("Input dims")) for arg in args]
    texts = list(map(repr, dims))
    for text, each in zip(texts, dims, strict=True):
        if text not in numbers.dims:
            numbers.dims[text] = -1 if each is None else numbers.of_dims(each)
    return [start, end, _external(args), thread, name, _numbered(numbers.dims, texts)]


def _range_columns(ranges: _Events, numbers: Numbers) -> list[np.ndarray]:
    names, starts, durations = _fields(ranges, "name", "ts", "dur")
    start = _times(starts)
    name = _numbered(numbers.names, _only({str}, names))
    return [start, start + _times(durations), _threads(ranges, numbers), name]


def _threads(events: _Events, numbers: Numbers) -> np.ndarray:
    processes, threads = _fields(events, "pid", "tid")
    _only({int, str}, list(chain(processes, threads)))
    return _numbered(numbers.threads, list(zip(processes, threads, strict=True)))


def _fields(events: _Events, *names: str) -> Sequence[Sequence[Any]]:
    return list(zip(*map(itemgetter(*names), events), strict=True)) or [()] * len(names)


def _numbered(numbers: Mapping[Any, int], values: Sequence[Any]) -> np.ndarray:
    return np.array([numbers[value] for value in values], np.int64)


def _arguments(events: _Events) -> _Events:
    return _only({dict}, [event["args"] for event in events])


def _argument(args: _Events, name: str, default: int = -1) -> np.ndarray:
    return _whole_numbers([arg.get(name, default) for arg in args])


def _external(args: _Events) -> np.ndarray:
    return _whole_numbers([arg.get("External id", arg.get("external id", -1)) for arg in args])


def _only(kinds: set[type], values: Sequence[Any]) -> Sequence[Any]:
    """The values. Raises NotPlainError if one is of another type, such as True for 1."""
    if set(map(type, values)) - kinds:
        raise NotPlainError
    return values


def _whole_numbers(values: Sequence[Any]) -> np.ndarray:
    """Whole numbers, shape (n,), int64."""
    numbers = np.array(_only({int}, values), np.int64)
    if len(numbers) and numbers.min() < -INT64:
        raise NotPlainError
    return numbers


def _times(values: Sequence[Any]) -> np.ndarray:
    """Microseconds as ns, shape (n,), int64; refuses those of which a digit might get lost."""
    if not set(map(type, values)) - {int}:
        numbers = _whole_numbers(values)
        if len(numbers) and np.abs(numbers).max() > MOST_MICROSECONDS:
            raise NotPlainError
        return numbers * 1000
    times = np.array(_only({int, float}, values), np.float64)
    times_ns = np.rint(times * 1000)
    if not (np.abs(times) <= MOST_FLOAT_MICROSECONDS).all() or not np.array_equal(times_ns / 1000, times):
        raise NotPlainError
    return times_ns.astype(np.int64)


def _sizes(values: Sequence[Any]) -> np.ndarray:
    """Sizes in three directions, shape (n, 3), int64; -1 where they are unknown."""
    if set(map(len, _only({list, tuple}, values))) - {3}:
        raise NotPlainError
    numbers = _whole_numbers(list(chain.from_iterable(values))).reshape(-1, 3)
    wrong = np.flatnonzero(((numbers < 1) | (numbers > INT32)).any(axis=1))
    if any(values[row] is not _UNKNOWN_SIZES for row in wrong.tolist()):
        raise NotPlainError
    return numbers
