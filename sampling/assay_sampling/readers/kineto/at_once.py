"""The rows of many events at once, by Arrow's JSON reader; refuses events that are not of the plainest kind,
which are then read one by one. What the values mean: :mod:`assay_sampling.readers.kineto.trace`.

Arrow reads objects that stand one after the other, and makes only the columns that are asked for
(:mod:`assay_sampling.readers.kineto.skipping` writes its text). Dimensions of inputs are lists of any depth,
which no column can hold, so they become texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from assay_sampling.arrays import SYSTEM_POOL
from assay_sampling.readers.kineto.skipping import Objects, wanted_events

KERNELS = frozenset({"kernel", "Kernel"})
CALLS = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "hip_runtime"})
OPERATORS = frozenset({"cpu_op", "Operator"})
ANNOTATIONS = frozenset({"user_annotation"})

MOST_MICROSECONDS = 4 * 10**15
# Below it floats lie closer together than ns.
MOST_FLOAT_MICROSECONDS = 8 * 10**12
INT32, INT64 = 2**31 - 1, 2**63 - 1

_DIMS = re.compile(rb'("Input [Dd]ims": ?)(\[[-0-9,\[\] \t\n\r]*\])')
_LINE_AS_SPACE = bytes.maketrans(b"\t\n\r", b"   ")
# Microseconds with three decimals, whose digits are those of ns.
_TIME = pa.decimal128(25, 3)
_SIZES = pa.list_(pa.int64())
_EVENT = (
    ("ph", pa.string()),
    ("cat", pa.string()),
    ("name", pa.string()),
    ("pid", pa.int64()),
    ("tid", pa.int64()),
    ("ts", _TIME),
    ("dur", _TIME),
)
_ARGUMENTS = (("correlation", pa.int64()), ("External id", pa.int64()), ("external id", pa.int64()))
_KERNEL_ARGUMENTS = (
    ("device", pa.int64()),
    ("stream", pa.int64()),
    ("grid", _SIZES),
    ("block", _SIZES),
    ("registers per thread", pa.int64()),
    ("shared memory", pa.int64()),
    ("graph node id", pa.int64()),
)
_OPERATOR_ARGUMENTS = (("Input Dims", pa.string()), ("Input dims", pa.string()))


class NotPlainError(Exception):
    """The events must be read one by one."""


@dataclass(frozen=True)
class Numbers:
    """Gives new names, threads (pid, tid) and dimensions of inputs their numbers; keeps those of the texts of
    dimensions."""

    of_name: Callable[[str], int]
    of_thread: Callable[[int | str, int | str], int]
    of_dims: Callable[[Any], int]
    dims: dict[str, int] = field(default_factory=dict)

    def of_dims_text(self, text: str) -> int:
        if text not in self.dims:
            self.dims[text] = self.of_dims(json.loads(text))
        return self.dims[text]


@dataclass(frozen=True)
class Rows:
    """Columns of the trace's tables in their order, of shape (n,) or (n, c) each, none where there are no
    operators; and how many events of any kind there were."""

    events: int
    kernels: list[np.ndarray]
    calls: list[np.ndarray]
    operators: list[np.ndarray]
    annotations: list[np.ndarray]


def rows_at_once(text: bytes, categories: Set[str], numbers: Numbers) -> Rows:
    """The rows of the events of ``categories`` in ``text``, objects with commas between them. Raises
    NotPlainError, having at most numbered what is new."""
    candidates = wanted_events(text, categories)
    try:
        events = _table(candidates, operators=not OPERATORS.isdisjoint(categories))
        others = events.drop_columns([f"args.{name}" for name, _ in _KERNEL_ARGUMENTS])
        kernels = _of_categories(events, KERNELS & categories)
        calls, operators, annotations = (
            _of_categories(others, group & categories) for group in (CALLS, OPERATORS, ANNOTATIONS)
        )
        return Rows(
            candidates.count + candidates.left_out,
            _kernel_columns(kernels, numbers),
            _call_columns(calls, numbers),
            _operator_columns(operators, numbers) if len(operators) else [],
            _range_columns(annotations, numbers),
        )
    except (pa.ArrowException, RecursionError, ValueError) as error:
        raise NotPlainError from error


def _table(events: Objects, *, operators: bool) -> pa.Table:
    arguments = (*_ARGUMENTS, *_KERNEL_ARGUMENTS, *(_OPERATOR_ARGUMENTS if operators else ()))
    schema = pa.schema([*_EVENT, ("args", pa.struct(arguments))])
    if not events.count:
        return schema.empty_table().flatten()
    text = _DIMS.sub(_dims_as_text, events.text) if operators else events.text
    table = pa.json.read_json(
        pa.BufferReader(text),
        pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        memory_pool=SYSTEM_POOL,
    )
    if table.num_rows != events.count:  # a comma is missing
        raise NotPlainError
    return table.flatten()


def _of_categories(events: pa.Table, categories: Set[str]) -> pa.Table:
    of_category = pc.is_in(events["cat"], pa.array(sorted(categories), pa.string()))
    return events.filter(pc.and_(pc.equal(events["ph"], "X"), of_category))


def _dims_as_text(match: re.Match[bytes]) -> bytes:
    return b'%b"%b"' % (match[1], match[2].translate(_LINE_AS_SPACE))


def _kernel_columns(kernels: pa.Table, numbers: Numbers) -> list[np.ndarray]:
    duration, device = _times(kernels["dur"]), _argument(kernels, "device")
    stream = kernels["args.stream"]
    if stream.null_count or (len(duration) and duration.min() < 0):
        raise NotPlainError
    return [
        _times(kernels["ts"]),
        duration,
        _names(kernels, numbers),
        np.where((device >= -1) & (device <= INT32), device, -1),
        _whole_numbers(stream),
        _argument(kernels, "correlation"),
        _external(kernels),
        *(_sizes(kernels[f"args.{name}"]) for name in ("grid", "block")),
        np.minimum(_argument(kernels, "registers per thread"), INT32),
        _argument(kernels, "shared memory"),
        _argument(kernels, "graph node id", 0),
    ]


def _call_columns(calls: pa.Table, numbers: Numbers) -> list[np.ndarray]:
    calls = calls.filter(pc.greater_equal(calls["args.correlation"], 0))
    graph = pc.fill_null(pc.match_substring(calls["name"], "GraphLaunch"), fill_value=False)
    return [
        _times(calls["ts"]),
        _argument(calls, "correlation"),
        _threads(calls, numbers),
        _whole_numbers(graph.cast(pa.int64())),
    ]


def _operator_columns(operators: pa.Table, numbers: Numbers) -> list[np.ndarray]:
    start, end, thread, name = _range_columns(operators, numbers)
    dims = _either(operators, "Input Dims", "Input dims")
    return [start, end, _external(operators), thread, name, _numbered(dims, numbers.of_dims_text)]


def _range_columns(ranges: pa.Table, numbers: Numbers) -> list[np.ndarray]:
    start = _times(ranges["ts"])
    return [start, start + _times(ranges["dur"]), _threads(ranges, numbers), _names(ranges, numbers)]


def _threads(events: pa.Table, numbers: Numbers) -> np.ndarray:
    pid, tid = (_present(events[name]) for name in ("pid", "tid"))
    # Calls of a thread mostly stand together, and each such run is looked up once.
    changes = (pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1])
    starts = np.append(np.zeros(min(len(pid), 1), np.int64), np.flatnonzero(changes) + 1)
    threads = zip(pid[starts].tolist(), tid[starts].tolist(), strict=True)
    of_run = np.array([numbers.of_thread(*thread) for thread in threads], np.int64)
    of_event: np.ndarray = np.repeat(of_run, np.diff(starts, append=len(pid)))
    return of_event


def _names(events: pa.Table, numbers: Numbers) -> np.ndarray:
    if events["name"].null_count:
        raise NotPlainError
    return _numbered(events["name"], numbers.of_name)


def _numbered(texts: pa.ChunkedArray, number: Callable[[str], int]) -> np.ndarray:
    """The number of each text, shape (n,), -1 where there is none."""
    encoded = texts.combine_chunks().dictionary_encode()
    of_text = np.array([*map(number, encoded.dictionary.to_pylist()), -1], np.int64)
    numbers: np.ndarray = of_text[_whole_numbers(encoded.indices)]
    return numbers


def _either(events: pa.Table, name: str, other: str) -> pa.ChunkedArray:
    """An argument that some releases write in another way, and none in both."""
    usual, unusual = events[f"args.{name}"], events[f"args.{other}"]
    if unusual.null_count == len(unusual):
        return usual
    if usual.null_count < len(usual):
        raise NotPlainError
    return unusual


def _external(events: pa.Table) -> np.ndarray:
    return _whole_numbers(_either(events, "External id", "external id"))


def _argument(events: pa.Table, name: str, default: int = -1) -> np.ndarray:
    return _whole_numbers(events[f"args.{name}"], default)


def _present(values: pa.ChunkedArray) -> np.ndarray:
    if values.null_count:
        raise NotPlainError
    return _whole_numbers(values)


def _whole_numbers(values: pa.ChunkedArray | pa.Array, default: int = -1) -> np.ndarray:
    """Whole numbers, shape (n,), int64, ``default`` where there is none."""
    numbers: np.ndarray = pc.fill_null(values, default).to_numpy()
    if len(numbers) and numbers.min() < -INT64:
        raise NotPlainError
    return numbers


def _times(values: pa.ChunkedArray) -> np.ndarray:
    """Microseconds as ns, shape (n,), int64."""
    if values.null_count:
        raise NotPlainError
    if not len(values):
        return np.zeros(0, np.int64)
    times = values.combine_chunks()
    low_and_high = np.frombuffer(times.buffers()[1], np.int64).reshape(-1, 2)
    low: np.ndarray
    low, high = low_and_high[times.offset : times.offset + len(times)].T
    most = MOST_MICROSECONDS * 1000
    if (high != low >> 63).any() or low.min() < -most or low.max() > most:
        raise NotPlainError
    return low


def _sizes(values: pa.ChunkedArray) -> np.ndarray:
    """Sizes in three directions, shape (n, 3), int64; -1 where they are unknown."""
    sizes = np.full((len(values), 3), -1, np.int64)
    valid = values.is_valid().to_numpy()
    if (pc.list_value_length(values.drop_null()).to_numpy() != 3).any():
        raise NotPlainError
    numbers = _present(pc.list_flatten(values)).reshape(-1, 3)
    if ((numbers < 1) | (numbers > INT32)).any():
        raise NotPlainError
    sizes[valid] = numbers
    return sizes
