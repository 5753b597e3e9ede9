"""Launches of one kernel, number of threads and time: the sampler works on these, not on every launch.

Memory: at most 80 bytes a launch, or of launches on disk 200 bytes a distinct combination.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.engines.columns import blocks, in_place_of
from assay_sampling.launches.in_memory import Launches
from assay_sampling.methods.kernel_values import kernel_values
from assay_sampling.methods.thread_counts import threads


@dataclass(frozen=True)
class AlikeLaunches:
    """``of_launch``, shape (n,), is the combination of every launch, on disk where the launches are; of each
    combination, shape (m,): ``kernel``, ``threads``, ``time`` and how many launches it is (``count``)."""

    of_launch: np.ndarray
    kernel: np.ndarray
    threads: np.ndarray
    time: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, launches: Launches, time: np.ndarray) -> AlikeLaunches:
        """Of launches with the light time ``time``, shape (n,), in memory or on disk."""
        kernel, size = launches.array("kernel_id"), threads(launches)
        kernels, sizes = _distinct(kernel), _distinct(size)
        pair = in_place_of(
            kernel,
            np.int64,
            lambda block: (
                np.searchsorted(kernels, kernel[block]) * len(sizes) + np.searchsorted(sizes, size[block])
            ),
            size,
        )
        atoms = kernel_values(pair, time)
        of_pair = np.asarray(pair[atoms.first_row])
        return cls(
            of_launch=atoms.atom,
            kernel=kernels[of_pair // len(sizes)],
            threads=sizes[of_pair % len(sizes)],
            time=np.asarray(atoms.value, np.float64),
            count=np.asarray(atoms.count).astype(np.int64),
        )

    def rows(self, whole: np.ndarray, drawn: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the launches that were chosen, ascending, and the combination of each, shape (r,).

        Args:
            whole: combinations of which every launch was chosen, shape (w,).
            drawn: combinations of which launch number ``place`` was chosen, from 0, in the order of the
                rows; both of shape (d,).
        """
        with_chosen = np.zeros(len(self.time), bool)
        with_chosen[whole] = True
        every = with_chosen.copy()
        with_chosen[drawn] = True
        most = int(self.count.max(initial=0)) + 1
        chosen = np.sort(drawn * most + place)
        before = np.zeros(len(self.time), np.int64)
        parts = []
        for block in blocks(len(self.of_launch), self.of_launch):
            of_rows = np.asarray(self.of_launch[block])
            near = np.flatnonzero(with_chosen[of_rows])
            near = near[np.argsort(of_rows[near], kind="stable")]
            kind = of_rows[near]
            index, first, counts = np.unique(kind, return_index=True, return_counts=True)
            number = np.arange(len(kind)) - np.repeat(first, counts) + before[kind]
            before[index] += counts
            mask = every[kind]
            if len(chosen):
                key = kind.astype(np.int64) * most + number
                at = np.minimum(np.searchsorted(chosen, key), len(chosen) - 1)
                mask |= chosen[at] == key
            parts.append(np.sort(near[mask]) + block.start)
        rows = np.concatenate([np.empty(0, np.int64), *parts])
        return rows, np.asarray(self.of_launch[rows]).astype(np.int64)


def _distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values of a column of integers, ascending."""
    parts = [pc.unique(pa.array(values[block])).to_numpy() for block in blocks(len(values), values)]
    distinct_values: np.ndarray = np.unique(np.concatenate(parts)) if parts else values[:0]
    return distinct_values
