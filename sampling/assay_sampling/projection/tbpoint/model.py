"""The warp model behind TBPoint: how much the instructions per cycle vary with the order of warps.

An SM holds N independent warps. A runnable warp stalls with probability p in each cycle, a stalled one
becomes runnable with probability 1 / M; the SM issues one instruction in every cycle in which a warp is
runnable. The warps are independent, so the stationary distribution of the 2^N states is a product and needs
no matrix: warp x is stalled for the share p M_x / (1 + p M_x) of the time, and

    IPC = 1 - product over x of p M_x / (1 + p M_x)

Source: TBPoint (Huang et al., IPDPS 2014), section IV-A, Lemma 4.1 and equation 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay_sampling.errors import ParameterError

DEFAULT_SAMPLES = 10_000
# 95 % of the drawn stall lengths lie within 10 % of their mean.
RELATIVE_DEVIATION = 0.1 / 1.96
_BLOCK_VALUES = 1 << 22


def instructions_per_cycle(stall_probability: float, stall_cycles: np.ndarray) -> np.ndarray:
    """IPC of an SM, shape (...), for stall lengths in cycles, shape (..., N), each at least 1.

    Raises ParameterError for a probability outside [0, 1] or a stall below one cycle.
    """
    _check_probability(stall_probability)
    lengths = np.asarray(stall_cycles, np.float64)
    if not bool((lengths >= 1).all()):
        raise ParameterError("warp model", "a stall lasts less than one cycle", "give at least 1 cycle")
    odds = stall_probability * lengths
    ipc: np.ndarray = 1.0 - np.prod(odds / (1.0 + odds), axis=-1)
    return ipc


@dataclass(frozen=True)
class Variation:
    """IPC over random stall lengths: ``samples`` of shape (s,), and their ``mean``."""

    samples: np.ndarray
    mean: float

    def share_within(self, relative: float = 0.1) -> float:
        """Share of the samples, 0 to 1, whose IPC is less than this far from the mean."""
        if self.mean == 0:
            return 1.0
        return float((np.abs(self.samples - self.mean) < relative * self.mean).mean())


def ipc_variation(
    stall_probability: float,
    mean_stall_cycles: float,
    warps: int,
    *,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
) -> Variation:
    """IPC with the stall length of each warp drawn from N(mu, (0.1 mu / 1.96)^2), at least one cycle.

    Raises ParameterError for a probability outside [0, 1], a mean below one cycle, no warps or no samples.
    """
    _check_probability(stall_probability)
    if not (np.isfinite(mean_stall_cycles) and mean_stall_cycles >= 1):
        raise ParameterError("warp model", f"a stall lasts {mean_stall_cycles:g} cycles", "give at least 1")
    if warps < 1 or samples < 1:
        raise ParameterError("warp model", f"{warps} warps and {samples} samples", "give at least 1 of each")
    random = np.random.default_rng(seed)
    drawn = np.empty(samples)
    step = max(1, _BLOCK_VALUES // warps)
    for start in range(0, samples, step):
        size = (min(step, samples - start), warps)
        lengths = random.normal(mean_stall_cycles, RELATIVE_DEVIATION * mean_stall_cycles, size)
        drawn[start : start + step] = instructions_per_cycle(stall_probability, np.maximum(lengths, 1.0))
    return Variation(drawn, float(drawn.mean()))


def _check_probability(value: float) -> None:
    if not 0 <= value <= 1:
        raise ParameterError("warp model", f"the stall probability is {value:g}", "give a number from 0 to 1")
