"""Photon's matching of launches: the first of a kind is simulated, later similar ones take its time.

Launches are matched in order. Of the representatives so far, those nearer than a threshold are candidates:

    distance(j, r) = |b_j - b_r| / (|b_j| + 1e-6)        (b: basic-block vector, Euclidean norms)

Without a candidate the launch becomes a representative; else it takes the one with the nearest number of
warps, or the earlier of two at the same distance. Whether a launch becomes a representative depends on its
vector alone, so each distinct vector is decided once, and then every launch is matched to the representatives
before it. Only representatives whose norm is near enough to be within the threshold are compared.

Source: Photon as the artifact of STEM+ROOT has it: docs/methods/photon.md.
Memory: 8 bytes for each block of each representative, and 80 bytes an entry of the vectors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from assay_sampling.errors import RefusedError
from assay_sampling.launches.row_hash import hash_rows
from assay_sampling.readers.block_files import BasicBlockVectors

DEFAULT_DISTANCE = 0.05
DEFAULT_MEMORY_BYTES = 4 << 30
_NORM_OFFSET = 1e-6
_BLOCK_VALUES = 1 << 21


def match_launches(
    vectors: BasicBlockVectors,
    pools: np.ndarray,
    *,
    distance: float = DEFAULT_DISTANCE,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> np.ndarray:
    """The row of the representative of every launch, shape (n,); a representative has its own row.

    Args:
        vectors: of n launches in their order.
        pools: launches are matched within equal values only, shape (n,): kernels, or one value for all.
        distance: a candidate is nearer than this.
        memory_bytes: limit for the vectors of representatives.

    Raises RefusedError if they would take more.
    """
    first, inverse = _distinct(vectors, pools)
    representative = np.empty(len(pools), np.intp)
    pool_of, order = pools[first], np.argsort(pools[first], kind="stable")
    begins = np.ones(len(order), bool)
    begins[1:] = np.diff(pool_of[order]) != 0
    by_vector = np.argsort(inverse, kind="stable")
    ends = np.cumsum(np.bincount(inverse, minlength=len(first)))
    for members in np.split(order, np.flatnonzero(begins)[1:]):
        if not len(members):
            continue
        pool = _Pool(vectors, distance, memory_bytes, _width(vectors, first[members]))
        candidates = {int(each): pool.add(int(first[each])) for each in members}
        for each, at_first in candidates.items():
            rows = by_vector[ends[each - 1] if each else 0 : ends[each]]
            # Representatives that came later are candidates of later launches with this vector.
            near_rows = at_first if len(rows) == 1 else pool.near(int(rows[0]), before=int(rows[-1]))
            representative[rows] = (
                near_rows[0] if len(near_rows) == 1 else _nearest(vectors.warps, near_rows, rows)
            )
    return representative


def _nearest(warps: np.ndarray, candidates: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The representative of each launch, shape (m,), among the candidates before it, in their order."""
    chosen = np.empty(len(rows), np.intp)
    available = np.searchsorted(candidates, rows, side="right")
    for value in np.unique(warps[rows]):
        difference = np.abs(warps[candidates] - value)
        least = np.minimum.accumulate(difference)
        is_new = np.append(True, least[1:] < least[:-1])
        best = np.maximum.accumulate(np.where(is_new, np.arange(len(candidates)), 0))
        here = warps[rows] == value
        chosen[here] = candidates[best[available[here] - 1]]
    return chosen


@dataclass
class _Pool:
    """Representatives of one pool: launches (rows) in their order, and by norm; ``width`` blocks a vector."""

    vectors: BasicBlockVectors
    distance: float
    memory_bytes: int
    width: int
    _rows: list[int] = field(default_factory=list)
    _norms: list[float] = field(default_factory=list)
    _by_norm: list[int] = field(default_factory=list)
    _matrix: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))

    def add(self, row: int) -> np.ndarray:
        """The candidates of a launch with a new vector; without any, itself, now a representative."""
        candidates = self.near(row)
        if not len(candidates):
            self._append(row)
            candidates = np.array([row])
        return candidates

    def near(self, row: int, before: int | None = None) -> np.ndarray:
        """Rows of the candidates of a launch, ascending, none after ``before``."""
        vector = self._dense(row)
        norm = float(np.sqrt(np.square(vector).sum()))
        limit = norm + _NORM_OFFSET
        # A little wider than the threshold, for the rounding of norms; the distances then decide.
        reach = self.distance * limit * (1 + 1e-9) + 1e-12 * norm
        low, high = bisect_left(self._norms, norm - reach), bisect_right(self._norms, norm + reach)
        places = np.sort(np.array(self._by_norm[low:high], np.intp))
        rows = np.array([self._rows[place] for place in places.tolist()], np.intp)
        if before is not None:
            places, rows = places[rows <= before], rows[rows <= before]
        step = max(1, _BLOCK_VALUES // max(1, self.width))
        is_near = np.zeros(len(places), bool)
        for start in range(0, len(places), step):
            part = slice(start, start + step)
            apart = np.sqrt(np.square(self._matrix[places[part]] - vector).sum(axis=1))
            is_near[part] = apart / limit < self.distance
        return rows[is_near]

    def _append(self, row: int) -> None:
        place = len(self._rows)
        if place == len(self._matrix):
            grown = max(8, 2 * place)
            if 8 * grown * self.width > self.memory_bytes:
                raise RefusedError(
                    "photon",
                    f"{place:,} representatives with {self.width:,} basic blocks each take more than "
                    f"{self.memory_bytes:,} bytes",
                    "use stem or sieve, which need no basic-block vectors, or a larger distance",
                )
            matrix = np.zeros((grown, self.width))
            matrix[:place] = self._matrix[:place] if place else 0
            self._matrix = matrix
        self._matrix[place] = self._dense(row)
        norm = float(np.sqrt(np.square(self._matrix[place]).sum()))
        at = bisect_right(self._norms, norm)
        self._norms.insert(at, norm)
        self._by_norm.insert(at, place)
        self._rows.append(row)

    def _dense(self, row: int) -> np.ndarray:
        entries = slice(int(self.vectors.offsets[row]), int(self.vectors.offsets[row + 1]))
        dense = np.zeros(self.width)
        dense[self.vectors.block[entries]] = self.vectors.count[entries]
        return dense


def _width(vectors: BasicBlockVectors, rows: np.ndarray) -> int:
    """Number of blocks of the longest of these vectors: one more than its last index."""
    ends, starts = vectors.offsets[rows + 1], vectors.offsets[rows]
    last = ends[ends > starts] - 1
    return int(vectors.block[last].max(initial=-1)) + 1


def _distinct(vectors: BasicBlockVectors, pools: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First launch of each distinct vector of each pool, ascending, and which of them each launch is."""
    lengths = np.diff(vectors.offsets)
    for seed in count():
        # The sum of the hashes of its entries, modulo 2^64; differences of running sums wrap as they must.
        running = np.zeros(len(vectors.block) + 1, np.uint64)
        np.cumsum(hash_rows([vectors.block, vectors.count], seed=seed), out=running[1:])
        total = running[vectors.offsets[1:]] - running[vectors.offsets[:-1]]
        key = hash_rows([pools, total, lengths], seed=seed)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        same = first[inverse]
        if not np.array_equal(lengths[same], lengths) or not np.array_equal(pools[same], pools):
            continue
        entry = np.arange(len(vectors.block))
        twin = entry + np.repeat(vectors.offsets[same] - vectors.offsets[:-1], lengths)
        if np.array_equal(vectors.block[twin], vectors.block) and np.array_equal(
            vectors.count[twin], vectors.count
        ):
            break
    order = np.argsort(first)
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]
