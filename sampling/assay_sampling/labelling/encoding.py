"""Signatures of launches as numbers, for models.

Millions of launches have few distinct signatures (:mod:`assay_sampling.launches.signatures`), so models see
each signature once and the answer is broadcast.

Source: Principal Kernel Analysis, "Two-level profiling", which does not say how it encodes signatures.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from assay_sampling.labelling.extra import sparse
from assay_sampling.launches.row_hash import hash_rows
from assay_sampling.launches.table import SHAPE_COLUMNS, Names

KERNEL_BUCKETS = 256
MOST_LAUNCH_SHAPES = 512
_LAUNCH_SHAPE = ("kernel_id", *SHAPE_COLUMNS)
_NUMBERS = 7
SparseMatrix = Any  # scipy's csr_array; scipy is of an extra
_NVTX_BUCKETS = 64
_OPERATOR_BUCKETS = 32
_INPUT_BUCKETS = 16
_TENSORS, _DIMENSIONS = 2, 4
_INPUT_NUMBERS = 1 + _TENSORS * (2 + _DIMENSIONS)
MOST_FEATURES = (
    KERNEL_BUCKETS + MOST_LAUNCH_SHAPES + _NUMBERS
    + _NVTX_BUCKETS + _OPERATOR_BUCKETS + _INPUT_NUMBERS + _INPUT_BUCKETS
)  # fmt: skip


@dataclass(frozen=True)
class Encoder:
    """Turns signatures into numbers; fitted on the launches of the window.

    The features, in order:

    - the kernel: one indicator for each kernel of the window, or 256 hashed ones where it has more;
    - the launch shape (kernel, grid and block together): one indicator for each of the window's, at most
      the 512 with most launches; without them a linear model cannot put two grid sizes of a kernel into
      different groups;
    - log2 of grid and block along x, y, z, and of all threads;
    - where the window has them: the parts of the NVTX path and of the operator's name hashed into signed
      columns; and of the inputs how many, ranks and sizes of the first two, and a hash.

    A kernel or launch shape that the window lacks has no indicator. Hashing is seeded and gives the same
    values everywhere. ``numeric``, shape (width,), marks the features that are not indicators.
    """

    kernels: np.ndarray
    launch_shapes: np.ndarray
    text_columns: tuple[str, ...]
    names: Names
    seed: int

    @classmethod
    def fit(
        cls,
        columns: Mapping[str, np.ndarray],
        names: Names,
        *,
        weights: np.ndarray | None = None,
        seed: int = 0,
    ) -> Encoder:
        """Fit on the window's signature columns and their launches ``weights``, all of shape (w,)."""
        texts = tuple(name for name in _TEXT_FEATURES if columns[name].any())
        shapes, inverse = np.unique(_launch_shapes(columns), return_inverse=True)
        launches = np.bincount(inverse, weights=weights, minlength=len(shapes))
        most = np.argsort(-launches, kind="stable")[:MOST_LAUNCH_SHAPES]
        return cls(np.unique(columns["kernel_id"]), np.sort(shapes[most]), texts, names, seed)

    @property
    def numeric(self) -> np.ndarray:
        before = min(len(self.kernels), KERNEL_BUCKETS) + len(self.launch_shapes)
        parts = [np.zeros(before, bool), np.ones(_NUMBERS, bool)]
        for name in self.text_columns:
            numbers = _INPUT_NUMBERS if name == "input_shapes_id" else 0
            parts.append(np.arange(_TEXT_FEATURES[name][0]) < numbers)
        return np.concatenate(parts)

    @property
    def width(self) -> int:
        """Number of features, at most MOST_FEATURES."""
        return len(self.numeric)

    def transform(self, columns: Mapping[str, np.ndarray], names: Names | None = None) -> np.ndarray:
        """Features of signatures given by their columns, each of shape (r,): (r, width), float32.

        ``names`` are those of the recording that the signatures come from, if it is another one.
        """
        dense: np.ndarray = self.transform_sparse(columns, names).toarray()
        return dense

    def transform_sparse(self, columns: Mapping[str, np.ndarray], names: Names | None = None) -> SparseMatrix:
        """As :meth:`transform`, as a sparse matrix (scipy's csr_array): a row has about ten values of
        hundreds. All numeric features are stored, zeros too, so that they can be standardised in place.

        Raises MissingExtraError if scipy is not installed.
        """
        kernel = columns["kernel_id"]
        if len(self.kernels) > KERNEL_BUCKETS:
            buckets = hash_rows([kernel], seed=self.seed) % np.uint64(KERNEL_BUCKETS)
            by_kernel = _indicators(np.arange(KERNEL_BUCKETS, dtype=np.uint64), buckets)
        else:
            by_kernel = _indicators(self.kernels, kernel)
        parts = [by_kernel, _indicators(self.launch_shapes, _launch_shapes(columns))]
        parts.append(_all_stored(_shape_features(columns)))
        for name in self.text_columns:
            width, of_text = _TEXT_FEATURES[name]
            vocabulary = self.names if names is None else names
            parts.append(_all_stored(_by_text(columns[name], vocabulary, of_text, width, self.seed)))
        return sparse().hstack(parts, format="csr")


def _indicators(vocabulary: np.ndarray, words: np.ndarray) -> SparseMatrix:
    """A matrix with 1 in column i of a row whose word is the i-th of the sorted vocabulary."""
    position = np.minimum(np.searchsorted(vocabulary, words), len(vocabulary) - 1)
    has_word = vocabulary[position] == words
    row_ends = np.concatenate([[0], np.cumsum(has_word)])
    values = np.ones(row_ends[-1], np.float32), position[has_word], row_ends
    return sparse().csr_array(values, shape=(len(words), len(vocabulary)))


def _all_stored(dense: np.ndarray) -> SparseMatrix:
    rows, width = dense.shape
    places = np.tile(np.arange(width), rows)
    return sparse().csr_array((dense.ravel(), places, width * np.arange(rows + 1)), shape=dense.shape)


def _launch_shapes(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    return hash_rows([columns[name] for name in _LAUNCH_SHAPE])


def _shape_features(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    # An axis that is not known counts as 1: x then holds the total.
    shape = np.stack([np.maximum(columns[name], 1) for name in SHAPE_COLUMNS], axis=1)
    logs = np.log2(shape.astype(np.float64))
    return np.concatenate([logs, logs.sum(axis=1, keepdims=True)], axis=1).astype(np.float32)


def _by_text(
    ids: np.ndarray,
    names: Names,
    of_text: Callable[[str, int], np.ndarray],
    width: int,
    seed: int,
) -> np.ndarray:
    """Features of interned texts, shape (r, width); each distinct text is processed once."""
    distinct, inverse = np.unique(ids, return_inverse=True)
    features = np.zeros((len(distinct), width), np.float32)
    for row, identifier in enumerate(distinct.tolist()):
        if identifier:
            features[row] = of_text(names[identifier], seed)
    return features[inverse]


@lru_cache(maxsize=1 << 16)
def _bucket(token: str, buckets: int, seed: int) -> tuple[int, float]:
    digest = hashlib.blake2b(token.encode(), digest_size=8, key=seed.to_bytes(8, "little", signed=True))
    value = int.from_bytes(digest.digest(), "little")
    return (value >> 1) % buckets, 1.0 if value & 1 else -1.0


def _hashed(tokens: Iterable[str], buckets: int, seed: int) -> np.ndarray:
    """Tokens counted in signed buckets, shape (buckets,): collisions cancel out on average."""
    counts = np.zeros(buckets, np.float32)
    for token in tokens:
        bucket, sign = _bucket(token, buckets, seed)
        counts[bucket] += sign
    return counts


_DIGITS = re.compile(r"\d+")


def _path_tokens(text: str) -> set[str]:
    """Parts of an NVTX path or an operator's name, with their numbers and without.

    Iteration and layer numbers make each pass a different path; without them, passes are alike.
    """
    parts = [part.strip() for part in text.split("/") if part.strip()]
    return {*parts, *(_DIGITS.sub("#", part) for part in parts)}


def _nvtx_features(text: str, seed: int) -> np.ndarray:
    return _hashed(_path_tokens(text), _NVTX_BUCKETS, seed)


def _operator_features(text: str, seed: int) -> np.ndarray:
    return _hashed(_path_tokens(text), _OPERATOR_BUCKETS, seed)


_TENSOR = re.compile(r"[\[(]([\d\s,]*)[\])]")


def _input_features(text: str, seed: int) -> np.ndarray:
    """Number of tensors; rank, log2 elements and log2 of the first dimensions of each of the first two."""
    tensors = [[min(float(size), 1e18) for size in _DIGITS.findall(part)] for part in _TENSOR.findall(text)]
    tensors = [sizes for sizes in tensors if sizes]
    numbers = np.zeros(_INPUT_NUMBERS, np.float32)
    numbers[0] = len(tensors)
    for index, sizes in enumerate(tensors[:_TENSORS]):
        logs = np.log2(np.maximum(np.array(sizes, np.float64), 1))
        at = 1 + index * (2 + _DIMENSIONS)
        numbers[at : at + 2] = len(sizes), logs.sum()
        numbers[at + 2 : at + 2 + min(len(sizes), _DIMENSIONS)] = logs[:_DIMENSIONS]
    return np.concatenate([numbers, _hashed([text], _INPUT_BUCKETS, seed)])


_TEXT_FEATURES: dict[str, tuple[int, Callable[[str, int], np.ndarray]]] = {
    "nvtx_id": (_NVTX_BUCKETS, _nvtx_features),
    "operator_id": (_OPERATOR_BUCKETS, _operator_features),
    "input_shapes_id": (_INPUT_NUMBERS + _INPUT_BUCKETS, _input_features),
}
