"""How much of a light run's time is in signatures that a window of it has not seen.

    unseen_time_percent = 100 x light time of launches whose signature is not in the window / light time

It needs no counters, so it is known before any launch is profiled. Here a signature is kernel, grid, block,
operator and input shapes. NVTX paths are left out: ranges often number the iterations, and every launch would
then be new for ever.

Source: ours; docs/methods/two-level.md, "Which launches to profile". Memory: 20 bytes a launch.
"""

from __future__ import annotations

import numpy as np

from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.row_hash import hash_rows
from assay_sampling.launches.signatures import SIGNATURE_COLUMNS, distinct_signatures


def signature_ordinals(light: Launches) -> np.ndarray:
    """The signature of every launch, as a number from 0 on: shape (n,), int64."""
    signatures = distinct_signatures(light)
    compared = [values for name, values in signatures.columns.items() if name != "nvtx_id"]
    assert len(compared) == len(SIGNATURE_COLUMNS) - 1
    _, ordinals = np.unique(hash_rows(compared), return_inverse=True)
    of_launch: np.ndarray = ordinals[signatures.inverse]
    return of_launch


def unseen_time_percent(light: Launches, window_rows: np.ndarray, cost: np.ndarray) -> float:
    """The share of the light time in signatures that the window does not show, in percent.

    ``window_rows``, shape (w,), are the rows of ``light`` that the window has; ``cost``, shape (n,), is the
    light time of every launch in ns.
    """
    ordinals = signature_ordinals(light)
    in_window = np.zeros(int(ordinals.max(initial=-1)) + 1, bool)
    in_window[ordinals[window_rows]] = True
    total = float(cost.sum(dtype=np.float64))
    return 100.0 * float(cost[~in_window[ordinals]].sum(dtype=np.float64)) / total if total > 0 else 0.0
