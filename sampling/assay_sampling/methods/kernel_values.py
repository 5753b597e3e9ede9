"""Distinct values of every kernel, on which methods work instead of on millions of launches.

A kernel is launched a million times with a few thousand different instruction counts or durations. Each
pair of kernel and value is one *atom* here, with the number of launches that have it; everything after this
costs by atoms. A table of few distinct values is built by hashing, one of many by sorting, with the same
result.

Memory: at most 80 bytes a launch, or of launches on disk 200 bytes an atom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.engines.blockwise import label_kind, places_in, relabelled
from assay_sampling.engines.columns import Place, in_place_of, place_of
from assay_sampling.engines.seam import ArrayRows

_SAMPLED = 1 << 16
_DENSE_CELLS_PER_LAUNCH = 4
# What an atom takes while methods work on it, beyond memory.
_BYTES_PER_ATOM = 200


@dataclass(frozen=True)
class KernelValues:
    """Atoms in the order of (kernel, value); kernels in the order of their first launch.

    ``atom``, shape (n,), is the atom of every launch. Of each atom, shape (u,): ``value``, ``count`` of
    launches (float64, exact), ``first_row``, the first launch that has it. The atoms of kernel k are
    ``kernel_start[k]`` to ``kernel_start[k + 1]``, shape (kernels + 1,).
    """

    atom: np.ndarray
    value: np.ndarray
    count: np.ndarray
    first_row: np.ndarray
    kernel_start: np.ndarray

    @property
    def kernels(self) -> int:
        return len(self.kernel_start) - 1

    def groups(self, start: np.ndarray) -> np.ndarray:
        """Group of every launch, shape (n,), where group g is the atoms start[g] to start[g + 1]."""
        of_atom = np.repeat(np.arange(len(start) - 1, dtype=np.int64), np.diff(start))
        return relabelled(self.atom, of_atom)

    def of_launches(self) -> np.ndarray:
        """The value of every launch, shape (n,)."""
        return in_place_of(self.atom, np.float64, lambda block: self.value[self.atom[block]])


def kernel_values(kernel: np.ndarray, values: np.ndarray) -> KernelValues:
    """Atoms of launches with these kernel ids (integers) and values (finite numbers), both of shape (n,)."""
    place = place_of(kernel, values)
    if place is not None:
        return _beyond_memory(place, kernel, values)
    kernel_code, kernels = codes_in_order_of_use(kernel)
    value_code, distinct = value_codes(values)
    pair = kernel_code.astype(np.int64) * max(1, len(distinct)) + value_code
    del kernel_code, value_code
    atom, pairs = _pair_codes(pair, len(kernels) * len(distinct))
    del pair
    of_kernel, of_value = np.divmod(pairs, max(1, len(distinct)))
    return KernelValues(
        atom=atom,
        value=distinct[of_value].astype(np.float64),
        count=np.bincount(atom, minlength=len(pairs)).astype(np.float64),
        first_row=first_rows(atom, len(pairs)),
        kernel_start=np.searchsorted(of_kernel, np.arange(len(kernels) + 1)),
    )


def _beyond_memory(place: Place, kernel: np.ndarray, values: np.ndarray) -> KernelValues:
    """As :func:`kernel_values` of columns on disk: an engine finds the atoms, and blocks of launches look
    theirs up."""
    rows = ArrayRows({"kernel": kernel, "value": values})
    most = place.memory_bytes // _BYTES_PER_ATOM
    groups = place.engine.groups(rows, ["kernel", "value"], most=most)
    kernels, of_kernel = np.unique(groups.key("kernel"), return_inverse=True)
    first_use = np.full(len(kernels), len(kernel))
    np.minimum.at(first_use, of_kernel, groups.first_row)
    rank = np.empty(len(kernels), np.int64)
    rank[np.argsort(first_use, kind="stable")] = np.arange(len(kernels))
    distinct, of_value = np.unique(groups.key("value"), return_inverse=True)
    pairs = rank[of_kernel] * len(distinct) + of_value
    order = np.argsort(pairs)
    pairs = pairs[order]

    def atoms(block: slice) -> np.ndarray:
        code = rank[np.searchsorted(kernels, kernel[block])]
        return places_in(pairs, code * len(distinct) + places_in(distinct, values[block]))

    return KernelValues(
        atom=place.column(len(kernel), label_kind(len(pairs)), atoms, kernel, values),
        value=distinct[pairs % max(1, len(distinct))].astype(np.float64),
        count=groups.count[order].astype(np.float64),
        first_row=groups.first_row[order],
        kernel_start=np.searchsorted(pairs, np.arange(len(kernels) + 1) * len(distinct)),
    )


def value_codes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rank of every value among the distinct ones, shape (n,), and those values, ascending, shape (m,)."""
    values = np.ascontiguousarray(values)
    if values.dtype.kind == "f":
        values = values + 0.0  # turns -0.0 into 0.0
    if _mostly_distinct(values):
        distinct, codes = np.unique(values, return_inverse=True)
        return codes, distinct
    encoded = pc.dictionary_encode(pa.array(values))
    dictionary = encoded.dictionary.to_numpy(zero_copy_only=False)
    order = np.argsort(dictionary, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.to_numpy(zero_copy_only=False)], dictionary[order]


def codes_in_order_of_use(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of values as in :func:`value_codes`, but numbered in the order of their first use."""
    codes, distinct = value_codes(values)
    order = np.argsort(first_rows(codes, len(distinct)), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], distinct[order]


def first_rows(codes: np.ndarray, count: int) -> np.ndarray:
    """First row of each code 0..count - 1, shape (count,); every code is used."""
    first = np.empty(count, np.int64)
    # For a repeated index NumPy keeps the last value: assigned backwards, that is the first row.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def _mostly_distinct(values: np.ndarray) -> bool:
    # A hash table that outgrows the cache is slower than sorting.
    sample = values[:: max(1, len(values) // _SAMPLED)]
    return len(values) > _SAMPLED and 2 * len(np.unique(sample)) > len(sample)


def _pair_codes(pairs: np.ndarray, cells: int) -> tuple[np.ndarray, np.ndarray]:
    if cells > _DENSE_CELLS_PER_LAUNCH * len(pairs) + _SAMPLED:
        return value_codes(pairs)
    used = np.zeros(cells, bool)
    used[pairs] = True
    rank = np.cumsum(used, dtype=np.int64) - 1
    return rank[pairs], np.flatnonzero(used)
