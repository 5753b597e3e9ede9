"""How many threads launches run: the size of what they were asked for, known without any counter."""

from __future__ import annotations

from typing import Literal

import numpy as np

from assay_sampling.launches.in_memory import Launches

Side = Literal["block", "grid"]


def threads(launches: Launches, sides: tuple[Side, ...] = ("block", "grid")) -> np.ndarray:
    """Threads of a block, or of the whole grid, of every launch, shape (n,), int64."""
    return launches.computed([f"{what}_{axis}" for what in sides for axis in "xyz"], np.int64, _product)


def _product(axes: list[np.ndarray]) -> np.ndarray:
    product = np.ones(len(axes[0]), np.int64)
    for axis in axes:
        # An axis that the recording does not know (-1) is part of the total, which is in x.
        product *= np.maximum(axis.astype(np.int64), 1)
    return product
