"""From launches to operations: one row an operation, whose cost is the sum of its launches.

The rows of an operation are a launch table like any other, so every selection method, score and interval
works on them unchanged:

| column | of an operation |
|---|---|
| ``launch`` | the ordinal of its first launch |
| ``kernel_id`` | its stratum (:mod:`assay_sampling.operations.strata`) |
| ``operator_id``, ``input_shapes_id`` | its canonical name, its input shapes |
| ``grid_x`` | the threads of all its launches, ``block_x`` is 1 |
| ``duration_ns``, counters | sums, of a rate the weighted mean; null if one of them is null |
| ``start_ns``, ``device``, ``stream`` | of its first launch |

Launches that overlap on several streams count in full: their durations are added, not their span.

Source: docs/concepts.md, "Operations". Memory: about 60 bytes a launch and 150 an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from assay_sampling.counters.definitions import registry
from assay_sampling.counters.own_names import is_rate_of_metric
from assay_sampling.errors import RefusedError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.row_hash import hash_rows
from assay_sampling.launches.table import (
    METADATA_KEY,
    CounterColumn,
    Names,
    counter_columns,
    has_operations,
    launch_schema,
    make_batch,
)
from assay_sampling.operations.aliases import canonical
from assay_sampling.operations.identity import Operation
from assay_sampling.operations.kernel_names import base_name

_RATE_UNITS = ("%", "hz")
_RATES = ("threads_per_instruction",)


@dataclass(frozen=True)
class Operations:
    """The operations of a recording, in the order of their processes and first launches.

    ``launches`` has a row for each of the m operations; ``identity``, shape (m,), indexes ``identities``,
    which have canonical names; ``of_launch``, shape (n,), is the operation of each launch of ``source``.
    """

    launches: Launches
    identity: np.ndarray
    identities: tuple[Operation, ...]
    of_launch: np.ndarray
    source: Launches

    def __len__(self) -> int:
        return len(self.identity)

    def rows_of(self, chosen: np.ndarray) -> list[np.ndarray]:
        """The rows of ``source`` that are launches of each chosen operation, ascending."""
        order = np.argsort(self.of_launch, kind="stable")
        owner = self.of_launch[order]
        starts, stops = (np.searchsorted(owner, chosen, side) for side in ("left", "right"))
        return [order[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]

    def sizes(self) -> np.ndarray:
        """How many launches each operation has, shape (m,)."""
        return np.bincount(self.of_launch[self.of_launch >= 0], minlength=len(self))

    def take(self, rows: np.ndarray) -> Operations:
        """Some of the operations, ascending; launches of the others then belong to none (-1)."""
        place = np.full(len(self), -1, np.int64)
        place[rows] = np.arange(len(rows))
        of_launch = np.where(self.of_launch >= 0, place[self.of_launch], -1)
        return replace(
            self, launches=self.launches.take(rows), identity=self.identity[rows], of_launch=of_launch
        )

    def named(self, names: Sequence[str]) -> Operations:
        """With a kernel name for each identity: the stratum that it belongs to."""
        kernel_names = Names(dict(self.launches.names.items()))
        ids = np.array([kernel_names.intern(name) for name in names] or [0], np.uint64)
        table = self.launches.table
        place = table.schema.get_field_index("kernel_id")
        table = table.set_column(place, table.schema.field(place), pa.array(ids[self.identity], pa.uint64()))
        return replace(self, launches=replace(self.launches, table=table, names=kernel_names))


def knows_operations(launches: Launches) -> bool:
    """Whether a recording tells operations apart: by calls, or by the operator of each launch."""
    if has_operations(launches.table.schema):
        return bool(launches.table["operation_id"].null_count < len(launches))
    return bool(launches.table["operator_id"].null_count < len(launches))


def require_operations(launches: Launches) -> None:
    """Raise RefusedError, with the way to record them, for a recording that knows no operations."""
    if not knows_operations(launches):
        raise RefusedError(
            _subject(launches),
            "it has no operators, so its operations are unknown",
            how_to_record(launches.metadata.format),
        )


def _subject(launches: Launches) -> str:
    return ", ".join(launches.sources) or "launches"


def operations_of(launches: Launches) -> Operations:
    """The operations of a recording.

    A recording with operators but without calls (a table that somebody made) has one launch an operation.
    Raises RefusedError for a recording that knows no operations, or holds no launches.
    """
    if not len(launches):
        raise RefusedError(_subject(launches), "it holds no launches")
    require_operations(launches)
    identity_of_launch, texts, call = _calls(launches)
    keys = hash_rows([launches.column("process"), call, identity_of_launch])
    _, first, index = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    of_launch, first = rank[index.reshape(-1)], first[order]
    identities, identity = _distinct(texts, identity_of_launch[first])
    table, names = _added_up(launches, of_launch, first, identities, identity)
    return Operations(replace(launches, table=table, names=names), identity, identities, of_launch, launches)


def how_to_record(format_: str) -> str:
    """How to record a program with its operations, for a recording of this format."""
    ways = {
        "kineto-json": "profile with torch.profiler.profile(record_shapes=True, activities=[CPU, CUDA])",
        "nsys-sqlite": "profile with nsys --trace=cuda,nvtx --pytorch=autograd-shapes-nvtx, or "
        "--trace=cuda,cublas,cudnn",
    }
    by_format = ways.get(format_, "record it with PyTorch's profiler (record_shapes=True), or with "
                         "nsys --pytorch=autograd-shapes-nvtx")  # fmt: skip
    return f"{by_format}; 'assay docs concepts' has each tool's way"


def _calls(launches: Launches) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Of each launch, shape (n,): its identity, which indexes the texts, and what tells its call apart."""
    ordinal = launches.column("launch")
    base, bases = _by_function(launches)
    if has_operations(launches.table.schema):
        ids = launches.column("operation_id")
        distinct, identity = np.unique(ids, return_inverse=True)
        texts = [launches.names[i] if i else "" for i in distinct.tolist()]
        call = launches.column("call")
        call = np.where((ids != 0) & (call >= 0), call, ordinal)
    else:
        ids = launches.column("operator_id")
        shapes = launches.column("input_shapes_id")
        keys = hash_rows([ids, shapes])
        _, first, identity = np.unique(keys, return_index=True, return_inverse=True)
        pairs = zip(ids[first].tolist(), shapes[first].tolist(), strict=True)
        texts = [_operator(launches.names, *pair) for pair in pairs]
        call = ordinal
    identity = np.where(ids != 0, identity.reshape(-1), len(texts) + base)
    return identity, [*texts, *bases], call


def _operator(names: Names, operator: int, shapes: int) -> str:
    if not operator:
        return ""
    return Operation("operator", names[operator], names[shapes] if shapes else "").to_text()


def _by_function(launches: Launches) -> tuple[np.ndarray, list[str]]:
    """The function of each launch's kernel, shape (n,), as an index of the texts of operations."""
    distinct, index = np.unique(launches.column("kernel_id"), return_inverse=True)
    texts = [Operation("kernel", base_name(launches.names[i])).to_text() for i in distinct.tolist()]
    return index.reshape(-1), texts


def _distinct(texts: list[str], used: np.ndarray) -> tuple[tuple[Operation, ...], np.ndarray]:
    """The canonical identities in order of first use, and the one of each operation, shape (m,)."""
    distinct, first, index = np.unique(used, return_index=True, return_inverse=True)
    position: dict[Operation, int] = {}
    of_text = np.zeros(len(distinct), np.int64)
    for place in np.argsort(first).tolist():
        operation = canonical(Operation.from_text(texts[int(distinct[place])]))
        of_text[place] = position.setdefault(operation, len(position))
    return tuple(position), of_text[index.reshape(-1)]


def _added_up(
    launches: Launches,
    of_launch: np.ndarray,
    first: np.ndarray,
    identities: Sequence[Operation],
    identity: np.ndarray,
) -> tuple[pa.Table, Names]:
    names = Names()
    label, operator, shapes = (
        np.array([names.intern(text(one)) for one in identities], np.uint64)[identity]
        for text in (Operation.label, lambda one: one.name, lambda one: one.shapes)
    )
    source = launches.table
    columns: dict[str, pa.Array | np.ndarray] = {
        name: source[name].take(pa.array(first)).combine_chunks()
        for name in ("process", "launch", "device", "stream", "start_ns")
    }
    columns |= {
        "kernel_id": label,
        "operator_id": operator,
        "input_shapes_id": pa.array(shapes, pa.uint64(), mask=shapes == names.intern("")),
        "grid_x": np.maximum(_sums(_threads(launches), of_launch, len(first)), 1).astype(np.int64),
        **{f"grid_{axis}": np.ones(len(first), np.int32) for axis in "yz"},
        **{f"block_{axis}": np.ones(len(first), np.int32) for axis in "xyz"},
        "duration_ns": _whole_sum(launches, of_launch, len(first)),
    }
    counters = counter_columns(source.schema)
    columns |= {one.name: _counter(launches, one, of_launch, len(first)) for one in counters}
    schema = launch_schema(launches.metadata, counters)
    schema = schema.with_metadata({METADATA_KEY: source.schema.metadata[METADATA_KEY]})
    return pa.Table.from_batches([make_batch(schema, columns)], schema=schema), names


def _threads(launches: Launches) -> np.ndarray:
    axes = [launches.column(f"{what}_{axis}") for what in ("grid", "block") for axis in "xyz"]
    product = np.ones(len(launches))
    for axis in axes:
        product *= np.maximum(axis, 1)
    return product


def _sums(values: np.ndarray, of_launch: np.ndarray, count: int) -> np.ndarray:
    sums: np.ndarray = np.bincount(of_launch, values, count)
    return sums


def _lacking(values: np.ndarray, of_launch: np.ndarray, count: int) -> np.ndarray:
    """Which operations have a launch without a value, shape (m,)."""
    unknown = np.isnan(values) if values.dtype.kind == "f" else values < 0
    return np.bincount(of_launch, unknown, count) > 0


def _whole_sum(launches: Launches, of_launch: np.ndarray, count: int) -> pa.Array:
    values = launches.column("duration_ns")
    total = _sums(np.maximum(values, 0), of_launch, count).astype(np.int64)
    return pa.array(total, mask=_lacking(values, of_launch, count))


def _counter(launches: Launches, counter: CounterColumn, of_launch: np.ndarray, count: int) -> pa.Array:
    values = launches.column(counter.name)
    lacking = _lacking(values, of_launch, count)
    finite_values = np.nan_to_num(values)
    if not _is_rate(counter):
        return pa.array(_sums(finite_values, of_launch, count), mask=lacking)
    weight = _weight_of_rates(launches, by_instructions=counter.name in _RATES)
    total = _sums(weight, of_launch, count)
    # Launches that weigh nothing count alike.
    weight = np.where(total[of_launch] > 0, weight, 1.0)
    mean = _sums(finite_values * weight, of_launch, count) / _sums(weight, of_launch, count)
    return pa.array(mean, mask=lacking)


def _is_rate(counter: CounterColumn) -> bool:
    if counter.unit in _RATE_UNITS or counter.name in _RATES:
        return True
    return counter.name not in registry() and is_rate_of_metric(counter.metric)


def _weight_of_rates(launches: Launches, *, by_instructions: bool) -> np.ndarray:
    candidates = (["instructions"] if by_instructions else []) + ["cycles_gpc_avg", "duration_ns"]
    for name in candidates:
        if name in launches.table.schema.names and not launches.table[name].null_count:
            return launches.column(name).astype(np.float64)
    return np.ones(len(launches))
