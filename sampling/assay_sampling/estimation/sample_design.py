"""How the representatives of a selection were drawn, and what its profile knew of their groups.

Saved with the selection: an interval on another GPU's recording needs both, and that recording has neither.
Source: docs/methods/target-intervals.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay_sampling.engines.blockwise import counts_by, sums_by
from assay_sampling.engines.columns import place_of
from assay_sampling.engines.seam import ArrayRows

# "rule": none at random. "uniform": within groups, without replacement. "light_time": within groups, at equal
# steps of light time in order of size. "proportional": with replacement, in proportion to light time.
# "root_light_time": systematically, in proportion to the root of light time. By light time or its root,
# launches that dominate are taken whole.
Drawing = Literal["rule", "uniform", "light_time", "proportional", "root_light_time"]
# Those which say of each launch how many draws met it.
COUNTED_DRAWS: tuple[Drawing, ...] = ("proportional", "root_light_time")


@dataclass(frozen=True)
class SampleDesign:
    """The design of a sample of r launches from g groups.

    ``launches``, ``kernels`` (distinct ones) and ``cost_cov`` (standard deviation / mean of the cost on the
    profile, divisor N - 1) have shape (g,). ``light_time``, shape (r,), is None without a light run.
    ``draws``, shape (r,), is how many draws met each, 0 if it was taken whole; None unless ``drawing`` is one
    of :data:`COUNTED_DRAWS`. ``launches_without_time``: how
    many of all launches had a light time of 0: weights by light time count them for nothing.
    """

    drawing: Drawing
    launches: np.ndarray
    kernels: np.ndarray
    cost_cov: np.ndarray
    light_time: np.ndarray | None = None
    draws: np.ndarray | None = None
    launches_without_time: int = 0


def nothing_drawn(drawing: Drawing, launches: np.ndarray) -> SampleDesign | None:
    """The design of launches chosen by a rule from groups of so many, shape (g,); None if they were drawn,
    and nobody wrote down of what."""
    if drawing != "rule":
        return None
    return SampleDesign("rule", launches, np.zeros(0, np.int64), np.zeros(0))


def cost_cov(costs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Coefficient of variation of the cost within each group, shape (g,); 0 for a group without any cost.

    ``costs`` and ``labels`` (0-based) have shape (n,). The deviation has the divisor N - 1, because launches
    are drawn without replacement.
    """
    counts = counts_by(labels)
    mean = sums_by(labels, costs) / np.maximum(counts, 1)
    squares = sums_by(labels, costs, change=lambda part, group: np.square(part - mean[group]))
    deviation = np.sqrt(squares / np.maximum(counts - 1, 1))
    cov: np.ndarray = np.divide(deviation, mean, out=np.zeros_like(mean), where=mean > 0)
    return cov


def distinct_kernels(kernels: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Distinct kernels of each group, shape (g,); ``kernels`` (ids) and ``labels`` have shape (n,)."""
    place = place_of(kernels, labels)
    if place is not None:
        rows = ArrayRows({"label": labels, "kernel": kernels})
        of_label = place.engine.groups(rows, ["label", "kernel"]).key("label")
        return np.bincount(of_label)
    # Arrow counts by hashing: no sort of all launches.
    encoded = pa.array(kernels).dictionary_encode()
    count = max(len(encoded.dictionary), 1)
    pairs = labels.astype(np.int64) * count + encoded.indices.to_numpy(zero_copy_only=False)
    kernel_counts: np.ndarray = np.bincount(pc.unique(pa.array(pairs)).to_numpy() // count)
    return kernel_counts
