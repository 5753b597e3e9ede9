"""Checks before slices of one run from several GPUs are joined: did the GPUs measure the same thing?

Model, tool, driver and condition are compared from the tables' metadata. The two checks here need the
launches: how fast the GPUs ran, and whether they launched the same kernels.
Source: docs/nvidia-tools.md, "What makes two measurements comparable".
"""

from __future__ import annotations

import numpy as np

from assay_sampling.errors import LaunchTableError, MisalignedError
from assay_sampling.launches.alignment import LEAST_MATCH_PERCENT, Alignment
from assay_sampling.launches.in_memory import Launches

MOST_CLOCK_DIFFERENCE_PERCENT = 5.0
_NS_TO_MHZ = 1e3


def clock_mhz(launches: Launches, rows: np.ndarray | None = None) -> float | None:
    """The mean SM clock over the time in which launches were profiled; None where it was not measured.

    ``rows``: of these launches, as a mask of shape (n,); None: of all.
    """
    names = launches.table.schema.names
    if "cycles_gpc_avg" not in names or "profiled_duration_ns" not in names:
        return None
    cycles, nanoseconds = launches.column("cycles_gpc_avg"), launches.column("profiled_duration_ns")
    known = np.isfinite(cycles) & np.isfinite(nanoseconds) & (nanoseconds > 0)
    if rows is not None:
        known &= rows
    if not known.any():
        return None
    return _NS_TO_MHZ * float(cycles[known].sum()) / float(nanoseconds[known].sum())


def require_equal_clocks(launches: Launches) -> None:
    """Raise LaunchTableError if the GPUs' SM clocks, over all their launches, are more than 5 % apart.

    A GPU's clock is its cycles over its time, both from one run; without them nothing is compared.
    """
    if clock_mhz(launches) is None:
        return
    by_gpu = {label: clock_mhz(launches, rows) for label, rows in _by_gpu(launches).items()}
    clocks = {label: mhz for label, mhz in by_gpu.items() if mhz is not None}
    slowest, fastest = min(clocks.values(), default=0.0), max(clocks.values(), default=0.0)
    if fastest <= (1 + MOST_CLOCK_DIFFERENCE_PERCENT / 100) * slowest:
        return
    listing = ", ".join(f"{label} {mhz:,.0f} MHz" for label, mhz in clocks.items())
    raise LaunchTableError(
        ", ".join(launches.sources) or "launches",
        f"its slices were made side by side, and the SM clocks of the GPUs are more than "
        f"{MOST_CLOCK_DIFFERENCE_PERCENT:g} % apart ({listing})",
        "cool the GPUs evenly or lock their clocks, and run it again, or profile it on one GPU",
    )


def require_equal_sequences(detailed: Launches, alignment: Alignment) -> None:
    """Raise MisalignedError if the slices of one of the GPUs do not match the light run.

    ``alignment`` aligns the window (left) with the light run; for a single GPU it suffices by itself.
    """
    by_gpu = _by_gpu(detailed)
    if len(by_gpu) < 2:
        return
    matched = np.zeros(len(detailed), bool)
    matched[alignment.left_rows] = True
    for label, rows in by_gpu.items():
        percent = 100.0 * float(matched[rows].mean())
        if percent < LEAST_MATCH_PERCENT:
            raise MisalignedError(
                ", ".join(detailed.sources) or "launches",
                f"its slices were made side by side, and only {percent:.2f} % of the launches of {label} "
                f"match the light run ({LEAST_MATCH_PERCENT:g} % are needed)",
                "make the workload launch the same kernels every time, with library autotuning off",
                alignment.differences,
            )


def _by_gpu(launches: Launches) -> dict[str, np.ndarray]:
    """The rows made on each GPU, by the GPU's name; shape (n,) each."""
    ordinals = launches.column("device")
    known = {device.index: device for device in launches.metadata.devices}
    rows = {}
    for ordinal in np.unique(ordinals).tolist():
        device = known.get(ordinal)
        label = f"GPU {ordinal}" if device is None else f"{device.name} {device.uuid or ordinal}"
        rows[label] = ordinals == ordinal
    return rows
