"""Complete-linkage clustering of distinct rows, exactly, with one tree for every threshold up to a limit.

The largest distance within a cluster of complete linkage is at most its threshold. So rows that are further
apart, and not linked by a chain of closer ones, never meet: rows are first put into cells as wide as the
limit, and touching cells into components. Each component has its own tree, which gives the same clusters as
the tree of all rows would, and only the distances within a component are held.

Source: TBPoint (Huang et al., IPDPS 2014), section III ("maximum distance between any two points").
Memory: 8 c^2 bytes for the largest component, of c distinct rows, and 300 bytes a distinct row.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from assay_sampling.clustering.distinct import distinct_rows
from assay_sampling.errors import MissingExtraError, ParameterError, RefusedError

DEFAULT_MAX_ROWS = 20_000
_BYTES_PER_PAIR = 16  # the distances, and the copy that the linkage works on


@dataclass(frozen=True)
class CompleteLinkage:
    """Trees of the distinct rows, m of them in the order of their first row, for thresholds up to ``limit``.

    ``first``, shape (m,), is the first row of each distinct row, ``inverse``, shape (n,), which of them each
    row is. ``merges``, shape (j, 2), are pairs of distinct rows, one from either side of a merge, and
    ``heights``, shape (j,), the largest distance between the two sides.
    """

    limit: float
    first: np.ndarray
    inverse: np.ndarray
    merges: np.ndarray
    heights: np.ndarray

    def labels(self, threshold: float) -> np.ndarray:
        """Cluster of every row, shape (n,); see :meth:`distinct_labels`."""
        labels: np.ndarray = self.distinct_labels(threshold)[self.inverse]
        return labels

    def distinct_labels(self, threshold: float) -> np.ndarray:
        """Cluster of every distinct row, shape (m,), numbered by their first row: within each, no two rows
        are further apart than ``threshold``. Raises ParameterError for a threshold above ``limit`` or below
        0.
        """
        if not 0 <= threshold <= self.limit:
            raise ParameterError(
                "clustering", f"the threshold is {threshold:g}", f"give a number from 0 to {self.limit:g}"
            )
        _, labels = _connected(self.merges[self.heights <= threshold], len(self.first))
        return _by_first_row(labels)


def complete_linkage(
    rows: np.ndarray,
    limit: float,
    *,
    kind: np.ndarray | None = None,
    max_rows: int = DEFAULT_MAX_ROWS,
    subject: str = "clustering",
) -> CompleteLinkage:
    """Cluster rows, float64 of shape (n, d) without NaN, by Euclidean distance. Rows of unlike ``kind``,
    whole numbers of shape (n,), never share a cluster.

    Raises RefusedError, for ``subject``, if more than ``max_rows`` distinct rows are so close together that
    the distances between all of them are needed; ParameterError for a limit that is not positive;
    MissingExtraError if SciPy is not installed.
    """
    if not 0 < limit < np.inf:
        raise ParameterError(subject, f"the threshold is {limit:g}", "give a number above 0")
    kinds = np.zeros(len(rows)) if kind is None else np.asarray(kind, np.float64)
    distinct = distinct_rows(rows if kind is None else np.column_stack([rows, kinds]))
    order = np.argsort(distinct.first)
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    first = distinct.first[order]
    points = rows[first]
    merges, heights = [np.empty((0, 2), np.intp)], [np.empty(0)]
    for members in _components(points, kinds[first], limit):
        _refuse_too_many(len(members), len(first), max_rows, subject)
        pairs, height = _tree(points[members])
        within = height <= limit
        merges.append(members[pairs[within]])
        heights.append(height[within])
    return CompleteLinkage(
        limit, first, rank[distinct.inverse], np.concatenate(merges), np.concatenate(heights)
    )


def _refuse_too_many(members: int, distinct: int, max_rows: int, subject: str) -> None:
    if members > max_rows:
        gibibytes = _BYTES_PER_PAIR * members * (members - 1) / 2 / 2**30
        raise RefusedError(
            subject,
            f"{members:,} of {distinct:,} distinct launches are within reach of each other, and the "
            f"distances between all of them take {gibibytes:,.1f} GiB; at most {max_rows:,} are allowed",
            "use pks, whose memory grows only with the launches, or allow more with max_distinct",
        )


def _components(points: np.ndarray, kind: np.ndarray, limit: float) -> list[np.ndarray]:
    """Rows of at least two points each of one kind that may come within ``limit`` of each other, by touching
    cells."""
    if len(points) < 2:
        return []
    # Cells a little wider than the limit: rounding must not put two points at the limit two cells apart.
    cells = np.column_stack([np.floor((points - points.min(axis=0)) / (limit * (1 + 1e-9))), kind])
    distinct = distinct_rows(cells)
    edges = _touching(cells[distinct.first])
    count, of_cell = _connected(edges, len(distinct.first))
    component = of_cell[distinct.inverse]
    by_component = np.argsort(component, kind="stable")
    groups = np.split(by_component, np.cumsum(np.bincount(component, minlength=count))[:-1])
    return [members for members in groups if len(members) > 1]


def _touching(cells: np.ndarray) -> np.ndarray:
    """Pairs of cells, shape (e, 2), that differ by at most 1 in every coordinate, and not at all in the
    last, their kind; cells has shape (c, d + 1)."""
    pairs = [np.empty((0, 2), np.intp)]
    for offset in product(*[(-1.0, 0.0, 1.0)] * (cells.shape[1] - 1), (0.0,)):
        if offset <= (0.0,) * cells.shape[1]:
            continue  # the other direction of a pair, or the cell itself
        both = distinct_rows(np.concatenate([cells, cells + offset]))
        # No cell is there twice: the same row in both halves is a neighbour.
        here = np.full(len(both.first), -1)
        here[both.inverse[: len(cells)]] = np.arange(len(cells))
        neighbour = here[both.inverse[len(cells) :]]
        there = np.flatnonzero(neighbour >= 0)
        pairs.append(np.stack([there, neighbour[there]], axis=1))
    return np.concatenate(pairs)


def _tree(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merges of c points: pairs of points, one from either side, (c - 1, 2), and heights, (c - 1,)."""
    if len(points) == 2:
        return np.array([[0, 1]]), np.sqrt(np.square(points[:1] - points[1:]).sum(axis=1))
    try:
        from scipy.cluster.hierarchy import linkage  # noqa: PLC0415
        from scipy.spatial.distance import pdist  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("hierarchical clustering", "scipy", "analysis") from error
    tree = linkage(pdist(points), "complete")
    # Any member can stand for a cluster in a merge: take the one that stands for its first side.
    member = np.concatenate([np.arange(len(points)), np.zeros(len(tree), np.intp)])
    sides = tree[:, :2].astype(np.intp)
    for step, side in enumerate(sides[:, 0].tolist()):
        member[len(points) + step] = member[side]
    return member[sides], tree[:, 2]


def _connected(edges: np.ndarray, count: int) -> tuple[int, np.ndarray]:
    """Number of components of a graph of ``count`` nodes, and that of each node, shape (count,)."""
    try:
        from scipy.sparse import coo_array  # noqa: PLC0415
        from scipy.sparse.csgraph import connected_components  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("hierarchical clustering", "scipy", "analysis") from error
    if not count:
        return 0, np.empty(0, np.intp)
    graph = coo_array((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(count, count))
    components, labels = connected_components(graph, directed=False)
    return int(components), labels.astype(np.intp)


def _by_first_row(labels: np.ndarray) -> np.ndarray:
    """The labels, renumbered in the order in which they first appear."""
    if not len(labels):
        return labels
    first = np.unique(labels, return_index=True)[1]
    number = np.empty(len(first), np.intp)
    number[np.argsort(first)] = np.arange(len(first))
    renumbered: np.ndarray = number[labels]
    return renumbered
