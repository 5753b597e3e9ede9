"""Cells of launches that are alike as far as a light run tells, in the order in which launches are drawn.

A cell is the launches of one kernel and size (threads). Kernels come by their share of time, the largest
first; within them sizes, and within these times, go up in one kernel and down in the next. Neighbours in this
serpentine order are alike, so launches at equal steps along it are spread over everything there is.

Source: serpentine order for systematic samples: Cochran, Sampling Techniques, 3rd edition, section 8.9;
docs/methods/balanced.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_sampling.methods.kernel_values import codes_in_order_of_use, value_codes


@dataclass(frozen=True)
class Cells:
    """Cells numbered in the order of the draw.

    ``of_launch`` is the cell of every launch, shape (n,); ``order`` their rows in the order of the draw,
    shape (n,); ``kernel``, shape (c,), is the rank by time of the kernel of each cell, ascending.
    """

    of_launch: np.ndarray
    order: np.ndarray
    kernel: np.ndarray

    @classmethod
    def of(
        cls, kernel: np.ndarray, threads: np.ndarray, time: np.ndarray, counts: np.ndarray | None = None
    ) -> Cells:
        """Cells of launches with these kernel ids, threads and times, each of shape (n,); with ``counts``
        each row is so many launches."""
        code, kernels = codes_in_order_of_use(kernel)
        rank_of = np.empty(len(kernels), np.int64)
        whole = time if counts is None else time * counts
        rank_of[np.argsort(-np.bincount(code, whole), kind="stable")] = np.arange(len(kernels))
        rank = rank_of[code]
        size, sizes = value_codes(threads)
        down = rank % 2 == 1
        place = np.where(down, len(sizes) - 1 - size, size)
        cell, pairs = value_codes(rank * len(sizes) + place)
        order = np.lexsort((np.where(down, -time, time), cell))
        return cls(cell, order, pairs // len(sizes))

    def groups(self, rows: np.ndarray, whole: np.ndarray, roots: np.ndarray) -> np.ndarray:
        """Group of every launch, shape (n,), 0-based in the order of the draw.

        Args:
            rows: of the representatives, shape (r,).
            whole: which of them were taken whole, shape (r,).
            roots: of the times of every row, summed over its launches, shape (n,).

        A group is a cell, without the launches taken whole where others of it were drawn: these are a group
        of their own. A cell without representatives joins the nearest that has one: of its kernel, else of
        any. How near is the sum of the roots between two cells' middles.
        """
        cells = np.arange(len(self.kernel))
        met = np.zeros(len(cells), bool)
        met[self.of_launch[rows]] = True
        before = np.maximum.accumulate(np.where(met, cells, -1))
        after = np.minimum.accumulate(np.where(met, cells, len(cells))[::-1])[::-1]
        has_before, has_after = before >= 0, after < len(cells)
        before = np.maximum(before, 0)
        after = np.minimum(after, len(cells) - 1)
        width = np.bincount(self.of_launch, roots, len(cells))
        middle = np.cumsum(width) - width / 2
        own_before = has_before & (self.kernel[before] == self.kernel)
        own_after = has_after & (self.kernel[after] == self.kernel)
        nearer = ~has_after | (has_before & (middle - middle[before] <= middle[after] - middle))
        takes_before = np.where(own_before == own_after, nearer, own_before)
        joined = np.where(takes_before, before, after)[self.of_launch]
        drawn_from = np.zeros(len(cells), bool)
        drawn_from[self.of_launch[rows[~whole]]] = True
        apart = rows[whole][drawn_from[self.of_launch[rows[whole]]]]
        code = 2 * joined
        code[apart] += 1
        used = np.zeros(2 * len(cells), bool)
        used[code] = True
        labels: np.ndarray = (np.cumsum(used) - 1)[code]
        return labels
