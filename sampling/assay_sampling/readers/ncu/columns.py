"""Converts the columns of an Nsight Compute raw page to launch table columns.

Classic layout: "Kernel Time", ``device__attribute_*``, and only the totals ``launch__grid_size`` and
``launch__block_size``. Modern layout: "Block Size" and "Grid Size" as ``(256, 1, 1)``, "Device", "CC".
Fields are found by name only. Values are converted to the base units of the counter registry.

Source: docs/reading-recordings.md, "Raw pages".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.arrays import SYSTEM_POOL, values_of
from assay_sampling.counters.definitions import Counter, counter_of_label, counter_of_metric
from assay_sampling.counters.own_names import column_of_metric
from assay_sampling.launches.table import CounterColumn
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.readers.base import NameTracker
from assay_sampling.readers.numbers import Parsed, base_of, parse_integers, parse_numbers, unit_factor

_INT32, _INT64 = 2**31 - 1, 2**62
PUSH_POP = "Push/Pop_Range"
_START_STOP = "Start/Stop_Range"


class CellError(Exception):
    """A cell that cannot be read: 0-based row of the block, field name, cause. Never leaves the reader."""

    def __init__(self, row: int, name: str, cause: str) -> None:
        super().__init__(cause)
        self.row, self.name, self.cause = row, name, cause


class ColumnError(Exception):
    """A column that cannot be used at all: field name and cause. Never leaves the reader."""

    def __init__(self, name: str, cause: str, remedy: str = "") -> None:
        super().__init__(cause)
        self.name, self.cause, self.remedy = name, cause, remedy


@dataclass(frozen=True)
class CounterSource:
    """Where a counter comes from: column of the file, canonical column, factor to its base unit.

    The position is -1 for the number of thread blocks where it follows from the grid.
    """

    position: int
    column: CounterColumn
    factor: float


@dataclass(frozen=True)
class Layout:
    """Positions of the fields that matter; -1 where the file lacks one."""

    fields: tuple[str, ...]
    counters: tuple[CounterSource, ...]
    factors: dict[int, float]
    notes: tuple[Note, ...]
    positions: dict[str, int] = field(default_factory=dict)

    def at(self, name: str) -> int:
        return self.positions.get(name, -1)

    def has(self, *names: str) -> bool:
        return all(name in self.positions for name in names)

    @property
    def totals_only(self) -> bool:
        """Whether only the total numbers of blocks and threads are known."""
        return not (self.has("Grid Size", "Block Size") or self.has(*_GRID_DIM, *_BLOCK_DIM))

    def needed(self, settled: Collection[str] = ()) -> list[int]:
        """Positions of the columns to read; ``settled``: fields that no launch need tell again."""
        names = {*_NAMED, *DEVICE_FIELDS, PUSH_POP, *self.sizes("grid"), *self.sizes("block")} - {*settled}
        counters = (source.position for source in self.counters if source.position >= 0)
        return sorted({*(self.at(name) for name in names if self.has(name)), *counters})

    def sizes(self, what: str) -> tuple[str, ...]:
        """The fields to read the size of a "grid" or "block" from: one text, three axes or the total."""
        text, axes, total = _SIZES[what]
        return (text,) if self.has(text) else axes if self.has(*axes) else (total,)

    def numbers(self) -> dict[int, tuple[int, int] | None]:
        """Positions of the columns of numbers; with least and greatest for whole numbers, of which none may
        be missing. Those whose values must be scaled before they are rounded are left out."""
        bounds: dict[int, tuple[int, int] | None] = {
            source.position: None for source in self.counters if source.position >= 0
        }
        for name, limits in WHOLE_NUMBERS.items():
            position = self.at(name)
            if position >= 0 and name not in ("ID", "Device") and self.factors.get(position, 1.0) == 1.0:
                bounds[position] = limits
        return bounds


_GRID_DIM = tuple(f"launch__grid_dim_{axis}" for axis in "xyz")
_BLOCK_DIM = tuple(f"launch__block_dim_{axis}" for axis in "xyz")
_GRID_SIZE = "launch__grid_size"
_STATIC = "launch__shared_mem_per_block_static"
_DYNAMIC = "launch__shared_mem_per_block_dynamic"
_SHARED = "launch__shared_mem_per_block"
_REGISTERS = "launch__registers_per_thread"
_SIZES = {
    "grid": ("Grid Size", _GRID_DIM, "launch__grid_size"),
    "block": ("Block Size", _BLOCK_DIM, "launch__block_size"),
}
_NAMED = (
    "ID", "Process ID", "Host Name", "Kernel Name", "Stream", "Device",
    _REGISTERS, _STATIC, _DYNAMIC, _SHARED,
)  # fmt: skip
USED_FIELDS = (
    *_NAMED,
    "CC",
    "Block Size",
    "Grid Size",
    "launch__grid_size",
    "launch__block_size",
    *_GRID_DIM,
    *_BLOCK_DIM,
)
_DEVICE_ATTRIBUTES = (
    "device__attribute_compute_capability_major",
    "device__attribute_compute_capability_minor",
    "device__attribute_multiprocessor_count",
    "device__attribute_display_name",
)
# What describes the devices of a file.
DEVICE_FIELDS = ("CC", *_DEVICE_ATTRIBUTES)
# Metrics that describe a launch or its device and are not counters.
LAUNCH_METRICS = (
    *_GRID_DIM, *_BLOCK_DIM, "launch__block_size", _REGISTERS, _STATIC, _DYNAMIC, _SHARED,
    *_DEVICE_ATTRIBUTES,
)  # fmt: skip
# Metrics that give a launch's numbers of blocks and threads.
SHAPE_METRICS = (*_GRID_DIM, *_BLOCK_DIM)
# Fields of whole numbers, with the least and the greatest.
WHOLE_NUMBERS = {
    "ID": (0, _INT64), "Stream": (0, _INT64), "Device": (0, _INT32),
    _REGISTERS: (0, _INT32), _DYNAMIC: (0, _INT64), _STATIC: (0, _INT64), _SHARED: (0, _INT64),
    "launch__grid_size": (1, _INT64), "launch__block_size": (1, _INT32),
    **dict.fromkeys((*_GRID_DIM, *_BLOCK_DIM), (1, _INT32)), _GRID_DIM[0]: (1, _INT64),
}  # fmt: skip
_BASE_UNITS = {
    _REGISTERS: "register/thread", _STATIC: "byte/block", _DYNAMIC: "byte/block", _SHARED: "byte/block",
    "launch__grid_size": "1", "launch__block_size": "1",
    **dict.fromkeys((*_GRID_DIM, *_BLOCK_DIM), "1"),
}  # fmt: skip


# The details page's labels of launch properties that are not counters.
_PROPERTY_LABELS = {
    "Block Size": "launch__block_size",
    "Registers Per Thread": _REGISTERS,
    "Static Shared Memory Per Block": _STATIC,
    "Dynamic Shared Memory Per Block": _DYNAMIC,
}
_LABEL_AND_NAME = re.compile(r".+ \((\S+)\)")


def metric_of_label(text: str) -> str | None:
    """The metric behind a "Metric Name" of a details page, None if Assay does not read it.

    The page prints labels ("Elapsed Cycles"), names, or both ("Elapsed Cycles (gpc__cycles_elapsed.max)").
    """
    both = _LABEL_AND_NAME.fullmatch(text)
    name = both[1] if both and base_unit_of(both[1]) else text
    if base_unit_of(name) is not None:
        return name
    counter = counter_of_label(text)
    return counter.metrics[0].name if counter else _PROPERTY_LABELS.get(text)


def base_unit_of(metric: str) -> str | None:
    """The base unit of a counter's metric or a launch property that is read, else None."""
    counter = counter_of_metric(metric)
    return counter.unit if counter else _BASE_UNITS.get(metric)


def make_layout(fields: tuple[str, ...], units: list[str] | None, metrics: Sequence[str] = ()) -> Layout:
    """Interpret a header and its units row (None: base units are assumed); ``metrics`` are kept as counters
    under their own names where the file has them.

    Raises ColumnError for a field that is missing or appears twice, or an unknown unit of a used one.
    """
    positions: dict[str, int] = {}
    for index, name in enumerate(fields):
        key = PUSH_POP if PUSH_POP in name else name
        if key in positions and (key in USED_FIELDS or counter_of_metric(key) or key in metrics):
            raise ColumnError(name, "the field appears twice in the header", "export the report again")
        positions.setdefault(key, index)
    _check_shape_fields(positions)
    factors = {
        positions[name]: factor_to_base(
            name, units[positions[name]] if units else "", base, assumed=units is None
        )
        for name, base in _BASE_UNITS.items()
        if name in positions
    }
    counters, notes = _counters(fields, positions, units)
    own = [name for name in dict.fromkeys(metrics) if name in positions and not counter_of_metric(name)]
    counters += [_own_counter(name, positions[name], units) for name in own]
    if any(_START_STOP in name for name in fields):
        notes.append(make_note("start_stop_ranges_unread"))
    if _STATIC in positions and not {_DYNAMIC, _SHARED} & positions.keys():
        notes.append(make_note("shared_memory_static_only"))
    return Layout(fields, tuple(counters), factors, tuple(notes), positions)


def _check_shape_fields(positions: dict[str, int]) -> None:
    for what, names in (
        ("blocks", ("Grid Size", _GRID_DIM[0], "launch__grid_size")),
        ("threads", ("Block Size", _BLOCK_DIM[0], "launch__block_size")),
    ):
        if not positions.keys() & set(names):
            raise ColumnError(
                names[-1],
                f"no field says how many {what} a launch has",
                f"collect the metric {names[-1]} too",
            )


def factor_to_base(name: str, unit: str, base: str, *, assumed: bool = False) -> float:
    """The factor that brings values of the metric ``name`` from ``unit`` to ``base``; raises ColumnError."""
    if assumed:
        return 1.0
    factor = unit_factor(unit, base)
    # Some versions print launch properties without a unit, as whole numbers.
    if factor is None and not (unit == "" and name in _BASE_UNITS):
        raise ColumnError(
            name,
            f"its unit {unit!r} is not known for a quantity in {base!r}",
            "export the report with --print-units base",
        )
    return 1.0 if factor is None else factor


def _counters(
    fields: tuple[str, ...], positions: dict[str, int], units: list[str] | None
) -> tuple[list[CounterSource], list[Note]]:
    by_counter: dict[str, tuple[Counter, list[str]]] = {}
    for name in fields:
        counter = counter_of_metric(name)
        if counter is not None:
            by_counter.setdefault(counter.name, (counter, []))[1].append(name)
    sources, notes = [], []
    for counter, names in by_counter.values():
        order = [metric.name for metric in counter.metrics]
        chosen, *others = sorted(set(names), key=order.index)
        if others:
            notes.append(
                make_note(
                    "counter_of_several_metrics", counter=counter.name, metric=chosen, others=tuple(others)
                )
            )
        position = positions[chosen]
        unit = units[position] if units else ""
        factor = factor_to_base(chosen, unit, counter.unit, assumed=units is None)
        sources.append(CounterSource(position, counter.column(chosen), factor))
    blocks = counter_of_metric(_GRID_SIZE)
    if blocks is not None and blocks.name not in by_counter:
        # The grid gives the same number without counting.
        sources.append(CounterSource(-1, blocks.column(_GRID_SIZE), 1.0))
    return sources, notes


def _own_counter(name: str, position: int, units: list[str] | None) -> CounterSource:
    """A metric that the registry does not know, in the unit of the page, or what its name says."""
    column = column_of_metric(name)
    if units is None:
        return CounterSource(position, column, 1.0)
    known_unit = base_of(units[position])
    if known_unit is None:
        cause = f"its unit {units[position]!r} is not known"
        raise ColumnError(name, cause, "export the report with --print-units base")
    base, factor = known_unit
    # A plain count has no unit of its own on some pages.
    return CounterSource(position, replace(column, unit=column.unit if base == "1" else base), factor)


class Converter:
    """Turns blocks of text cells into columns of the launch table.

    ``nulls`` counts, by counter name, the values that were not measured; ``first_nulls`` holds the line of
    the first.
    """

    def __init__(self, layout: Layout, names: NameTracker) -> None:
        self.nulls: dict[str, int] = {}
        self.first_nulls: dict[str, int] = {}
        self._layout = layout
        self._names = names
        # The kernels of the latest block and their ids: most of them come again in the next one.
        self._latest = pa.array([], pa.string()), np.zeros(1, np.uint64)

    def convert(self, table: pa.Table, lines: np.ndarray) -> dict[str, pa.Array | np.ndarray]:
        """All columns except process and launch; raises CellError."""
        columns: dict[str, pa.Array | np.ndarray] = {"kernel_id": self._kernels(table)}
        self._shapes(table, columns)
        self._resources(table, columns)
        layout = self._layout
        if layout.has("Stream"):
            columns["stream"] = self.integers(table, "Stream")
        if layout.has("Device"):
            columns["device"] = self.integers(table, "Device")
        for source in layout.counters:
            derived = source.position < 0
            columns[source.column.name] = (
                _thread_blocks(columns) if derived else self._counter(table, source, lines)
            )
        return columns

    def integers(self, table: pa.Table, name: str) -> np.ndarray:
        """A field of whole numbers, shape (n,); raises CellError for any other text."""
        position = self._layout.at(name)
        texts = cells(table, position)
        if texts.type == pa.int64():
            return values_of(texts)  # checked where it was parsed
        least, greatest = WHOLE_NUMBERS[name]
        parsed = parse_integers(texts, least, greatest, self._layout.factors.get(position, 1.0))
        if parsed.bad_row is not None:
            text = texts[parsed.bad_row].as_py()
            raise CellError(
                parsed.bad_row, name, f"{text!r} is not a whole number from {least} to {greatest}"
            )
        return parsed.values

    def _kernels(self, table: pa.Table) -> np.ndarray:
        encoded = encoded_cells(table, self._layout.at("Kernel Name"))
        if encoded.indices.null_count:  # of damaged reports; a page has a text
            raise CellError(pc.index(encoded.indices.is_null(), True).as_py(), "Kernel Name", "it is missing")
        names = encoded.dictionary
        earlier, earlier_ids = self._latest
        places = values_of(pc.index_in(names, value_set=earlier, memory_pool=SYSTEM_POOL).fill_null(-1))
        identifiers: np.ndarray = earlier_ids[places]
        new = np.flatnonzero(places < 0)
        for index, name in zip(new.tolist(), names.take(new).to_pylist(), strict=True):
            if not name.strip() or "\n" in name or "\r" in name:
                row = pc.index(encoded.indices, index).as_py()
                cause = "it spans several lines" if name.strip() else "it is empty"
                raise CellError(row, "Kernel Name", cause)
            identifiers[index] = self._names.intern(name)
        self._latest = names, identifiers
        kernel_ids: np.ndarray = identifiers[values_of(encoded.indices)]
        return kernel_ids

    def _shapes(self, table: pa.Table, columns: dict[str, pa.Array | np.ndarray]) -> None:
        for what in _SIZES:
            names = [f"{what}_{axis}" for axis in "xyz"]
            fields = self._layout.sizes(what)
            if fields[0] == _SIZES[what][0]:
                columns.update(zip(names, self._triples(table, fields[0]), strict=True))
            else:
                columns.update(
                    {name: self.integers(table, field) for name, field in zip(names, fields, strict=False)}
                )

    def _triples(self, table: pa.Table, name: str) -> np.ndarray:
        """Sizes by axis, shape (3, n)."""
        encoded = encoded_cells(table, self._layout.at(name))
        texts = encoded.dictionary.to_pylist()
        sizes = [_sizes_of(text) for text in texts]
        if () in sizes:
            index = sizes.index(())
            row = pc.index(encoded.indices, index).as_py()
            raise CellError(row, name, f"{texts[index]!r} is not three whole numbers such as (256, 1, 1)")
        distinct = np.array(sizes, np.int64).reshape(-1, 3)
        triples: np.ndarray = np.take(distinct.T, values_of(encoded.indices), axis=1)
        return triples

    def _resources(self, table: pa.Table, columns: dict[str, pa.Array | np.ndarray]) -> None:
        layout = self._layout
        if layout.has(_REGISTERS):
            columns["registers_per_thread"] = self.integers(table, _REGISTERS)
        if layout.has(_DYNAMIC):
            columns["dynamic_shared_memory_bytes"] = self.integers(table, _DYNAMIC)
        if layout.has(_STATIC, _DYNAMIC):
            static = self.integers(table, _STATIC)
            columns["shared_memory_bytes"] = static + columns["dynamic_shared_memory_bytes"]
        elif layout.has(_SHARED) or layout.has(_STATIC):
            name = _SHARED if layout.has(_SHARED) else _STATIC
            columns["shared_memory_bytes"] = self.integers(table, name)

    def _counter(self, table: pa.Table, source: CounterSource, lines: np.ndarray) -> pa.Array:
        texts = cells(table, source.position)
        if texts.type == pa.int64():
            texts = pc.cast(texts, pa.float64())
        parsed = Parsed(texts) if texts.type == pa.float64() else parse_numbers(texts)
        if parsed.bad_row is not None:
            raise CellError(
                parsed.bad_row,
                self._layout.fields[source.position],
                f"{texts[parsed.bad_row].as_py()!r} is not a number (commas must separate groups of three "
                "digits)",
            )
        values = parsed.values
        if values.null_count:
            name = source.column.name
            self.nulls[name] = self.nulls.get(name, 0) + values.null_count
            self.first_nulls.setdefault(name, int(lines[pc.index(values.is_null(), True).as_py()]))
        return values if source.factor == 1.0 else pc.multiply(values, source.factor)


def _thread_blocks(columns: dict[str, pa.Array | np.ndarray]) -> np.ndarray:
    sizes = [np.asarray(columns[f"grid_{axis}"], np.float64) for axis in "xyz"]
    product: np.ndarray = sizes[0] * sizes[1] * sizes[2]
    return product


_TRIPLE = re.compile(r"\(\s*(\d{1,19}),\s*(\d{1,19}),\s*(\d{1,19})\s*\)")


@lru_cache(maxsize=1 << 14)
def _sizes_of(text: str) -> tuple[int, ...]:
    """The sizes in a text such as ``(256, 1, 1)``; none in any other."""
    match = _TRIPLE.fullmatch(text)
    sizes = tuple(int(size) for size in match.groups()) if match else ()
    return sizes if all(1 <= size <= _INT32 for size in sizes) else ()


def cells(table: pa.Table, position: int) -> pa.Array:
    """The cells of the file's column ``position``, shape (n,): texts, or numbers that were checked."""
    chunks = table.column(str(position)).chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def encoded_cells(table: pa.Table, position: int) -> pa.DictionaryArray:
    """Text cells, each distinct one kept once."""
    return cells(table, position).dictionary_encode()
