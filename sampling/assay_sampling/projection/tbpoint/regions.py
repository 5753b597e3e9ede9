"""Homogeneous regions of one launch: which thread blocks run under similar conditions.

Thread blocks in the order of their ids are cut into epochs of as many blocks as are resident at once on the
whole GPU. Epochs are clustered by their stall probability; an epoch whose blocks differ too much leaves its
cluster and is outside all regions, so that its blocks are simulated as usual. Consecutive epochs of one
cluster are a homogeneous region. Another configuration needs only new epochs, not a new profile.

Source: TBPoint (Huang et al., IPDPS 2014), section IV-B1, equations 4 and 5, table III.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_sampling.clustering.complete_linkage import complete_linkage
from assay_sampling.errors import ParameterError

DEFAULT_STALL_THRESHOLD = 0.2
DEFAULT_VARIANCE_LIMIT = 0.3
NO_REGION = -1


@dataclass(frozen=True)
class Epochs:
    """Epochs of a launch as columns, each of shape (e,).

    ``first_block`` is the id of the first block, ``stall_probability`` the mean over its blocks of memory
    requests / warp instructions, ``variance_factor`` the larger of the coefficients of variation of both.
    """

    first_block: np.ndarray
    stall_probability: np.ndarray
    variance_factor: np.ndarray


@dataclass(frozen=True)
class Regions:
    """The table of homogeneous regions, in order of blocks, each column of shape (r,); block ids inclusive.

    ``cluster`` says which regions are of one kind; ``of_block``, shape (blocks,), gives the region of each
    block, NO_REGION outside all of them.
    """

    first_block: np.ndarray
    last_block: np.ndarray
    cluster: np.ndarray
    of_block: np.ndarray

    def rows(self) -> list[dict[str, int]]:
        """The table as the paper prints it: region, first block, last block."""
        columns = zip(self.first_block.tolist(), self.last_block.tolist(), self.cluster.tolist(), strict=True)
        return [
            {"region": region, "first_block": first, "last_block": last, "cluster": cluster}
            for region, (first, last, cluster) in enumerate(columns)
        ]


def epochs_of(warp_instructions: np.ndarray, memory_requests: np.ndarray, resident_blocks: int) -> Epochs:
    """Cut a launch into epochs of ``resident_blocks`` blocks; the last may be shorter.

    Args:
        warp_instructions, memory_requests: of each block by its id, shape (blocks,).
        resident_blocks: blocks resident at once on the whole GPU
            (:func:`assay_sampling.projection.tbpoint.occupancy.resident_blocks`).

    A block without instructions has the stall probability 0. Raises ParameterError for arrays of different
    length, values that are negative or not finite, or fewer than one resident block.
    """
    instructions, requests = _checked(warp_instructions), _checked(memory_requests)
    if len(instructions) != len(requests):
        raise ParameterError(
            "epochs",
            f"there are instructions of {len(instructions):,} blocks and requests of {len(requests):,}",
        )
    if resident_blocks < 1:
        raise ParameterError("epochs", f"{resident_blocks} blocks are resident", "give at least 1")
    first = np.arange(0, len(instructions), resident_blocks)
    if not len(first):
        return Epochs(first, np.empty(0), np.empty(0))
    ratio = np.divide(requests, instructions, out=np.zeros(len(requests)), where=instructions > 0)
    sizes = np.diff(np.append(first, len(instructions)))
    variance = np.maximum(_variation(requests, first, sizes), _variation(instructions, first, sizes))
    return Epochs(first, np.add.reduceat(ratio, first) / sizes, variance)


def regions_of(
    epochs: Epochs,
    blocks: int,
    *,
    stall_threshold: float = DEFAULT_STALL_THRESHOLD,
    variance_limit: float = DEFAULT_VARIANCE_LIMIT,
) -> Regions:
    """The homogeneous regions of a launch of ``blocks`` blocks.

    Args:
        stall_threshold: largest difference of stall probabilities within a cluster (complete linkage).
        variance_limit: an epoch with a larger variance factor is outside all regions.

    Raises what :func:`assay_sampling.clustering.complete_linkage.complete_linkage` raises.
    """
    linkage = complete_linkage(epochs.stall_probability[:, None], stall_threshold)
    cluster = np.where(epochs.variance_factor > variance_limit, NO_REGION, linkage.labels(stall_threshold))
    begins = np.ones(len(cluster), bool)
    begins[1:] = cluster[1:] != cluster[:-1]
    starts = np.flatnonzero(begins)
    ends = np.append(starts, len(cluster))[1:]
    in_region = cluster[starts] != NO_REGION
    after = np.append(epochs.first_block, blocks)
    first, last = after[starts[in_region]], after[ends[in_region]] - 1
    of_block = np.full(blocks, NO_REGION)
    inside = np.arange(blocks)
    at = np.searchsorted(first, inside, side="right") - 1
    within = (at >= 0) & (inside <= last[at]) if len(last) else np.zeros(blocks, bool)
    of_block[within] = at[within]
    return Regions(first, last, cluster[starts[in_region]], of_block)


def _checked(values: np.ndarray) -> np.ndarray:
    checked = np.asarray(values, np.float64)
    if checked.ndim != 1 or not bool((np.isfinite(checked) & (checked >= 0)).all()):
        raise ParameterError("epochs", "the count of a block is negative or not a number", "count again")
    return checked


def _variation(values: np.ndarray, first: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Population standard deviation / mean of each epoch, shape (e,); 0 where the mean is 0."""
    mean = np.add.reduceat(values, first) / sizes
    deviation = np.square(values - np.repeat(mean, sizes))
    spread = np.sqrt(np.add.reduceat(deviation, first) / sizes)
    return np.asarray(np.divide(spread, mean, out=np.zeros_like(mean), where=mean > 0))
