"""Facts of each signature that a light run gives in numbers: its kernel, its size, and its mean time.

Memory: 32 bytes a distinct signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.signatures import Signatures

_WARP_THREADS = 32


@dataclass(frozen=True)
class LightFacts:
    """Facts of m signatures, each of shape (m,).

    ``kernel`` holds name ids, ``blocks`` the thread blocks of the grid, ``warps`` those of all blocks, and
    ``light_ns`` the mean duration of the signature's launches in the light run, at least 1 ns; None where
    the light run has no durations.
    """

    kernel: np.ndarray
    blocks: np.ndarray
    warps: np.ndarray
    light_ns: np.ndarray | None

    @classmethod
    def of(cls, light: Launches, signatures: Signatures) -> LightFacts:
        """Facts of all signatures of a light run."""
        blocks = _extent(signatures.columns, "grid")
        warps = blocks * np.ceil(_extent(signatures.columns, "block") / _WARP_THREADS)
        return cls(signatures.columns["kernel_id"], blocks, warps, _mean_durations(light, signatures))

    def __len__(self) -> int:
        return len(self.kernel)

    def take(self, chosen: np.ndarray | slice) -> LightFacts:
        """The facts of some of the signatures."""
        light_ns = None if self.light_ns is None else self.light_ns[chosen]
        return LightFacts(self.kernel[chosen], self.blocks[chosen], self.warps[chosen], light_ns)


def _extent(columns: Mapping[str, np.ndarray], what: str) -> np.ndarray:
    # An axis that is not known counts as 1: x then holds the total.
    sizes = [np.maximum(columns[f"{what}_{axis}"], 1).astype(np.float64) for axis in "xyz"]
    return np.asarray(sizes[0] * sizes[1] * sizes[2])


def _mean_durations(light: Launches, signatures: Signatures) -> np.ndarray | None:
    if light.table["duration_ns"].null_count:
        return None
    total = np.bincount(signatures.inverse, light.column("duration_ns"), len(signatures))
    launches = np.bincount(signatures.inverse, minlength=len(signatures))
    return np.asarray(np.maximum(total / launches, 1.0))
