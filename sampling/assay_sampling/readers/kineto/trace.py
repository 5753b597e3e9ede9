"""Reads the launches of a Kineto trace, with their calls, operators and annotations, into compact columns.

Keeps only a few numbers of each event: 128 bytes for a kernel, 32 for a runtime call, 48 for an operator,
32 for an annotation, nothing for all others; each distinct text once.

``ts`` and ``dur`` are microseconds, whole or with fractions; they are converted to ns exactly, from their
decimal digits: a float stands for digits of ns where one number of ns alone gives it. Where one does not, and
where something is wrong, the trace is read again with Decimal fractions. ``displayTimeUnit`` is only a hint
for viewers.

Source: docs/reading-recordings.md, "Kineto traces".
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from assay_sampling.errors import InputError, LaunchTableError
from assay_sampling.launches.table import Device, check_name
from assay_sampling.readers.doubles import doubled_rows
from assay_sampling.readers.kineto.at_once import (
    ANNOTATIONS,
    CALLS,
    INT32,
    INT64,
    KERNELS,
    MOST_FLOAT_MICROSECONDS,
    MOST_MICROSECONDS,
    OPERATORS,
    NotPlainError,
    Numbers,
    rows_at_once,
)
from assay_sampling.readers.kineto.json_events import JsonEvents

_FRACTION = re.compile(r"[.eNI]")
_MOST_NAME_CHARACTERS = 1000
_MEND = "the trace is damaged; record it again"


class _NotExactError(Exception):
    """The trace must be read with exact fractions."""


class Texts:
    """Distinct texts in order of first use."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def index(self, text: str) -> int:
        return self._index.setdefault(text, len(self._index))

    def to_list(self) -> list[str]:
        return list(self._index)


class Columns:
    """Growing rows of whole numbers, 8 bytes each; ``names`` are the columns."""

    def __init__(self, *names: str) -> None:
        self._position = {name: index for index, name in enumerate(names)}
        self._values = array("q")
        self.append_row = self._values.extend

    def append_rows(self, *columns: np.ndarray) -> None:
        """Append n rows; the columns, shape (n,) or (n, c) each, stand side by side."""
        self._values.frombytes(np.column_stack(columns).astype(np.int64, copy=False).tobytes())

    def __getitem__(self, name: str) -> np.ndarray:
        """A column, shape (n,), int64. After the first access no row can be appended."""
        flat = np.frombuffer(self._values, np.int64) if self._values else np.zeros(0, np.int64)
        column: np.ndarray = flat.reshape(-1, len(self._position))[:, self._position[name]]
        return column

    def __len__(self) -> int:
        return len(self._values) // len(self._position)

    def drop_doubles(self, *order: str) -> int:
        """Drop rows that equal an earlier one in every column; returns how many were dropped.

        Only rows that agree in the columns ``order`` are compared, and only where the last of these is not 0.
        """
        flat = np.frombuffer(self._values, np.int64).reshape(-1, len(self._position))
        doubles = doubled_rows([self[name] for name in order], lambda rows: flat[rows])
        if len(doubles):
            self._values = array("q", np.delete(flat, doubles, axis=0).tobytes())
        return len(doubles)


class KinetoTrace:
    """A trace read to its end. Raises InputError naming the event that cannot be used.

    ``kernels``: ts, dur (ns), name, device, stream, correlation, external, gx..bz, registers, shared,
    node; -1 where unknown. ``calls``: ts, correlation, thread, graph (1 for a graph launch).
    ``operators``: ts, end, external, thread, name, shapes. ``annotations``: ts, end, thread, name.
    ``thread`` is an index into ``thread_keys`` (pid, tid). ``doubles`` is how many kernel events were dropped
    because they equal an earlier one in everything that is read.

    Args:
        path: the file.
        operators: whether operators are wanted.
    """

    def __init__(self, path: Path, *, operators: bool = True) -> None:
        self.path = path
        self._categories = KERNELS | CALLS | ANNOTATIONS | (OPERATORS if operators else frozenset())
        try:
            self._begin(exact=False)
            self._read()
        except _NotExactError:
            self._begin(exact=True)
            self._read()
        self.doubles = self.kernels.drop_doubles("correlation", "ts", "dur")
        self.devices = _devices(self._events.members.get("deviceProperties"))
        distributed = self._events.members.get("distributedInfo")
        self.world_size = max(1, _whole(distributed.get("world_size"), 1)) if type(distributed) is dict else 1
        self.base_ns = self._base_time(self._events.members.get("baseTimeNanoseconds", 0))

    def _begin(self, *, exact: bool) -> None:
        self._exact = exact
        self.kernels = Columns(
            "ts", "dur", "name", "device", "stream", "correlation", "external",
            "gx", "gy", "gz", "bx", "by", "bz", "registers", "shared", "node",
        )  # fmt: skip
        self.calls = Columns("ts", "correlation", "thread", "graph")
        self.operators = Columns("ts", "end", "external", "thread", "name", "shapes")
        self.annotations = Columns("ts", "end", "thread", "name")
        self.texts, self.shapes = Texts(), Texts()
        self.thread_keys: dict[tuple[int | str, int | str], int] = {}
        self._numbers = Numbers(self._name, self._thread, self._dims)
        self._events = JsonEvents(self.path, take_text=None if exact else self._taken_at_once)
        self._number = 0

    def _read(self) -> None:
        for events in self._events:
            for event in events:
                self._take(event)
                self._number += 1

    def _take(self, event: Any) -> None:
        if type(event) is not dict:
            raise self._wrong("it is not an object")
        category = event.get("cat")
        if event.get("ph") != "X" or type(category) is not str or category not in self._categories:
            return
        try:
            self._taker(category)(event)
        except RecursionError as error:
            raise self._wrong("its values are nested too deep") from error

    def _taker(self, category: str) -> Callable[[dict[str, Any]], None]:
        if category in KERNELS:
            return self._kernel
        if category in CALLS:
            return self._call
        return self._operator if category in OPERATORS else self._annotation

    def _taken_at_once(self, text: bytes) -> int | None:
        """Take events together, as :meth:`_take` takes each in turn; returns their number, None where they
        are not plain."""
        try:
            rows = rows_at_once(text, self._categories, self._numbers)
        except NotPlainError:
            return None
        self.kernels.append_rows(*rows.kernels)
        self.calls.append_rows(*rows.calls)
        if rows.operators:
            self.operators.append_rows(*rows.operators)
        self.annotations.append_rows(*rows.annotations)
        return rows.events

    def _kernel(self, event: dict[str, Any]) -> None:
        args = _args(event)
        grid, block = self._triple(args, "grid"), self._triple(args, "block")
        duration = self._ns(event, "dur")
        if duration < 0:
            raise self._wrong(f"{event['dur']} is negative", "dur")
        device = _whole(args.get("device"), -1)
        stream = args.get("stream", event.get("tid"))
        self.kernels.append_row((
            self._ns(event, "ts"), duration, self._name(event.get("name")),
            device if -1 <= device <= INT32 else -1,
            _whole(stream, -1),
            _whole(args.get("correlation"), -1),
            _whole(args.get("External id", args.get("external id")), -1),
            *grid, *block,
            min(_whole(args.get("registers per thread"), -1), INT32),
            _whole(args.get("shared memory"), -1),
            _whole(args.get("graph node id"), 0),
        ))  # fmt: skip

    def _call(self, event: dict[str, Any]) -> None:
        correlation = _whole(_args(event).get("correlation"), -1)
        if correlation < 0:
            return
        graph = 1 if "GraphLaunch" in str(event.get("name")) else 0
        self.calls.append_row(
            (self._ns(event, "ts"), correlation, self._thread(event.get("pid"), event.get("tid")), graph)
        )

    def _operator(self, event: dict[str, Any]) -> None:
        args = _args(event)
        start = self._ns(event, "ts")
        dims = args.get("Input Dims", args.get("Input dims"))
        shapes = -1 if dims is None else self._dims(dims)
        external = _whole(args.get("External id", args.get("external id")), -1)
        end = start + self._ns(event, "dur")
        self.operators.append_row(
            (
                start,
                end,
                external,
                self._thread(event.get("pid"), event.get("tid")),
                self._name(event.get("name")),
                shapes,
            )
        )

    def _dims(self, dims: Any) -> int:
        text = json.dumps(dims, separators=(",", ":"), default=str)
        if not self._exact and _FRACTION.search(text):
            raise _NotExactError
        return self.shapes.index(text)

    def _annotation(self, event: dict[str, Any]) -> None:
        start = self._ns(event, "ts")
        end = start + self._ns(event, "dur")
        self.annotations.append_row(
            (start, end, self._thread(event.get("pid"), event.get("tid")), self._name(event.get("name")))
        )

    def _name(self, name: Any) -> int:
        if type(name) is not str or not name:
            raise self._wrong("it has no name", "name")
        try:
            check_name(name)
        except LaunchTableError as error:
            raise self._wrong(error.cause, "name") from error
        return self.texts.index(_encodable(name))

    def _thread(self, pid: Any, tid: Any) -> int:
        key = (pid if type(pid) is int else str(pid), tid if type(tid) is int else str(tid))
        return self.thread_keys.setdefault(key, len(self.thread_keys))

    def _ns(self, event: dict[str, Any], field: str) -> int:
        value = event.get(field)
        if type(value) is int:
            if -MOST_MICROSECONDS <= value <= MOST_MICROSECONDS:
                return value * 1000
        elif type(value) is float and not self._exact:
            return self._ns_of_float(value)
        elif type(value) is Decimal and abs(value) <= MOST_MICROSECONDS:
            return int((value * 1000).to_integral_value())
        raise self._wrong(f"{_short(value)} is not a time in microseconds", field)

    def _ns_of_float(self, value: float) -> int:
        if -MOST_FLOAT_MICROSECONDS <= value <= MOST_FLOAT_MICROSECONDS:
            nearest = round(value * 1000)
            for ns in (nearest, nearest - 1, nearest + 1):
                if ns / 1000 == value:
                    return ns
        raise _NotExactError

    def _triple(self, args: dict[str, Any], field: str) -> tuple[int, int, int]:
        value = args.get(field)
        if value is None:  # kernels of a graph that ROCm replays
            return -1, -1, -1
        if type(value) is list and len(value) == 3:
            x, y, z = value
            if (
                type(x) is int and type(y) is int and type(z) is int
                and 1 <= x <= INT32 and 1 <= y <= INT32 and 1 <= z <= INT32
            ):  # fmt: skip
                return x, y, z
        raise self._wrong(f"{_short(value)} is not three sizes such as [128, 1, 1]", field)

    def _base_time(self, value: Any) -> int:
        if type(value) is int and 0 <= value < INT64 // 2:
            return value
        raise InputError(
            self.path, f"{_short(value)} is not a time in ns", _MEND, field="baseTimeNanoseconds"
        )

    def _wrong(self, cause: str, field: str | None = None) -> Exception:
        if not self._exact:
            return _NotExactError()
        where = f"event {self._number} of traceEvents (counted from 0): "
        return InputError(self.path, where + cause, _MEND, field=field)


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if type(args) is dict else {}


def _whole(value: Any, default: int) -> int:
    return value if type(value) is int and -INT64 <= value <= INT64 else default


def _encodable(text: str) -> str:
    """The text, with halves of surrogate pairs written as ``\\ud800``: JSON can hold them, UTF-8 cannot."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _short(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:80]


def _devices(properties: Any) -> tuple[Device, ...]:
    devices = {}
    for entry in properties if type(properties) is list else []:
        index = entry.get("id") if type(entry) is dict else None
        if type(index) is not int or not 0 <= index <= INT32:
            continue
        major, minor = entry.get("computeMajor"), entry.get("computeMinor")
        sm_count = entry.get("numSms")
        devices[index] = Device(
            index=index,
            name=_encodable(str(entry.get("name") or ""))[:_MOST_NAME_CHARACTERS],
            compute_capability=f"{major}.{minor}" if type(major) is int and type(minor) is int else "",
            sm_count=sm_count if type(sm_count) is int and sm_count > 0 else None,
        )
    return tuple(devices[index] for index in sorted(devices))
