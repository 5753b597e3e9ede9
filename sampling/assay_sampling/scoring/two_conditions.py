"""Numbers of one workload under two conditions: an SM share against all SMs, flushed caches against warm.

    speedup                      = total at the share / total at all SMs, of the same launches
    weighted_difference_percent  = 100 sum w |flushed - warm| / sum w warm
    IPC difference               = (IPC flushed - IPC warm) / IPC warm = warm / flushed - 1, in cycles

Pure functions of arrays; :mod:`assay_sampling.launches.alignment` finds which launches are the same.

Source: docs/conditions.md, "What is compared"; Quantifying and mitigating the cold-start problem ("flushed
against warm runs"); Principal Kernel Analysis (halving the SMs through MPS).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from assay_sampling.errors import ParameterError, RefusedError

SMS_PER_TPC = 2
# Hopper hands SMs out in eights (clusters).
_COARSE_SINCE, _COARSE_STEP = 9, 8
# Static partitions of the SMs, by chunks.
_PARTITIONS_SINCE, _CHUNK_BEFORE = 8, 4
# The paper's thresholds.
DIFFERENCE_THRESHOLDS_PERCENT = (5.0, 10.0, 15.0, 20.0)


def ratio_of_totals(numerator: np.ndarray, denominator: np.ndarray) -> float:
    """Sum of one cost / sum of the other, both of shape (m,) over the same launches.

    Raises RefusedError if the second sum is not positive.
    """
    return float(numerator.sum()) / _positive(float(denominator.sum()), "the launches at all SMs")


def weighted_difference_percent(
    warm: np.ndarray, flushed: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """100 sum w |flushed - warm| / sum w warm: how far launches move, which cannot cancel.

    ``warm`` and ``flushed`` are the costs of the same launches, shape (m,); ``weights``, shape (m,), those of
    representatives, default 1. Raises RefusedError if the warm launches cost nothing.
    """
    weight = np.ones(len(warm)) if weights is None else weights
    total = _positive(float((weight * warm).sum()), "the launches with warm caches")
    return 100.0 * float((weight * np.abs(flushed - warm)).sum()) / total


def differences_percent(warm: np.ndarray, flushed: np.ndarray) -> np.ndarray:
    """100 (flushed - warm) / warm of each launch, shape (m,); NaN where the warm launch cost nothing."""
    return _relative_percent(flushed - warm, warm)


def ipc_differences_percent(warm_cycles: np.ndarray, flushed_cycles: np.ndarray) -> np.ndarray:
    """100 (IPC flushed - IPC warm) / IPC warm of each launch, shape (m,), for the same instructions.

    NaN where the flushed launch took no cycles.
    """
    return _relative_percent(warm_cycles - flushed_cycles, flushed_cycles)


def _relative_percent(difference: np.ndarray, base: np.ndarray) -> np.ndarray:
    percent = np.full(len(base), np.nan)
    np.divide(100.0 * difference, base, out=percent, where=base > 0)
    return percent


def shares_over_percent(
    instructions: np.ndarray,
    differences: np.ndarray,
    thresholds: Sequence[float] = DIFFERENCE_THRESHOLDS_PERCENT,
) -> list[float]:
    """Share of the instructions, in percent, in launches whose difference is at least each threshold.

    ``instructions`` and ``differences`` (percent, either sign) have shape (m,); launches with an unknown
    difference count as below. Raises RefusedError if there are no instructions.
    """
    total = _positive(float(instructions.sum()), "the launches' instructions")
    size = np.nan_to_num(np.abs(differences), nan=0.0)
    return [100.0 * float(instructions[size >= threshold].sum()) / total for threshold in thresholds]


def effective_sms(sm_count: int, sm_percent: float) -> int:
    """Number of SMs in a share: rounded down to whole TPCs of two SMs, at least one.

    MPS rounds down to what the hardware supports, which is the TPC on all GPUs that we know of.
    Raises ParameterError for a share outside (0, 100] or a GPU without SMs.
    """
    if not 0 < sm_percent <= 100 or sm_count < 1:
        raise ParameterError(
            "SM share", f"{sm_percent:g} % of {sm_count} SMs is not a share", "give one in (0, 100]"
        )
    # The margin keeps 30 % of 10 TPCs at 3: the product is 2.9999999999999996.
    tpcs = int(sm_count // SMS_PER_TPC * sm_percent / 100.0 + 1e-9)
    return min(sm_count, SMS_PER_TPC * max(1, tpcs))


def share_bounds(sm_count: int, sm_percent: float, compute_capability: str = "") -> tuple[int, int]:
    """The fewest and the most SMs with which a share below 100 % counts as in force, both included.

    MPS rounds a share down to what the hardware supports, which is not documented for each GPU. So the bounds
    allow for the coarsest step in which the architecture hands out SMs (pairs, a TPC, before compute
    capability 9.0, eight from then on or where it is unknown) and for one more pair either way. Source:
    NVIDIA, Multi-Process Service (active thread percentage; chunks of static partitions), CUDA driver API
    (cuDevSmResourceSplitByCount). Raises ParameterError as :func:`effective_sms`.
    """
    rounded = effective_sms(sm_count, sm_percent)
    share = sm_count * sm_percent / 100.0
    major = compute_capability.partition(".")[0]
    step = SMS_PER_TPC if major.isdecimal() and int(major) < _COARSE_SINCE else _COARSE_STEP
    least = min(int(share / step + 1e-9) * step, rounded) - SMS_PER_TPC
    most = math.ceil(share - 1e-9) + SMS_PER_TPC
    return max(1, least), max(1, min(most, sm_count - 1))


def has_static_partitions(compute_capability: str) -> bool:
    """Whether GPUs of a compute capability have static partitions of their SMs: Ampere and newer ones."""
    major = compute_capability.partition(".")[0]
    return major.isdecimal() and int(major) >= _PARTITIONS_SINCE


def chunks_of_share(sm_count: int, sm_percent: float, compute_capability: str) -> int:
    """Number of static-partition chunks in a share, rounded down: 0 for less than one.

    A chunk is eight SMs from Hopper on, four before (NVIDIA, Multi-Process Service, version 2 of its
    interface). Raises ParameterError as :func:`effective_sms`.
    """
    effective_sms(sm_count, sm_percent)
    major = int(compute_capability.partition(".")[0])
    chunk = _COARSE_STEP if major >= _COARSE_SINCE else _CHUNK_BEFORE
    return int(sm_count * sm_percent / 100.0 / chunk + 1e-9)


def relative_standard_deviation_percent(totals: Sequence[float]) -> float:
    """Noise over repeats: 100 x sample standard deviation (n - 1) / mean of their totals.

    Raises ParameterError for fewer than two, RefusedError if their mean is not positive.
    """
    if len(totals) < 2:
        raise ParameterError("repeats", f"{len(totals)} of them cannot show noise", "give two or more")
    values = np.asarray(totals, np.float64)
    mean = _positive(float(values.mean()), "the repeats")
    return 100.0 * float(values.std(ddof=1)) / mean


def counterparts(rows: np.ndarray, left_rows: np.ndarray, right_rows: np.ndarray) -> np.ndarray:
    """The row that each of ``rows``, shape (r,), was matched with, or -1; shape (r,).

    ``left_rows``, ascending, and ``right_rows``, both of shape (m,), are an alignment.
    """
    if not len(left_rows):
        return np.full(len(rows), -1, np.int64)
    position = np.minimum(np.searchsorted(left_rows, rows), len(left_rows) - 1)
    return np.where(left_rows[position] == rows, right_rows[position], -1).astype(np.int64)


def _positive(total: float, subject: str) -> float:
    if not total > 0:
        raise RefusedError(subject, "their total is not positive, so nothing can be compared with it")
    return total
